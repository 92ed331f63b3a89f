package v1alpha1

// JetStreamSpec reads the events from a JetStream stream, which keeps them for a
// while. The other fields count only when it is enabled.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || !has(self.snapshotInterval) || !has(self.maxAge) || duration(self.snapshotInterval) < duration(self.maxAge)",message="snapshotInterval must be below maxAge: events after a snapshot would be gone before the next; make it shorter, or 0s"
type JetStreamSpec struct {
	// Enabled turns it on. Needs the right to create a stream, or a stream that
	// captures the subjects already. Not allowed when events are disabled.
	// +default=false
	Enabled bool `json:"enabled,omitempty"`

	// Stream is the name of the stream: letters, digits, - and _, at most 64. Where
	// a stream captures the subjects already, its name.
	// +default="warmpath-kv-events"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Stream string `json:"stream,omitempty"`

	// Storage is where the servers keep a stream that the picker creates.
	// +default="File"
	Storage JetStreamStorage `json:"storage,omitempty"`

	// Replicas is how many servers keep a copy of a stream that the picker
	// creates.
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	Replicas int `json:"replicas,omitempty"`

	// MaxAge is how long a stream that the picker creates keeps an event. Range:
	// above 0, at most 720h.
	// +default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('720h')",message="must be above 0s, at most 720h"
	MaxAge Duration `json:"maxAge,omitzero"`

	// MaxBytes is the size of a stream that the picker creates, in bytes; the
	// oldest events make room for new ones.
	// +default=1073741824
	// +kubebuilder:validation:Minimum=1048576
	MaxBytes int64 `json:"maxBytes,omitempty"`

	// SnapshotInterval is how often the index is saved next to the stream, so that
	// a new replica need not read all of it. 0s turns this off. Range: 0s, or 10s
	// to 24h and below maxAge: what came after a snapshot must still be there.
	// +default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="must be 0s, or 10s to 24h"
	SnapshotInterval *Duration `json:"snapshotInterval,omitempty"`
}

// JetStreamStorage is where the servers keep a stream.
//
// +kubebuilder:validation:Enum=File;Memory
type JetStreamStorage string

// Kinds of storage.
const (
	StorageFile   JetStreamStorage = "File"   // on disk
	StorageMemory JetStreamStorage = "Memory" // in memory, gone when the servers restart
)

// RecoverySpec asks Dynamo workers what they hold when events of them were lost,
// and at the start.
type RecoverySpec struct {
	// Disabled turns the questions off; server.recoveryAddress is then not opened.
	// +default=false
	Disabled bool `json:"disabled,omitempty"`

	// Timeout is the most time that one question may take. Range: 1s to 10m.
	// +default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="must be 1s to 10m"
	Timeout Duration `json:"timeout,omitzero"`
}

// WarmUpSpec says how a new replica learns what the workers hold before it takes
// requests.
type WarmUpSpec struct {
	// Timeout is the most time it may take. Then requests are taken anyway. 0s:
	// no warm-up. Range: 0s to 10m.
	// +default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('10m')",message="must be 0s to 10m"
	Timeout *Duration `json:"timeout,omitempty"`

	// FromPeers asks another replica, over NATS.
	// +default=true
	FromPeers *bool `json:"fromPeers,omitempty"`
}

// TellsRouters says whether other routers are told what is placed where.
func (e *EventPlaneSpec) TellsRouters() bool { return e.ReplicaSync != nil && *e.ReplicaSync }

// AsksWorkers says whether workers are asked what they hold: only then is
// server.recoveryAddress opened.
func (e *EventPlaneSpec) AsksWorkers() bool { return !e.Disabled && !e.Recovery.Disabled }
