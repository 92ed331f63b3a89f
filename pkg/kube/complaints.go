package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// complaints logs what the API server does not let be done: once per verb and
// resource, and again only after it worked. It is safe for concurrent use.
type complaints struct {
	log       *slog.Logger
	namespace string

	mu   sync.Mutex
	open map[string]string // verb and resource to the kind of error
}

// about takes in how a call went.
func (c *complaints) about(verb, resource string, err error) {
	key := verb + " " + resource
	kind := ""
	switch {
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
	case errors.Is(err, context.Canceled):
		return
	case apierrors.IsForbidden(err):
		kind = "forbidden"
	default:
		kind = "failed"
	}
	c.mu.Lock()
	before := c.open[key]
	if c.open == nil {
		c.open = map[string]string{}
	}
	c.open[key] = kind
	c.mu.Unlock()
	switch kind {
	case before:
	case "forbidden":
		c.log.Error("the picker may not do this; add it to its Role, as the chart does with rbac.create=true",
			"verb", verb, "resource", resource, "namespace", c.namespace, "error", err)
	case "failed":
		c.log.Warn("the API server does not answer as it should; it is tried again", "verb", verb, "resource", resource, "namespace", c.namespace, "error", err)
	default:
		c.log.Info("the API server answers again", "verb", verb, "resource", resource)
	}
}
