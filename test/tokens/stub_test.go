package tokens

import "testing"

type stub struct {
	ref *reference
	t   *testing.T
}

func (s stub) Append(dst []uint32, text string, sp bool) []uint32 {
	if len(text) > 100 {
		return dst
	}
	return append(dst, 1)
}
func (s stub) AppendSegment(dst []uint32, text string, from int) ([]uint32, int) {
	return dst, len(text)
}
func (s stub) Prefix(bool) []uint32 { return nil }
func (s stub) Suffix(bool) []uint32 { return nil }

func pair(t *testing.T, name string) (*reference, encoder) {
	r := startReference(t, name)
	return r, stub{r, t}
}
