package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// metadataPlural is the resource that workers describe themselves in (dynamo.md
// 3.2).
const metadataPlural = "dynamoworkermetadatas"

// Pods is as much of a Kubernetes API server as Dynamo's discovery asks for: an
// EndpointSlice with the pods that there are, and the DynamoWorkerMetadata
// objects that workers apply. It keeps no history: a watch starts with all that is
// there.
type Pods struct {
	names      []string // of all pods that there may be
	kubeconfig string   // a file

	mu       sync.Mutex
	version  int
	sliced   int                       // version of the EndpointSlice
	gone     map[string]bool           // pods that are deleted, by name
	metadata map[string]map[string]any // objects, by name
	changed  chan struct{}             // closed at the next change
}

// StartPods serves pods of these names until the test ends.
func StartPods(t testing.TB, names ...string) *Pods {
	t.Helper()
	p := &Pods{names: names, version: 1, sliced: 1, gone: map[string]bool{}, metadata: map[string]map[string]any{}, changed: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pods: %v", err)
	}
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	writeYAML(t, p.kubeconfig, map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{map[string]any{"name": "test", "cluster": map[string]any{"server": "http://" + listener.Addr().String()}}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test", "namespace": podNamespace}}},
		"users":    []any{map[string]any{"name": "test", "user": map[string]any{}}},
	})
	// A watch lasts until its client or the server goes.
	ctx, stop := context.WithCancel(context.Background())
	server := &http.Server{Handler: p, BaseContext: func(net.Listener) context.Context { return ctx }}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("pods: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		if err := server.Shutdown(context.Background()); err != nil {
			t.Errorf("pods: %v", err)
		}
		serving.Wait()
	})
	return p
}

const podNamespace = "default"

// podEnvironment is what tells a process its pod.
func podEnvironment(pod string) []string {
	return []string{"POD_NAME=" + pod, "POD_NAMESPACE=" + podNamespace, "POD_UID=uid-of-" + pod}
}

// ServeHTTP answers lists and watches of any resource, and applies, reads and
// deletes metadata.
func (p *Pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	named := len(parts) > 1 && parts[len(parts)-2] == metadataPlural
	switch {
	case named && r.Method == http.MethodPatch:
		p.apply(w, r, last)
	case named && r.Method == http.MethodDelete:
		p.remove(w, last)
	case named && r.Method == http.MethodGet:
		p.mu.Lock()
		object := p.metadata[last]
		p.mu.Unlock()
		answer(w, object)
	case r.Method != http.MethodGet:
		http.Error(w, "not here", http.StatusMethodNotAllowed)
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		p.watch(w, r, last)
	default:
		p.list(w, last)
	}
}

// answer writes an object, or that there is none.
func answer(w http.ResponseWriter, object any) {
	status := http.StatusOK
	if m, ok := object.(map[string]any); ok && m == nil {
		status = http.StatusNotFound
		object = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": status}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object) // the client is gone if this fails
}

// apply takes an object as it comes: each has one owner, which always sends all of
// it.
func (p *Pods) apply(w http.ResponseWriter, r *http.Request, name string) {
	object := map[string]any{}
	decoder := json.NewDecoder(r.Body)
	decoder.UseNumber() // instance ids do not fit a float
	if err := decoder.Decode(&object); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		http.Error(w, "no metadata", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.note()
	metadata["namespace"], metadata["uid"] = podNamespace, "uid-of-metadata-"+name
	metadata["resourceVersion"] = strconv.Itoa(p.version)
	p.metadata[name] = object
	p.mu.Unlock()
	answer(w, object)
}

func (p *Pods) remove(w http.ResponseWriter, name string) {
	p.mu.Lock()
	object := p.metadata[name]
	delete(p.metadata, name)
	p.note()
	p.mu.Unlock()
	answer(w, object)
}

// note wakes the watches. Its caller holds the lock.
func (p *Pods) note() {
	p.version++
	close(p.changed)
	p.changed = make(chan struct{})
}

// objects returns the objects of a resource, their version, and what is closed when
// there is another.
func (p *Pods) objects(plural string) (objects map[string]map[string]any, version int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch plural {
	case metadataPlural:
		objects = maps.Clone(p.metadata)
	case "endpointslices":
		objects = map[string]map[string]any{"workers": p.slice()}
	}
	return objects, p.version, p.changed
}

func (p *Pods) list(w http.ResponseWriter, plural string) {
	kinds := map[string][2]string{
		metadataPlural:   {"nvidia.com/v1alpha1", "DynamoWorkerMetadataList"},
		"endpointslices": {"discovery.k8s.io/v1", "EndpointSliceList"},
		"pods":           {"v1", "PodList"},
	}
	kind, ok := kinds[plural]
	if !ok {
		answer(w, map[string]any(nil))
		return
	}
	objects, version, _ := p.objects(plural)
	items := []any{}
	for _, o := range objects {
		items = append(items, o)
	}
	answer(w, map[string]any{
		"apiVersion": kind[0], "kind": kind[1], "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)},
	})
}

// watch tells of every change, and at first of all that is there.
func (p *Pods) watch(w http.ResponseWriter, r *http.Request, plural string) {
	w.Header().Set("Content-Type", "application/json")
	told := map[string]map[string]any{}
	for {
		objects, _, changed := p.objects(plural)
		for name, o := range objects {
			word := "MODIFIED"
			switch before := told[name]; {
			case before == nil:
				word = "ADDED"
			case versionOf(before) == versionOf(o):
				continue
			}
			tell(w, word, o)
		}
		for name, o := range told {
			if objects[name] == nil {
				tell(w, "DELETED", o)
			}
		}
		told = objects
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// tell writes one event of a watch.
func tell(w http.ResponseWriter, word string, object map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": word, "object": object}) // noticed when it is flushed
}

func versionOf(object map[string]any) any {
	return object["metadata"].(map[string]any)["resourceVersion"]
}

// Delete takes a pod away, and what it owns with it.
func (p *Pods) Delete(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[name] = true
	delete(p.metadata, name)
	p.note()
	p.sliced = p.version
}

// Create brings back a pod that was deleted.
func (p *Pods) Create(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[name] = false
	p.note()
	p.sliced = p.version
}

// slice is the EndpointSlice by which frontends and workers know that pods are
// ready. Its caller holds the lock.
func (p *Pods) slice() map[string]any {
	endpoints := []any{}
	for i, name := range p.names {
		if p.gone[name] {
			continue
		}
		endpoints = append(endpoints, map[string]any{
			"addresses":  []string{fmt.Sprintf("127.0.1.%d", i+1)},
			"conditions": map[string]any{"ready": true, "serving": true, "terminating": false},
			"targetRef":  map[string]any{"kind": "Pod", "name": name, "namespace": podNamespace, "uid": "uid-of-" + name},
		})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": map[string]any{
			"name": "workers", "namespace": podNamespace, "uid": "uid-of-workers", "resourceVersion": strconv.Itoa(p.sliced),
			"labels": map[string]string{
				"nvidia.com/dynamo-discovery-enabled": "true", "nvidia.com/dynamo-discovery-backend": "kubernetes",
				"kubernetes.io/service-name": "workers",
			},
		},
		"addressType": "IPv4",
		"ports":       []any{map[string]any{"name": "system", "port": 9090, "protocol": "TCP"}},
		"endpoints":   endpoints,
	}
}

// discovered returns the objects of one kind that the workers of all pods have put
// into their metadata.
func (p *Pods) discovered(kind string) (map[string][]byte, error) {
	objects, _, _ := p.objects(metadataPlural)
	found := map[string][]byte{}
	for name, o := range objects {
		spec, _ := o["spec"].(map[string]any)
		data, _ := spec["data"].(map[string]any)
		entries, _ := data[kind].(map[string]any)
		for key, entry := range entries {
			b, err := json.Marshal(entry)
			if err != nil {
				return nil, fmt.Errorf("metadata of %s: %s: %w", name, key, err)
			}
			found[key] = b
		}
	}
	return found, nil
}
