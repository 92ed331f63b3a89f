// Package v1alpha1 holds the types of warmpath's files, group
// routing.warmpath.dev, version v1alpha1: the picker's configuration
// ([EndpointPickerConfig]) and the static list of workers ([WorkerList]), with
// their defaults, validation and strict decoding, and the policy of a pool in a
// cluster ([RoutingPolicy]).
//
// It is a leaf: it imports nothing else of warmpath, opens no connection and
// keeps no state. Start at [Load] for a file, [Decode] for bytes.
//
// The "+default=" and "+kubebuilder:validation" lines in the comments are read
// by hack/genschema, which writes the field reference and the JSON Schema from
// them, and by controller-gen, which writes the CRD. A test there compares them
// with what Default fills in.
//
// A field is optional unless it says "+required": controller-gen would require those
// with omitzero alone.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=routing.warmpath.dev
package v1alpha1
