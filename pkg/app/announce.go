package app

import (
	"github.com/warmpath/warmpath/pkg/eventplane"
	"github.com/warmpath/warmpath/pkg/extproc"
)

// announcer hands placements on to the event plane.
type announcer struct{ plane *eventplane.Plane }

// Placed implements extproc.Announcer. What the plane returns may be nil, which
// its methods take.
func (a announcer) Placed(p extproc.Placement) extproc.Announcement {
	return a.plane.Announce((*eventplane.Placement)(&p))
}

// announcer is nil, not an interface that holds nothing, when other routers are to
// be told nothing: then no request pays for it.
func (e *events) announcer(replicaSync bool) extproc.Announcer {
	if e.plane == nil || !replicaSync {
		return nil
	}
	return announcer{e.plane}
}
