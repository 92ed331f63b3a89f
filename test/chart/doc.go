// Package chart holds the tests of charts/warmpath and of the kustomize folders in
// config: what they render for each gateway, what they refuse, that the picker
// accepts the configuration in it, that nothing asks for more rights than it needs,
// that Helm installs, upgrades, rolls back and uninstalls it, that alerts and
// dashboards speak of metrics that exist, and that alerts fire when they should.
package chart
