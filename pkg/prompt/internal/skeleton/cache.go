package skeleton

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// skeleton is what a template printed for a form: texts, with contents between
// them. A skeleton that is unfit says that the template looks into contents of
// that form.
type skeleton struct {
	pieces []outPiece
	times  []clockCall
	unfit  bool
	texts  int // contents that the form has
}

// outPiece is a text, then a content by its number; none when it is -1.
type outPiece struct {
	text    string
	content int
}

// clockCall is what the template was told about the time.
type clockCall struct{ format, said string }

// overhead is about what a skeleton takes without its texts, and each piece.
const (
	overhead      = 160
	pieceOverhead = 24
)

func (s *skeleton) bytes() int64 {
	n := int64(overhead)
	for _, p := range s.pieces {
		n += pieceOverhead + int64(len(p.text))
	}
	for _, t := range s.times {
		n += pieceOverhead + int64(len(t.format)+len(t.said))
	}
	return n
}

// cache holds skeletons by form. It has two generations: when the young one has
// grown to half of what is allowed, it becomes the old one, and what the old one
// held and nobody asked for is gone.
type cache struct {
	mu    sync.Mutex
	limit int64
	bytes int64 // of the young
	young map[xxh3.Uint128]*skeleton
	old   map[xxh3.Uint128]*skeleton
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, young: make(map[xxh3.Uint128]*skeleton)}
}

func (c *cache) get(k xxh3.Uint128) *skeleton {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.young[k]; s != nil {
		return s
	}
	s := c.old[k]
	if s != nil {
		c.add(k, s)
	}
	return s
}

func (c *cache) put(k xxh3.Uint128, s *skeleton) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(k, s)
}

// add puts a skeleton into the young generation. One that takes more than a
// quarter of everything is not kept.
func (c *cache) add(k xxh3.Uint128, s *skeleton) {
	n := s.bytes()
	if n > c.limit/4 {
		return
	}
	if old := c.young[k]; old != nil {
		c.bytes -= old.bytes()
	}
	if c.bytes+n > c.limit/2 {
		c.old, c.young, c.bytes = c.young, make(map[xxh3.Uint128]*skeleton), 0
	}
	c.young[k] = s
	c.bytes += n
}
