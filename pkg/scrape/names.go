package scrape

import "bytes"

// names is a list that pages say again and again: it is made anew only when they
// say another.
type names struct {
	text []byte
	list []string
}

// of returns the names in a text, which commas separate. The list is never nil, and
// never changed.
func (n *names) of(text []byte) []string {
	if n.list != nil && bytes.Equal(n.text, text) {
		return n.list
	}
	n.text, n.list = append(n.text[:0], text...), []string{}
	for name := range bytes.SplitSeq(text, []byte{','}) {
		if name = bytes.TrimSpace(name); len(name) > 0 {
			n.list = append(n.list, string(name))
		}
	}
	return n.list
}
