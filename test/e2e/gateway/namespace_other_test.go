//go:build !linux

package gateway

import (
	"errors"
	"fmt"
	"runtime"
)

func enter(parts) (int, error) { return 1, fmt.Errorf("%w: on %s", errNoNamespace, runtime.GOOS) }

func setUpNetwork() error { return errors.New("there are no network namespaces here") }
