package v1alpha1

// ModelRewriteRule sends requests for some models to other ones, which the client
// does not see: responses name the model that it asked for.
type ModelRewriteRule struct {
	// Matches are the exact names of the models. Without any, the rule is for all
	// requests that no other rule names, those without a model among them.
	// +default=[]
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Matches []string `json:"matches,omitempty"`

	// Targets are the models of which every request gets one, by weight.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Targets []ModelRewriteTarget `json:"targets"`
}

// ModelRewriteTarget is a model that a rule may choose.
type ModelRewriteTarget struct {
	// ModelRewrite is the model's name, as the workers know it. It may be an adapter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ModelRewrite string `json:"modelRewrite"`

	// Weight is the target's share of the rule's requests, against the weights of
	// the other targets. When no target has one, all get the same; when only some
	// have, the others get nothing.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Weight *int64 `json:"weight,omitempty"`
}
