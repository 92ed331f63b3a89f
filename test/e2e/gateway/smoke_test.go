package gateway

import "testing"

func TestSmoke(t *testing.T) { t.Log("up") }
