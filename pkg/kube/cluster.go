package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// newScheme returns a scheme with the kinds that are read or written here.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, eventsv1.AddToScheme, coordinationv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		inferencev1.Install, v1alpha1.AddToScheme, addMetadata, addObjectives, addRewrites,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Requests to the API server are few; these only bound a storm.
const (
	queriesPerSecond = 50
	queryBurst       = 100
)

// restConfig says how to reach the API server.
func restConfig(cfg *Config) (*rest.Config, error) {
	config := cfg.Rest
	var err error
	switch path := cfg.Discovery.Kubeconfig; {
	case config != nil:
	case path != "":
		if config, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
			return nil, fmt.Errorf("discovery.kubernetes.kubeconfig %s: %w", path, err)
		}
	default:
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no API server: %w; outside of a cluster set discovery.kubernetes.kubeconfig, "+
				"inside of one give the pod its service account (automountServiceAccountToken)", err)
		}
	}
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		config.QPS, config.Burst = queriesPerSecond, queryBurst
	}
	config.UserAgent = "warmpath"
	return config, nil
}

// namespaceFile has the namespace of the pod that the picker runs in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// namespaceOf returns the namespace of the pool.
func namespaceOf(d *v1alpha1.KubernetesDiscovery) (string, error) {
	named, field := "", "pool"
	if d.Pool != nil {
		named = d.Pool.Namespace
	} else if d.Selector != nil {
		named, field = d.Selector.Namespace, "selector"
	}
	if named == "" {
		named = os.Getenv("POD_NAMESPACE")
	}
	if named != "" {
		return named, nil
	}
	data, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("in which namespace is the pool? set discovery.kubernetes.%s.namespace, or POD_NAMESPACE: %w", field, err)
	}
	if named = strings.TrimSpace(string(data)); named == "" {
		return "", errors.New(namespaceFile + " is empty; set discovery.kubernetes." + field + ".namespace, or POD_NAMESPACE")
	}
	return named, nil
}

// newCluster connects the cache of the kinds that are followed with the API
// server. Nothing is asked before it starts.
func newCluster(w *Watcher, config *rest.Config) (cluster.Cluster, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	// A selector keeps the cache to the namespace. Its own way of doing so, a cache
	// for each namespace, leaves goroutines behind when something is never read.
	inNamespace := fields.OneTermEqualSelector("metadata.namespace", w.namespace)
	objects := map[client.Object]cache.ByObject{
		&corev1.Pod{}:     {Field: inNamespace, Transform: trimPod(w.cfg.Discovery.ActivePortsAnnotations)},
		&workerMetadata{}: {Field: inNamespace, Transform: trimMetadata},
		nodeMetadata():    {Transform: w.trimNode},
	}
	if pool := w.cfg.Discovery.Pool; pool != nil {
		objects[&inferencev1.InferencePool{}] = cache.ByObject{
			Transform: trimOther,
			Field:     fields.AndSelectors(inNamespace, fields.OneTermEqualSelector("metadata.name", pool.Name)),
		}
		objects[&v1alpha1.RoutingPolicy{}] = cache.ByObject{Field: inNamespace, Transform: trimOther}
		objects[&objective{}] = cache.ByObject{Field: inNamespace, Transform: trimObjective}
		objects[&oldObjective{}] = cache.ByObject{Field: inNamespace, Transform: trimObjective}
		objects[&modelRewrite{}] = cache.ByObject{Field: inNamespace, Transform: trimRewrite}
		objects[&oldModelRewrite{}] = cache.ByObject{Field: inNamespace, Transform: trimRewrite}
	}
	return cluster.New(config, func(o *cluster.Options) {
		o.Scheme = scheme
		o.MapperProvider = newMapper
		o.Logger = logr.FromSlogHandler(w.cfg.Log.Handler())
		o.Cache = cache.Options{
			ByObject: objects,
			// What nobody follows is asked for, never followed by accident.
			ReaderFailOnMissingInformer: true,
			NewInformer:                 w.newInformer,
			DefaultWatchErrorHandler:    w.watchEnded,
		}
		o.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{
			&corev1.Service{}, &coordinationv1.Lease{}, &corev1.Event{}, &eventsv1.Event{},
		}}
	})
}

// newMapper returns a mapper that knows what is read here without asking, so that a
// watcher can be made while there is no API server, and of kinds that are not there
// yet.
func newMapper(config *rest.Config, c *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(config, c)
	if err != nil {
		return nil, err
	}
	known := meta.NewDefaultRESTMapper(nil)
	for _, k := range []struct {
		gvk              schema.GroupVersionKind
		plural, singular string
		scope            meta.RESTScope
	}{
		{podKind, "pods", "pod", meta.RESTScopeNamespace},
		{nodeKind, "nodes", "node", meta.RESTScopeRoot},
		{metadataKind, "dynamoworkermetadatas", "dynamoworkermetadata", meta.RESTScopeNamespace},
		{poolKind, "inferencepools", "inferencepool", meta.RESTScopeNamespace},
		{policyKind, "routingpolicies", "routingpolicy", meta.RESTScopeNamespace},
		{objectiveKind, objectiveResource, "inferenceobjective", meta.RESTScopeNamespace},
		{oldObjectiveKind, objectiveResource, "inferenceobjective", meta.RESTScopeNamespace},
		{rewriteKind, rewriteResource, "inferencemodelrewrite", meta.RESTScopeNamespace},
		{oldRewriteKind, rewriteResource, "inferencemodelrewrite", meta.RESTScopeNamespace},
		{corev1.SchemeGroupVersion.WithKind("Service"), "services", "service", meta.RESTScopeNamespace},
		{authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), "selfsubjectaccessreviews", "selfsubjectaccessreview", meta.RESTScopeRoot},
		{authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), "selfsubjectreviews", "selfsubjectreview", meta.RESTScopeRoot},
	} {
		version := k.gvk.GroupVersion()
		known.AddSpecific(k.gvk, version.WithResource(k.plural), version.WithResource(k.singular), k.scope)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, dynamic}}, nil
}

// The kinds that are followed.
var (
	podKind      = corev1.SchemeGroupVersion.WithKind("Pod")
	metadataKind = metadataVersion.WithKind("DynamoWorkerMetadata")
	poolKind     = schema.GroupVersion(inferencev1.GroupVersion).WithKind("InferencePool")
	policyKind   = v1alpha1.GroupVersion.WithKind("RoutingPolicy")
)

var logLibraries sync.Once

// adoptLog makes the Kubernetes libraries, which log through globals, log where the
// first watcher of the process does.
func adoptLog(log *slog.Logger) {
	logLibraries.Do(func() {
		to := logr.FromSlogHandler(log.With("component", "kubernetes").Handler())
		ctrllog.SetLogger(to)
		klog.SetLogger(to)
	})
}

// newInformer is called by the cache for every kind that it begins to follow.
func (w *Watcher) newInformer(lw toolscache.ListerWatcher, object runtime.Object, _ time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	k := w.kindOf(object)
	informer := toolscache.NewSharedIndexInformer(k.patient(lw, w.outages), object, 0, indexers)
	k.attach(informer)
	return informer
}
