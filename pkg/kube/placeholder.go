package kube

import (
	"context"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

type policies struct{ cfg *Config }

func newPolicies(cfg *Config) *policies { return &policies{cfg} }

func (p *policies) step(context.Context, []v1alpha1.RoutingPolicy) *v1alpha1.RoutingPolicySpec {
	return p.cfg.File
}

type publisher struct{}

func newPublisher(*Config, *Watcher) *publisher { return &publisher{} }

func (p *publisher) run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
