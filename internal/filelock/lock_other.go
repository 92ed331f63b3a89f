//go:build !unix

package filelock

import (
	"context"
	"errors"
)

// Take cannot lock here, so nothing is installed.
func Take(context.Context, string, func()) (func(), error) {
	return nil, errors.New("no file locks on this system")
}
