package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Picker is a running cmd/epp.
type Picker struct {
	ExtProc netip.AddrPort
	metrics string // base URL
}

// BuildPicker builds cmd/epp with the race detector into a folder and returns the
// binary.
func BuildPicker(dir string) (string, error) {
	binary := filepath.Join(dir, "epp")
	build := exec.Command("go", "build", "-race", "-o", binary, "github.com/warmpath/warmpath/cmd/epp")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the picker: %w\n%s", err, out)
	}
	return binary, nil
}

// PickerConfig says how to run a picker for a stack.
type PickerConfig struct {
	Binary string
	// NATSURL is where the picker hears events; by default where workers publish.
	NATSURL string
	// Sidecars are the workers' endpoints, by worker id. Without them no request
	// can be sent through the picker.
	Sidecars map[uint64]*Sidecar
	// Tokenizer is the picker's spec.tokenizer. By default it is disabled: the
	// frontend has no endpoint that turns text into token ids.
	Tokenizer map[string]any
	// Ask says whether the picker is told where workers answer recovery queries.
	Ask bool
}

// StartPicker runs the picker for the workers of a stack until the test ends,
// and returns when it is ready.
func StartPicker(t testing.TB, s *Stack, cfg PickerConfig) *Picker {
	t.Helper()
	for attempt := 1; ; attempt++ {
		p, proc, err := startPicker(t, s, cfg, fmt.Sprintf("epp-%d", attempt))
		if err == nil {
			return p
		}
		// Between our look and the picker's start another may take a port.
		if attempt == 3 || proc.running() || !strings.Contains(proc.logTail(), "already in use") {
			t.Fatal(err)
		}
	}
}

func startPicker(t testing.TB, s *Stack, cfg PickerConfig, name string) (*Picker, *process, error) {
	t.Helper()
	dir := t.TempDir()
	writeYAML(t, filepath.Join(dir, "workers.yaml"), workerList(t, s, cfg))
	ports := [3]string{"127.0.0.1:" + freePort(t), "127.0.0.1:" + freePort(t), "127.0.0.1:" + freePort(t)}
	config := filepath.Join(dir, "config.yaml")
	tokenizer := cfg.Tokenizer
	if tokenizer == nil {
		tokenizer = map[string]any{"disabled": true}
	}
	writeYAML(t, config, map[string]any{
		"apiVersion": v1alpha1.APIVersion,
		"kind":       v1alpha1.KindEndpointPickerConfig,
		"server": map[string]any{
			"extProcAddress":  ports[0],
			"healthAddress":   ports[1],
			"metricsAddress":  ports[2],
			"recoveryAddress": "127.0.0.1:0",
			"drainTimeout":    "3s",
		},
		"discovery": map[string]any{"file": map[string]any{"path": "workers.yaml"}},
		"spec": map[string]any{
			"blockSize":  s.cfg.BlockSize,
			"eventPlane": map[string]any{"nats": map[string]any{"url": cmp.Or(cfg.NATSURL, s.cfg.NATSURL), "namespace": s.cfg.Namespace}},
			"tokenizer":  tokenizer,
			"handoff":    map[string]any{"preset": v1alpha1.HandoffDynamo},
		},
	})
	p := &Picker{ExtProc: netip.MustParseAddrPort(ports[0]), metrics: "http://" + ports[2]}
	proc := startProcess(t, name, dir, os.Environ(), cfg.Binary, "--config", config)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err := poll(ctx, func() error {
		if !proc.running() {
			return fmt.Errorf("%s %w (%s)\n%s", name, errPart, proc.cmd.ProcessState, proc.logTail())
		}
		return p.get(ctx, "/readyz", nil)
	})
	return p, proc, err
}

// workerList describes a stack as file discovery wants it. The roles come from
// the label that Dynamo's operator writes. A worker in a pod is known by the pod's
// name alone, any other by the id it gave itself.
func workerList(t testing.TB, s *Stack, cfg PickerConfig) map[string]any {
	t.Helper()
	labels := map[fleet.Role]string{fleet.Aggregated: "worker", fleet.Prefill: "prefill", fleet.Decode: "decode"}
	var workers []map[string]any
	for i, w := range s.workers {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(i+1))
		if c := cfg.Sidecars[w.id]; c != nil {
			addr = c.Addr
		}
		spec := map[string]any{
			"name":             w.pod,
			"address":          addr.Addr().String(),
			"ports":            []int{int(addr.Port())},
			"labels":           map[string]string{"nvidia.com/dynamo-component-type": labels[w.role]},
			"dataParallelSize": s.cfg.Ranks,
		}
		if s.cfg.Pods == nil {
			// A string: YAML readers may round larger numbers.
			spec["workerID"] = strconv.FormatUint(w.id, 10)
		}
		if cfg.Ask {
			endpoints, err := s.RecoveryEndpoints(w.id)
			if err != nil {
				t.Fatal(err)
			}
			spec["recoveryEndpoints"] = endpoints
		}
		workers = append(workers, spec)
	}
	return map[string]any{
		"apiVersion": v1alpha1.APIVersion,
		"kind":       v1alpha1.KindWorkerList,
		"workers":    workers,
	}
}

func writeYAML(t testing.TB, path string, v any) {
	t.Helper()
	b, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Index returns what the picker's index says each worker rank holds on its
// device. Ranks that hold nothing are left out.
func (p *Picker) Index(ctx context.Context) (map[fleet.Key]map[block.Chain]bool, error) {
	var dump struct {
		Workers []struct {
			ID     uint64         `json:"id,string"`
			Rank   uint32         `json:"rank"`
			Blocks map[string]int `json:"blocks"`
			Chains []string       `json:"chains"`
		} `json:"workers"`
	}
	if err := p.get(ctx, "/debug/index?chains=true", &dump); err != nil {
		return nil, err
	}
	held := map[fleet.Key]map[block.Chain]bool{}
	for _, w := range dump.Workers {
		key := fleet.Key{ID: w.ID, Rank: w.Rank}
		if n := w.Blocks["device"]; n != len(w.Chains) {
			return nil, fmt.Errorf("index of %s counts %d device blocks and lists %d", key, n, len(w.Chains))
		}
		for _, text := range w.Chains {
			c, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("index of %s: chain: %w", key, err)
			}
			if held[key] == nil {
				held[key] = map[block.Chain]bool{}
			}
			held[key][block.Chain(c)] = true
		}
	}
	return held, nil
}

// Metrics returns the picker's metrics: samples by name and labels, as they are
// written on the page.
func (p *Picker) Metrics(ctx context.Context) (map[string]float64, error) {
	page, err := p.page(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok {
			name, value, ok = strings.Cut(strings.TrimSpace(line), " ")
		} else {
			name += "}"
		}
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if samples[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("/metrics: %q: %w", line, err)
		}
	}
	return samples, nil
}

// get reads a page of the metrics port; v, unless nil, takes its JSON.
func (p *Picker) get(ctx context.Context, path string, v any) error {
	page, err := p.page(ctx, path)
	if err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(page, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (p *Picker) page(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
