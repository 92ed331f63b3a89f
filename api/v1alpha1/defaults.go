package v1alpha1

import (
	"cmp"
	"time"
)

// Default fills every field that is zero with its default. What has no default,
// such as the URL of NATS, is left as it is.
func (c *EndpointPickerConfig) Default() {
	set(&c.APIVersion, APIVersion)
	set(&c.Kind, KindEndpointPickerConfig)
	s := &c.Server
	set(&s.ExtProcAddress, ":9002")
	set(&s.HealthAddress, ":9003")
	set(&s.MetricsAddress, ":9090")
	set(&s.DrainTimeout, Duration{30 * time.Second})
	set(&s.MaxBodyBytes, 64<<20)
	set(&s.MaxIndexBytes, 2<<30)
	set(&s.RecoveryAddress, ":9004")
	set(&s.LogLevel, LogInfo)
	if n := s.EmbeddedNATS; n != nil {
		n.Default()
	}
	if k := c.Discovery.Kubernetes; k != nil {
		k.Default()
	}
	c.Spec.Default()
}

// Default fills every field that is zero with its default.
func (s *RoutingPolicySpec) Default() {
	set(&s.BlockSize, 16)
	set(&s.CacheSalt, CacheSaltHash)
	r := &s.Roles
	setList(&r.Labels, "nvidia.com/dynamo-component-type", "nvidia.com/dynamo-sub-component-type", "DYN_COMPONENT", "llm-d.ai/role")
	setList(&r.Prefill, "prefill")
	setList(&r.Decode, "decode")
	setList(&r.Aggregated, "worker", "backend", "both", "prefill-decode")
	t := &s.Topology
	set(&t.LabelsFrom, LabelsFromPods)
	setList(&t.ZoneLabels, "topology.kubernetes.io/zone", "dynamo.topology/zone")
	setList(&t.RackLabels, "topology.kubernetes.io/rack", "dynamo.topology/rack")
	setList(&t.HostLabels, "kubernetes.io/hostname", "dynamo.topology/host")
	setList(&t.FabricLabels, "nvidia.com/gpu.clique", "dynamo.topology/fabric")
	setList(&t.ConnectorLabels, "llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
	s.EventPlane.Default()
	s.Tokenizer.InProcess.Default()
	e := &s.Tokenizer.Engine
	set(&e.Protocol, TokenizeAuto)
	set(&e.Timeout, Duration{500 * time.Millisecond})
	set(&e.Breaker.Failures, 5)
	set(&e.Breaker.Cooldown, Duration{5 * time.Second})
	s.EngineMetrics.Default()
	set(&s.Cost.ClassHeader, "x-dynamo-meta-policy-class")
	set(&s.Disaggregation.Order, OrderJoint)
	set(&s.Disaggregation.NeedsPair, PairAuto)
	s.defaultLate()
}

// defaultLate fills in what depends on other fields, or what the environment may set
// first ([RoutingPolicySpec.FillFrom]). The knobs of costs stay as they are: which of
// them are set decides on the model.
func (s *RoutingPolicySpec) defaultLate() {
	setPointer(&s.EventPlane.SpeculationTTL, Duration{5 * time.Second})
	setPointer(&s.EventPlane.ReplicaSync, false)
	c := &s.Cost
	if c.Model == "" && len(c.knobs()) > 0 {
		c.Model = ModelDynamo
	}
	set(&c.Model, ModelCongestion)
	set(&s.Disaggregation.Mode, DisaggregationWhenReady)
	s.Admission.Queue.Default()
	set(&s.Disaggregation.Condition, ConditionNever)
	set(&s.Admission.Queue.Policy, QueueFCFS)
	s.Handoff.Default()
}

// clearLate takes back what defaultLate has filled in.
func (s *RoutingPolicySpec) clearLate() {
	s.EventPlane.SpeculationTTL, s.EventPlane.ReplicaSync = nil, nil
	s.Cost.Model = ""
	s.Disaggregation.Mode, s.Disaggregation.Condition = "", ""
	s.Admission.Queue.Policy = ""
	s.Handoff.Preset = ""
}

// Default fills every field that is zero with its default.
func (n *EmbeddedNATS) Default() { set(&n.Address, ":4222") }

// Default fills every field that is zero with its default.
func (k *KubernetesDiscovery) Default() {
	set(&k.WorkerIdentity, IdentityPod)
	setList(&k.ActivePortsAnnotations, "llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
	setList(&k.PolicyFileFolders, "/etc/warmpath")
	setPointer(&k.PublishStatus, true)
}

// Default fills every field that is zero with its default.
func (e *EventPlaneSpec) Default() {
	set(&e.NATS.Name, "warmpath")
	j := &e.JetStream
	set(&j.Stream, "warmpath-kv-events")
	set(&j.Storage, StorageFile)
	set(&j.Replicas, 1)
	set(&j.MaxAge, Duration{time.Hour})
	set(&j.MaxBytes, 1<<30)
	setPointer(&j.SnapshotInterval, Duration{time.Minute})
	set(&e.Recovery.Timeout, Duration{time.Minute})
	setPointer(&e.WarmUp.Timeout, Duration{30 * time.Second})
	setPointer(&e.WarmUp.FromPeers, true)
}

// Default fills every field that is zero with its default.
func (s *InProcessSpec) Default() {
	set(&s.AddSpecialTokens, SpecialAuto)
	set(&s.Engine, EngineAuto)
	set(&s.ChatTemplate.ContentFormat, ContentAuto)
	set(&s.ChatTemplate.TimeZone, "UTC")
	set(&s.MemoBytes, 256<<20)
	set(&s.Limits.Time, Duration{time.Second})
	set(&s.Limits.OutputBytes, 16<<20)
	set(&s.Limits.Messages, 10_000)
	set(&s.Parity.Policy, ParityWhenAvailable)
	setPointer(&s.Parity.SampleEvery, 100)
	set(&s.Parity.SampleInterval, Duration{time.Second})
	set(&s.Parity.RecheckInterval, Duration{time.Minute})
	if d := s.Source.Directory; d != nil {
		d.Default()
	}
	if h := s.Source.HuggingFace; h != nil {
		h.Default()
	}
	if d := s.Source.Dynamo; d != nil && d.Hub != nil {
		d.Hub.Default()
	}
}

// Default fills every field that is zero with its default.
func (d *DirectorySourceSpec) Default() {
	set(&d.Revision, "main")
	set(&d.PollInterval, Duration{10 * time.Second})
}

// Default fills every field that is zero with its default.
func (h *HuggingFaceSourceSpec) Default() {
	set(&h.Revision, "main")
	h.Hub.Default()
}

// Default fills every field that is zero with its default.
func (h *HubSpec) Default() { set(&h.Address, "https://huggingface.co") }

// Default sets the preset, unless headers take its place.
func (h *HandoffSpec) Default() {
	if len(h.Headers) == 0 {
		set(&h.Preset, HandoffDefault)
	}
}

// Default fills every field that is zero with its default.
func (l *WorkerList) Default() {
	set(&l.APIVersion, APIVersion)
	set(&l.Kind, KindWorkerList)
	for i := range l.Workers {
		w := &l.Workers[i]
		set(&w.DataParallelSize, max(1, len(w.Ports)))
		setPointer(&w.Ready, true)
	}
}

func set[T comparable](field *T, def T) { *field = cmp.Or(*field, def) }

// setPointer fills a nil pointer. What it points to may be zero on purpose.
func setPointer[T any](field **T, def T) {
	if *field == nil {
		*field = &def
	}
}

// setList fills a nil list. An empty one was written on purpose.
func setList(field *[]string, def ...string) {
	if *field == nil {
		*field = def
	}
}
