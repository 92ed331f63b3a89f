package kube

import (
	"cmp"
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// access finds out which verbs the API server refuses us. It is used by the prober
// only.
type access struct {
	namespace string
	user      string // who we are, once known
	reviewed  map[*kind]bool
	refused   map[*kind][]string // verbs
}

func newAccess(namespace string) *access {
	return &access{namespace: namespace, reviewed: map[*kind]bool{}, refused: map[*kind][]string{}}
}

// pending says whether a kind has to be looked at: for the first time, or because
// something was refused.
func (a *access) pending(k *kind) bool {
	return !a.reviewed[k] || len(a.refused[k]) > 0 || k.refused.Load()
}

// review asks which of the verbs that following a kind needs are allowed.
func (a *access) review(ctx context.Context, c client.Client, k *kind) error {
	namespace := a.namespace
	if k.global {
		namespace = ""
	}
	var refused []string
	for _, verb := range []string{"list", "watch"} {
		r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: k.gvk.Group, Version: k.gvk.Version, Resource: k.resource,
			},
		}}
		if err := c.Create(ctx, r); err != nil {
			return err
		}
		if !r.Status.Allowed {
			refused = append(refused, verb)
		}
	}
	a.reviewed[k], a.refused[k] = true, refused
	if a.user == "" && len(refused) > 0 {
		a.whoAmI(ctx, c)
	}
	return nil
}

func (a *access) whoAmI(ctx context.Context, c client.Client) {
	r := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, r); err == nil {
		a.user = r.Status.UserInfo.Username
	}
}

// problems says what is refused, one problem for each kind.
func (a *access) problems(kinds []*kind) []Problem {
	var all []Problem
	for _, k := range kinds {
		if k.state.Load() != kindFollowed {
			continue
		}
		for _, verb := range a.refused[k] {
			message := a.message(verb, k.qualified())
			if k.global {
				message = a.nodesMessage(verb)
			}
			all = append(all, Problem{reasonForbidden, message})
		}
	}
	return all
}

func (a *access) message(verb, resource string) string {
	return fmt.Sprintf("%s must not %s %s in namespace %s; add the verb to the Role that warmpath's chart makes there (rbac.create=true)",
		a.who(), verb, resource, a.namespace)
}

func (a *access) nodesMessage(verb string) string {
	return fmt.Sprintf("%s must not %s nodes, as topology.labelsFrom: PodsAndNodes asks for; let warmpath's chart make its ClusterRole (rbac.nodes=true), "+
		"or set labelsFrom: Pods; until then places may be unknown or old", a.who(), verb)
}

// who we are, in messages.
func (a *access) who() string { return cmp.Or(a.user, "the picker's user") }
