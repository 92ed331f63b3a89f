package v1alpha1

// InProcessSpec turns prompts into token ids in this process, from the model's own
// tokenizer and chat template: exact, and without a call to an engine. It is on
// where source names one place. Prompts that it cannot turn go to an engine.
type InProcessSpec struct {
	// Source is where the model's tokenizer and chat template come from. Set one
	// of its fields.
	Source ModelSourceSpec `json:"source,omitzero"`

	// Engine is whose way of preparing a request for the chat template is followed.
	// +default="Auto"
	Engine EngineStyle `json:"engine,omitempty"`

	// ChatTemplate is how the engines run the model's chat template.
	ChatTemplate ChatTemplateSpec `json:"chatTemplate,omitzero"`

	// AddSpecialTokens says whether a text prompt (/v1/completions) begins with
	// the tokens that the tokenizer adds by itself, such as a beginning of
	// sequence. vLLM adds them, Dynamo does not. Chats get what the template says.
	// +default="Auto"
	AddSpecialTokens AddSpecialTokens `json:"addSpecialTokens,omitempty"`

	// MemoBytes is the most memory, in bytes, for prompts seen before: a request
	// that goes on with an earlier one pays only for what is new.
	// +default=268435456
	// +kubebuilder:validation:Minimum=1048576
	// +kubebuilder:validation:Maximum=68719476736
	MemoBytes int64 `json:"memoBytes,omitempty"`

	// Limits bound what one prompt may cost. One that exceeds them goes to an
	// engine.
	Limits RenderLimitsSpec `json:"limits,omitzero"`

	// Parity compares what is computed here with what the engines compute.
	Parity ParitySpec `json:"parity,omitzero"`
}

// EngineStyle is whose way of preparing a request for a chat template is followed.
//
// +kubebuilder:validation:Enum=Auto;VLLM;Dynamo;Dynamo1.3
type EngineStyle string

// Ways of engines.
const (
	EngineAuto     EngineStyle = "Auto"      // Dynamo where source is dynamo or handoff.preset is Dynamo, else VLLM
	EngineVLLM     EngineStyle = "VLLM"      // vLLM's OpenAI server
	EngineDynamo   EngineStyle = "Dynamo"    // Dynamo's frontend; the pool may have Dynamo 1.2, unless model cards say otherwise
	EngineDynamo13 EngineStyle = "Dynamo1.3" // Dynamo's frontend, where nothing in the pool is older than 1.3
)

// ChatTemplateSpec is how the engines run the model's chat template: what their
// flags say about it.
type ChatTemplateSpec struct {
	// File is a chat template in Jinja that takes the place of the model's, as
	// vLLM's --chat-template does. It is read whenever the model's files are. A
	// relative path is for the configuration file only, and starts at its folder.
	File string `json:"file,omitempty"`

	// Kwargs are chat_template_kwargs for requests that do not set them, as a JSON
	// object: vLLM's --default-chat-template-kwargs.
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.matches('(?s)^[[:space:]]*[{].*[}][[:space:]]*$')",message="must be a JSON object in quotes"
	Kwargs string `json:"kwargs,omitempty"`

	// ContentFormat is how the template gets the content of messages: vLLM's
	// --chat-template-content-format.
	// +default="Auto"
	ContentFormat ContentFormat `json:"contentFormat,omitempty"`

	// DropTools leaves tools out of the prompt when tool_choice is none: vLLM's
	// --exclude-tools-when-tool-choice-none. Left out: false with VLLM, true with
	// Dynamo, as they do by default.
	DropTools *bool `json:"dropTools,omitempty"`

	// TimeZone is the zone of the dates that the template prints, as in the IANA
	// database: the one of the engines.
	// +default="UTC"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+/-]+$`
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="must be UTC, or a name such as Europe/Zurich"
	TimeZone string `json:"timeZone,omitempty"`
}

// ContentFormat is how a template gets the content of messages.
//
// +kubebuilder:validation:Enum=Auto;String;OpenAI
type ContentFormat string

// Formats of content.
const (
	ContentAuto   ContentFormat = "Auto"   // as the template wants it
	ContentString ContentFormat = "String" // one text
	ContentOpenAI ContentFormat = "OpenAI" // a list of parts
)

// RenderLimitsSpec bounds what one prompt may cost.
type RenderLimitsSpec struct {
	// Time is the most time that the chat template may take. Range: above 0, at
	// most 1m.
	// +default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1m')",message="must be above 0s, at most 1m"
	Time Duration `json:"time,omitzero"`

	// OutputBytes is the longest prompt text, in bytes.
	// +default=16777216
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1073741824
	OutputBytes int64 `json:"outputBytes,omitempty"`

	// Messages is the most messages of a chat.
	// +default=10000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Messages int `json:"messages,omitempty"`
}

// AddSpecialTokens is whether a text prompt gets the tokens that a tokenizer adds
// by itself.
//
// +kubebuilder:validation:Enum=Auto;Always;Never
type AddSpecialTokens string

// Ways with special tokens.
const (
	SpecialAuto   AddSpecialTokens = "Auto"   // as the engines do, where they tell; else Never for a source dynamo, Always for others
	SpecialAlways AddSpecialTokens = "Always" // it gets them
	SpecialNever  AddSpecialTokens = "Never"  // it does not
)

// ModelSourceSpec is where the model's tokenizer and chat template come from: one
// of these.
//
// +kubebuilder:validation:XValidation:rule="[has(self.directory), has(self.huggingFace), has(self.dynamo)].filter(x, x).size() <= 1",message="set at most one of directory, huggingFace and dynamo"
type ModelSourceSpec struct {
	// Directory is a folder with the files, such as a mounted volume.
	Directory *DirectorySourceSpec `json:"directory,omitempty"`

	// HuggingFace is a repository of a Hugging Face compatible hub.
	HuggingFace *HuggingFaceSourceSpec `json:"huggingFace,omitempty"`

	// Dynamo is a Dynamo worker that serves its own files
	// (DYN_SELF_HOST_METADATA=1). They are checked against the checksums on its
	// model card.
	Dynamo *DynamoSourceSpec `json:"dynamo,omitempty"`
}

// DirectorySourceSpec is a folder with tokenizer.json (or a .tiktoken file) and
// tokenizer_config.json, or a repository's folder in the Hugging Face cache.
type DirectorySourceSpec struct {
	// Path of the folder. Its files are read again when they change. A relative path
	// is for the configuration file only, and starts at its folder.
	// +required
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`

	// Revision is the name under refs of a folder in the Hugging Face cache.
	// +default="main"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^\x00-\x20\x7f~^:?*\[\\/.-][^\x00-\x20\x7f~^:?*\[\\]*$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="must be a branch, a tag or a commit, without two dots in a row"
	Revision string `json:"revision,omitempty"`

	// PollInterval is how often is looked whether the files changed. Range: 100ms
	// to 1h.
	// +default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be 100ms to 1h"
	PollInterval Duration `json:"pollInterval,omitzero"`
}

// HuggingFaceSourceSpec is a repository of a Hugging Face compatible hub.
type HuggingFaceSourceSpec struct {
	// Repository is organisation/name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=193
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="must be organisation/name, without two dots in a row"
	Repository string `json:"repository"`

	// Revision is a commit, a tag or a branch. A commit is best: it is what the
	// engines run.
	// +default="main"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^\x00-\x20\x7f~^:?*\[\\/.-][^\x00-\x20\x7f~^:?*\[\\]*$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="must be a branch, a tag or a commit, without two dots in a row"
	Revision string `json:"revision,omitempty"`

	// Hub is which hub, and how to ask it.
	Hub HubSpec `json:"hub,omitzero"`
}

// DynamoSourceSpec is a Dynamo worker that serves its own files.
type DynamoSourceSpec struct {
	// CardFiles are files with the model cards of workers, as Dynamo's discovery
	// has them (the object, or its card_json), all of the same model. The workers
	// are asked in this order until one gives its files. They are read for every
	// attempt. Relative paths are for the configuration file only, and start at its
	// folder.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	CardFiles []string `json:"cardFiles"`

	// Hub is asked for what a card says is at the hub (hf://). Left out: such a
	// card is refused.
	Hub *HubSpec `json:"hub,omitempty"`
}

// HubSpec is a Hugging Face compatible hub, and how to ask it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.offline) || !self.offline || has(self.cacheDir) && self.cacheDir.size() > 0",message="offline needs cacheDir"
// +kubebuilder:validation:XValidation:rule="!has(self.tokenFile) || self.tokenFile.size() == 0 || !has(self.address) || !self.address.startsWith('http://') || self.address.matches('^http://(localhost|127[.][0-9.]+|[[]::1[]])(:[0-9]+)?(/|$)')",message="a token would be sent over http, for all to read; use https, or no token"
type HubSpec struct {
	// Address is its base URL, https:// unless it is trusted otherwise.
	// +default="https://huggingface.co"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^/@?#\s]+(/[^@?#\s]*)?$`
	Address string `json:"address,omitempty"`

	// TokenFile is a file with the access token, for repositories that want one:
	// a mounted Secret. It is read for every attempt. A relative path is for the
	// configuration file only, and starts at its folder.
	TokenFile string `json:"tokenFile,omitempty"`

	// CacheDir is a folder that keeps the files between starts; several processes
	// may share it. Left out: nothing is kept. A relative path is for the
	// configuration file only, and starts at its folder.
	CacheDir string `json:"cacheDir,omitempty"`

	// Offline uses the cache only.
	// +default=false
	Offline bool `json:"offline,omitempty"`
}

// ParitySpec compares what is computed in process with what the engines compute:
// about a dozen canned requests at the start, a sample of live traffic later. Of
// a sort of requests that differed none is turned into tokens in process until it
// agrees again. Sorts are told apart: plain chats, tools, reasoning, media, text.
type ParitySpec struct {
	// Policy says what is needed before prompts become tokens in process.
	// +default="WhenAvailable"
	Policy ParityPolicy `json:"policy,omitempty"`

	// SampleEvery compares one in so many requests. 0 compares none.
	// +default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	SampleEvery *int `json:"sampleEvery,omitempty"`

	// SampleInterval is the least time between two of them, so that engines are
	// not asked often. Range: above 0, at most 1h.
	// +default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('1h')",message="must be above 0s, at most 1h"
	SampleInterval Duration `json:"sampleInterval,omitzero"`

	// RecheckInterval is how long after a difference, or while no engine
	// answered, all is compared again. Range: above 0, at most 24h.
	// +default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('24h')",message="must be above 0s, at most 24h"
	RecheckInterval Duration `json:"recheckInterval,omitzero"`
}

// ParityPolicy says what is needed before prompts become tokens in process.
//
// +kubebuilder:validation:Enum=WhenAvailable;Required;Off
type ParityPolicy string

// Policies of parity.
const (
	ParityWhenAvailable ParityPolicy = "WhenAvailable" // engines agree, or none has an endpoint that tells its ids
	ParityRequired      ParityPolicy = "Required"      // engines agree
	ParityOff           ParityPolicy = "Off"           // nothing: nothing is compared
)

// Enabled says whether a source is named.
func (s *InProcessSpec) Enabled() bool {
	return s.Source.Directory != nil || s.Source.HuggingFace != nil || s.Source.Dynamo != nil
}
