package app

import (
	"context"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/discovery"
	"github.com/warmpath/warmpath/pkg/kube"
)

// source finds the workers of the pool and hands them to [App.setFleet], and where
// policies come from there too, those to [App.Apply]. Run works until ctx ends.
type source interface {
	Run(ctx context.Context) error
}

// newSource returns what a configuration names, and where that looks.
func newSource(cfg *v1alpha1.EndpointPickerConfig, environment *v1alpha1.RoutingPolicySpec, a *App) (s source, where string, err error) {
	if f := cfg.Discovery.File; f != nil {
		return &discovery.File{Path: f.Path, Rules: discovery.RulesOf(&cfg.Spec), Publish: a.setFleet, Log: a.log}, f.Path, nil
	}
	k := cfg.Discovery.Kubernetes
	a.cluster, err = kube.New(kube.Config{
		Discovery:   *k,
		File:        &cfg.Spec,
		Environment: environment,
		Publish:     a.setFleet,
		Restarted:   a.restarted,
		Apply:       a.Apply,
		Observe:     a.Observe,
		// ext-proc is there by the time that the source runs.
		Objectives: func(priorities map[string]int) { a.extproc.SetObjectives(priorities) },
		Rewrites:   a.useRewrites,
		Log:        a.log,
	})
	if err != nil {
		return nil, "", err
	}
	if k.Pool != nil {
		return a.cluster, "InferencePool " + k.Pool.Name, nil
	}
	return a.cluster, "pods with " + k.Selector.LabelSelector, nil
}
