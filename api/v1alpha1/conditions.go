package v1alpha1

// Types of the conditions of a RoutingPolicy.
const (
	// ConditionAccepted says whether the policy is in use.
	ConditionAccepted = "Accepted"
	// ConditionResolvedRefs says whether all that the policy and its pool refer to
	// is there: the pool, the picker's Service, mounted files.
	ConditionResolvedRefs = "ResolvedRefs"
	// ConditionRolesResolved says whether every pod has a role, and the pool the
	// roles that it needs.
	ConditionRolesResolved = "RolesResolved"
	// ConditionEventPlaneHealthy says whether KV events arrive.
	ConditionEventPlaneHealthy = "EventPlaneHealthy"
	// ConditionPrefixAware says whether decisions follow what workers hold.
	ConditionPrefixAware = "PrefixAware"
	// ConditionReady sums up the others.
	ConditionReady = "Ready"
)
