package app

import (
	"errors"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/modelfiles"
	"github.com/warmpath/warmpath/pkg/parity"
)

// builder makes models of their files.
type builder struct {
	layout       block.Layout
	templateFile string // in the place of the model's template
	zone         *time.Location
	memoBytes    int64
	gate         func() *parity.Gate
}

func (b *builder) build(f *modelfiles.Files) (*model, error) {
	return nil, errors.New("not yet")
}
