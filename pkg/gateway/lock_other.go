//go:build !unix

package gateway

import (
	"context"
	"errors"
)

// lockFile cannot lock here, so Envoy is not installed.
func lockFile(context.Context, string, func()) (func(), error) {
	return nil, errors.New("no file locks on this system")
}
