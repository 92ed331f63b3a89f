// Package chart holds the tests of charts/warmpath and of the kustomize folders in
// config: what they render for each gateway, what they refuse, that the picker
// accepts the configuration in it, that nothing asks for more rights than it needs,
// and that alerts and dashboards speak of metrics that exist.
package chart
