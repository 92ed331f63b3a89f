//go:build !linux

package gateway

// orphanEnv is used on Linux only: elsewhere Envoy may outlive its parent.
const orphanEnv = "WARMPATH_TEST_ORPHAN"

func leaveOrphan() {}
