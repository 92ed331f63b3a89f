package kube

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// remembered is how long a pod that is gone is known: a StatefulSet brings it back
// under its name, with another UID and nothing in its cache.
const remembered = time.Hour

// lives finds out which engines began anew, by what their pods looked like before.
type lives struct {
	seen  map[string]life // by the name of the engine
	swept time.Time
	look  int // how many there were
}

// life is one engine as it was seen last.
type life struct {
	pod      types.UID
	restarts int32
	keys     []fleet.Key // of its ranks
	at       time.Time   // when it was seen last, or missed first
	look     int         // the last one at which it was there
}

// see takes the engines of a pool and returns the keys of those that began anew
// since they were seen last. One that was never seen did not.
func (l *lives) see(processes []process, now time.Time) []fleet.Key {
	if l.seen == nil {
		l.seen, l.swept = map[string]life{}, now
	}
	l.look++
	var anew []fleet.Key
	for i := range processes {
		p := &processes[i]
		is := life{pod: p.pod.UID, restarts: p.restarts, at: now, look: l.look}
		for j := range p.ranks {
			is.keys = append(is.keys, p.ranks[j].Key)
		}
		was, known := l.seen[p.name]
		switch {
		case !known:
		case was.pod != is.pod, was.restarts < is.restarts:
			// Ranks that it says no more may still be in the index.
			for _, key := range was.keys {
				if !slices.Contains(is.keys, key) {
					anew = append(anew, key)
				}
			}
			anew = append(anew, is.keys...)
		default:
			is.restarts = was.restarts // a status without containers is no way back
		}
		l.seen[p.name] = is
	}
	for name, was := range l.seen {
		if was.look == l.look-1 { // it may have been quiet for long before
			was.at = now
			l.seen[name] = was
		}
	}
	l.sweep(now)
	return anew
}

// sweep forgets those that are gone for long.
func (l *lives) sweep(now time.Time) {
	if now.Sub(l.swept) < remembered/4 {
		return
	}
	l.swept = now
	for name, was := range l.seen {
		if now.Sub(was.at) > remembered {
			delete(l.seen, name)
		}
	}
}
