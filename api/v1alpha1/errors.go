package v1alpha1

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FieldError is one problem of a file or value. Decode, Load and Validate join
// all they find with errors.Join; errors.As finds the first.
type FieldError struct {
	File    string // file name as given; empty when a value was checked
	Line    int    // line of the field, or of what it is missing from; 0 when unknown
	Path    string // field, such as spec.roles.labels[0]; empty for the whole file
	Message string // what is wrong and what to do
}

// Error returns "file:line: path: message", without the parts that are unknown.
func (e *FieldError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// problems collects the errors of one check.
type problems []*FieldError

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, &FieldError{Path: path, Message: fmt.Sprintf(format, args...)})
}

// join orders the problems by line and returns nil when there are none.
func (p problems) join() error {
	slices.SortStableFunc(p, func(a, b *FieldError) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, len(p))
	for i, e := range p {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// within tells whether path is parent or lies below it.
func within(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || parent == "" || rest[0] == '.' || rest[0] == '[')
}
