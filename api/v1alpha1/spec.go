package v1alpha1

// RoutingPolicySpec says how the requests of a pool are routed. It holds nothing
// that belongs to one process.
type RoutingPolicySpec struct {
	// BlockSize is the number of tokens in one KV block. It must be the block
	// size of the engines: with any other value no prefix ever matches.
	// +default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	BlockSize int `json:"blockSize,omitempty"`

	// Eagle says that the engines run EAGLE speculative decoding, which makes
	// every block hash cover one token more than the block.
	// +default=false
	Eagle bool `json:"eagle,omitempty"`

	// Adapters are the model names that are LoRA adapters. Their blocks are
	// hashed with the adapter's name, as the engines do, so that a prefix of one
	// adapter never counts for another.
	// +default=[]
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Adapters []string `json:"adapters,omitempty"`

	// CacheSalt says whether the workers hash their blocks with the request's
	// cache salt (cache_salt in the body, or the header x-tenant-id). Dynamo does
	// since 1.4: Hash. Up to 1.3 it does not, and salted prompts would never match:
	// Ignore.
	// +default="Hash"
	CacheSalt CacheSaltMode `json:"cacheSalt,omitempty"`

	// Roles says how a worker's labels become its role.
	Roles RolesSpec `json:"roles,omitzero"`

	// EventPlane is where the KV-cache events of the workers come from.
	EventPlane EventPlaneSpec `json:"eventPlane,omitzero"`

	// Tokenizer says how text prompts become token ids.
	Tokenizer TokenizerSpec `json:"tokenizer,omitzero"`

	// Cost says what a decision weighs.
	Cost CostSpec `json:"cost,omitzero"`

	// Disaggregation says when the prompt is computed on a prefill worker of its own.
	Disaggregation DisaggregationSpec `json:"disaggregation,omitzero"`

	// SessionAffinity keeps the requests of a session together.
	SessionAffinity SessionAffinitySpec `json:"sessionAffinity,omitzero"`

	// Topology says how a worker's labels become the place where it runs.
	Topology TopologySpec `json:"topology,omitzero"`

	// Admission says when a request is refused rather than put on a busy worker.
	Admission AdmissionSpec `json:"admission,omitzero"`

	// EngineMetrics says how the metrics of the workers' engines are read.
	EngineMetrics EngineMetricsSpec `json:"engineMetrics,omitzero"`

	// Handoff names the headers that tell the decode worker which prefill worker
	// was picked.
	Handoff HandoffSpec `json:"handoff,omitzero"`

	// ModelRewrites send requests for some models to other ones. Of the rules that
	// name the model of a request the first counts, else the first without matches.
	// In a cluster they come before those of InferenceModelRewrite objects.
	// +default=[]
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	ModelRewrites []ModelRewriteRule `json:"modelRewrites,omitempty"`

	// ModelRewriteHeader says that the request header x-llm-d-model-name-rewrite, or
	// x-gateway-model-name-rewrite, names the model of a request that no rule
	// concerns. Turn it on only where the gateway sets that header and takes it away
	// from clients. Workers never see it.
	// +default=false
	ModelRewriteHeader bool `json:"modelRewriteHeader,omitempty"`
}

// CacheSaltMode says what a request's cache salt does to block hashes.
//
// +kubebuilder:validation:Enum=Hash;Ignore
type CacheSaltMode string

// Modes of the cache salt.
const (
	CacheSaltHash   CacheSaltMode = "Hash"   // it is part of every block hash
	CacheSaltIgnore CacheSaltMode = "Ignore" // it does not count
)

// RolesSpec says how a worker's labels become its role. The labels are read in
// order, and the first one with a word for prefill or decode decides. A word for
// aggregated counts only without such a one: operators put "worker" on one label and
// "prefill" on the next. A worker with none of the labels is aggregated. One whose
// labels have only words that are in no list gets no requests.
//
// +kubebuilder:validation:XValidation:rule="!has(self.prefill) || !has(self.decode) || !self.prefill.exists(w, w in self.decode)",message="a word must not mean both Prefill and Decode"
// +kubebuilder:validation:XValidation:rule="!has(self.prefill) || !has(self.aggregated) || !self.prefill.exists(w, w in self.aggregated)",message="a word must not mean both Prefill and Aggregated"
// +kubebuilder:validation:XValidation:rule="!has(self.decode) || !has(self.aggregated) || !self.decode.exists(w, w in self.aggregated)",message="a word must not mean both Decode and Aggregated"
type RolesSpec struct {
	// Labels are the names of the labels that carry the role, in order.
	// +default=["nvidia.com/dynamo-component-type","nvidia.com/dynamo-sub-component-type","DYN_COMPONENT","llm-d.ai/role"]
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	Labels []string `json:"labels,omitzero"`

	// Prefill lists the label values of workers that only prefill.
	// +default=["prefill"]
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Prefill []string `json:"prefill,omitzero"`

	// Decode lists the label values of workers that decode for others.
	// +default=["decode"]
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Decode []string `json:"decode,omitzero"`

	// Aggregated lists the label values of workers that do both.
	// +default=["worker","backend","both","prefill-decode"]
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Aggregated []string `json:"aggregated,omitzero"`
}

// EventPlaneSpec is where the KV-cache events of the workers come from.
//
// +kubebuilder:validation:XValidation:rule="!has(self.disabled) || !self.disabled || !has(self.jetStream) || !has(self.jetStream.enabled) || !self.jetStream.enabled",message="jetStream.enabled needs events, which disabled turns off; remove one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.disabled) || !self.disabled || !has(self.replicaSync) || !self.replicaSync",message="replicaSync needs events, which disabled turns off; remove one of the two"
type EventPlaneSpec struct {
	// NATS is the message bus on which the workers publish.
	NATS NATSSpec `json:"nats,omitzero"`

	// Disabled turns all events off, figures of load as well. A worker is then taken to
	// hold the prompts that were sent to it, for cost.routerTTL.
	// +default=false
	Disabled bool `json:"disabled,omitempty"`

	// SpeculationTTL is how long a decision's guess, that its prefill worker will
	// hold the prompt, counts once the prompt is computed and before events confirm
	// it: Dynamo's --router-predicted-ttl-secs, which counts from the decision. 0s
	// turns guessing off. Range: 0s to 1h.
	// +warmpath:default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="must be 0s to 1h"
	SpeculationTTL *Duration `json:"speculationTTL,omitempty"`

	// ReplicaSync tells other routers which requests were placed where, and when
	// they end (active_sequences_events), as Dynamo routers do with
	// --router-replica-sync. Needs the right to publish on the event plane. What
	// others tell is read in any case.
	// +warmpath:default=false
	ReplicaSync *bool `json:"replicaSync,omitempty"`

	// JetStream reads the events from a JetStream stream, which keeps them for a
	// while: a disconnect then loses nothing, and a new replica starts with what
	// others know. Workers need no change.
	JetStream JetStreamSpec `json:"jetStream,omitzero"`

	// Recovery asks Dynamo workers what they hold when events of them were lost,
	// and at the start. In a cluster their DynamoWorkerMetadata says where to ask
	// them, otherwise the list of workers does (recoveryEndpoints). They answer by
	// connecting to server.recoveryAddress.
	Recovery RecoverySpec `json:"recovery,omitzero"`

	// WarmUp says how a new replica learns what the workers hold before it takes
	// requests.
	WarmUp WarmUpSpec `json:"warmUp,omitzero"`
}

// NATSSpec is a connection to NATS.
//
// +kubebuilder:validation:XValidation:rule="[has(self.credentialsFile) && self.credentialsFile.size() > 0, has(self.nkeyFile) && self.nkeyFile.size() > 0, has(self.userFile) && self.userFile.size() > 0 || has(self.passwordFile) && self.passwordFile.size() > 0, has(self.tokenFile) && self.tokenFile.size() > 0].filter(x, x).size() <= 1",message="at most one of credentialsFile, nkeyFile, userFile with passwordFile, and tokenFile may be set"
// +kubebuilder:validation:XValidation:rule="(has(self.userFile) && self.userFile.size() > 0) == (has(self.passwordFile) && self.passwordFile.size() > 0)",message="userFile and passwordFile go together"
type NATSSpec struct {
	// URL of the servers: nats://, tls://, ws:// or wss://, several separated by
	// commas. Required unless the event plane is disabled, or a policy inherits it:
	// a policy without it gets the whole connection of the configuration file, and
	// may not set TLS or files to sign in with then. Without user, password or
	// token: those come from files.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.matches('^( *(nats|tls|wss?)://[^/@?#,[:space:]]+(/[^@?#,[:space:]]*)? *(,|$))+$') && !self.endsWith(',')",message="every URL must be nats://, tls://, ws:// or wss:// and a host, without user, password, query or fragment; secrets come from files"
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|,) *wss?://') || !self.matches('(^|,) *(nats|tls)://')",message="use ws and wss for all URLs, or for none"
	URL string `json:"url,omitempty"`

	// Namespace is Dynamo's base namespace, without the hash that the operator
	// appends per roll-out. Only events of this namespace count. Empty means all
	// namespaces.
	// +default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^ \t\r\n*>]*$`
	Namespace string `json:"namespace,omitempty"`

	// Name is how this client shows up in the server's list of connections.
	// +default="warmpath"
	Name string `json:"name,omitempty"`

	// TLS says that connections must be encrypted, and with which certificates;
	// {} means with the certificate authorities of the system. Left out:
	// connections are encrypted where the URL or the server says so.
	TLS *NATSTLSSpec `json:"tls,omitempty"`

	// CredentialsFile is a file of credentials: a user's JWT and its seed, as nsc
	// writes them (.creds). At most one of credentialsFile, nkeyFile, userFile
	// with passwordFile, and tokenFile may be set. All files are read again for
	// every connection, so that a secret can be replaced without a restart.
	// Relative paths are for the configuration file only, and start at its folder.
	CredentialsFile string `json:"credentialsFile,omitempty"`

	// NKeyFile is a file with the seed of a user's nkey, which starts with SU.
	NKeyFile string `json:"nkeyFile,omitempty"`

	// UserFile is a file with the name of the user. Goes with passwordFile.
	UserFile string `json:"userFile,omitempty"`

	// PasswordFile is a file with the password of the user. Goes with userFile.
	PasswordFile string `json:"passwordFile,omitempty"`

	// TokenFile is a file with the token.
	TokenFile string `json:"tokenFile,omitempty"`
}

// NATSTLSSpec is how connections to NATS are encrypted. Its files are PEM, and
// are read again for every connection. Relative paths are for the configuration
// file only, and start at its folder.
//
// +kubebuilder:validation:XValidation:rule="(has(self.certFile) && self.certFile.size() > 0) == (has(self.keyFile) && self.keyFile.size() > 0)",message="certFile and keyFile go together"
// +kubebuilder:validation:XValidation:rule="!has(self.insecureSkipVerify) || !self.insecureSkipVerify || !has(self.caFile) || self.caFile.size() == 0",message="insecureSkipVerify is not allowed together with caFile, which it would make useless"
type NATSTLSSpec struct {
	// CAFile is a file with the certificates of the authorities that sign for the
	// servers. Left out: those of the system.
	CAFile string `json:"caFile,omitempty"`

	// CertFile is a file with the certificate that is shown to servers that ask
	// for one, and those between it and its authority. Goes with keyFile.
	CertFile string `json:"certFile,omitempty"`

	// KeyFile is a file with the private key of the certificate. Goes with
	// certFile.
	KeyFile string `json:"keyFile,omitempty"`

	// ServerName is the name that the servers' certificates must be for. Left out:
	// the host of the URL.
	ServerName string `json:"serverName,omitempty"`

	// InsecureSkipVerify accepts any certificate, and with it anybody who can get
	// in between. For tests only. Not allowed together with caFile.
	// +default=false
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// TokenizerSpec says how text prompts become token ids. Prompts that already
// are token ids need none of it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.disabled) || !self.disabled || !has(self.inProcess) || !has(self.inProcess.source) || !(has(self.inProcess.source.directory) || has(self.inProcess.source.huggingFace) || has(self.inProcess.source.dynamo))",message="inProcess.source needs a tokenizer, which disabled turns off; remove one of the two"
type TokenizerSpec struct {
	// InProcess computes the token ids in this process. It comes first where it
	// is allowed.
	InProcess InProcessSpec `json:"inProcess,omitzero"`

	// Engine asks an engine's HTTP endpoint for the token ids of a prompt.
	Engine EngineTokenizerSpec `json:"engine,omitzero"`

	// Disabled turns tokenization off: prompts given as text then go where their
	// text went before.
	// +default=false
	Disabled bool `json:"disabled,omitempty"`
}

// EngineTokenizerSpec asks an engine's HTTP endpoint for the token ids of a
// prompt. A request whose prompt cannot be tokenized in time is still routed, by its
// text.
type EngineTokenizerSpec struct {
	// URLs are the base URLs of the engines that are asked, http:// or https://.
	// Empty means the pool's own decode and aggregated workers.
	// +default=[]
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +kubebuilder:validation:XValidation:rule="self.all(u, u.matches('^https?://[^/@?#[:space:]]+(/[^@?#[:space:]]*)?$'))",message="every URL must be http://host:port or https://host:port, without user, query or fragment"
	URLs []string `json:"urls,omitempty"`

	// Protocol is the endpoint that is used.
	// +default="Auto"
	Protocol TokenizeProtocol `json:"protocol,omitempty"`

	// Timeout is the most time a short prompt may take; each MB of the request
	// adds a second. Requests over 8 MiB are never sent. Range: above 0, at most
	// 1m.
	// +default="500ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1m')",message="must be above 0s, at most 1m"
	Timeout Duration `json:"timeout,omitzero"`

	// Breaker stops asking an engine that keeps failing.
	Breaker BreakerSpec `json:"breaker,omitzero"`
}

// TokenizeProtocol is the endpoint that is asked for token ids.
//
// +kubebuilder:validation:Enum=Auto;Render;Tokenize
type TokenizeProtocol string

// Protocols of engines.
const (
	TokenizeAuto     TokenizeProtocol = "Auto"     // Render where the engine has it, else Tokenize
	TokenizeRender   TokenizeProtocol = "Render"   // /v1/chat/completions/render and /v1/completions/render
	TokenizeTokenize TokenizeProtocol = "Tokenize" // /tokenize
)

// BreakerSpec stops asking an engine that keeps failing.
type BreakerSpec struct {
	// Failures is the number of failures in a row after which an engine is no
	// longer asked.
	// +default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Failures int `json:"failures,omitempty"`

	// Cooldown is how long it is then left alone. Range: above 0, at most 1h.
	// +default="5s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="must be above 0s, at most 1h"
	Cooldown Duration `json:"cooldown,omitzero"`
}

// HandoffSpec names the headers that tell the decode worker which prefill worker
// was picked. Preset and Headers exclude each other.
//
// +kubebuilder:validation:XValidation:rule="!has(self.headers) || self.headers.size() == 0 || !has(self.preset)",message="preset is not allowed together with headers; keep one of the two"
type HandoffSpec struct {
	// Preset is a ready-made set of headers. Not allowed together with headers.
	// +warmpath:default="Default"
	Preset HandoffPreset `json:"preset,omitempty"`

	// Headers is the full list of headers, instead of a preset.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Headers []HandoffHeader `json:"headers,omitempty"`
}

// HandoffPreset is a ready-made set of handoff headers.
//
// +kubebuilder:validation:Enum=Default;Dynamo;None
type HandoffPreset string

// Presets.
const (
	HandoffDefault HandoffPreset = "Default" // x-prefiller-host-port: the prefill worker's ip:port
	HandoffDynamo  HandoffPreset = "Dynamo"  // the instance-id, rank, mode and request-id headers of Dynamo frontends in direct mode
	HandoffNone    HandoffPreset = "None"    // no handoff header
)

// HandoffHeader is one header of the handoff.
type HandoffHeader struct {
	// Name of the header, lower case. Copies sent by clients are removed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9._-]+$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['host','content-length','content-type','transfer-encoding','connection','te','upgrade','authorization','x-tenant-id','x-gateway-destination-endpoint','x-gateway-destination-endpoint-subset','x-gateway-destination-endpoint-served'])",message="this header is used for something else; choose another"
	Name string `json:"name"`

	// Value is what the header says.
	// +required
	Value HandoffValue `json:"value"`
}

// HandoffValue is what a handoff header says.
//
// +kubebuilder:validation:Enum=PrefillEndpoint;PrefillInstanceID;PrefillRank;DecodeEndpoint;DecodeInstanceID;DecodeRank;RoutingMode;RequestID
type HandoffValue string

// Values of handoff headers. The prefill values are only sent when a prefill
// worker was picked.
const (
	PrefillEndpoint   HandoffValue = "PrefillEndpoint"   // ip:port of the prefill worker
	PrefillInstanceID HandoffValue = "PrefillInstanceID" // Dynamo worker id of the prefill worker, decimal
	PrefillRank       HandoffValue = "PrefillRank"       // data-parallel rank of the prefill worker
	DecodeEndpoint    HandoffValue = "DecodeEndpoint"    // ip:port of the decode worker
	DecodeInstanceID  HandoffValue = "DecodeInstanceID"  // Dynamo worker id of the decode worker, decimal
	DecodeRank        HandoffValue = "DecodeRank"        // data-parallel rank of the decode worker
	RoutingMode       HandoffValue = "RoutingMode"       // Dynamo's word for an aggregated or split request
	RequestID         HandoffValue = "RequestID"         // a UUID made for this request
)
