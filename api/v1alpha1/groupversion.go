package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "routing.warmpath.dev", Version: "v1alpha1"}

// AddToScheme makes a scheme know the kinds that live in a cluster.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &RoutingPolicy{}, &RoutingPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
