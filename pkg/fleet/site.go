package fleet

import "unique"

// Location is where a worker runs and how it hands over KV blocks. Empty fields are
// not known.
type Location struct {
	Zone, Rack, Host string
	Fabric           string // the domain within which interconnects are fast, such as an NVLink domain

	// Connector names the engine and the way KV blocks move. The workers of a pair
	// must have the same; one that is not known goes with any.
	Connector string
}

// Site is a Location, kept once for all workers that share it: decisions copy
// workers. The zero value is nowhere known.
type Site struct{ handle unique.Handle[Location] }

// SiteOf returns the site of a location.
func SiteOf(l Location) Site {
	if l == (Location{}) {
		return Site{}
	}
	return Site{unique.Make(l)}
}

// Location returns where that is.
func (s Site) Location() Location {
	if s == (Site{}) {
		return Location{}
	}
	return s.handle.Value()
}

// Distance is how far blocks travel between two workers. Larger is further.
type Distance uint8

// Distances, from near to far.
const (
	SameHost Distance = iota
	SameFabric
	SameRack
	SameZone
	Elsewhere // or not known
	NumDistances
)

// String returns the distance as policies and explanations name it.
func (d Distance) String() string {
	return [NumDistances]string{"host", "fabric", "rack", "zone", "elsewhere"}[d]
}

// DistanceTo returns how far blocks travel between two locations.
func (l *Location) DistanceTo(o *Location) Distance {
	same := func(a, b string) bool { return a != "" && a == b }
	switch {
	case same(l.Host, o.Host):
		return SameHost
	case same(l.Fabric, o.Fabric):
		return SameFabric
	case same(l.Rack, o.Rack):
		return SameRack
	case same(l.Zone, o.Zone):
		return SameZone
	}
	return Elsewhere
}

// Connects says whether two workers can hand over KV blocks.
func (l *Location) Connects(o *Location) bool {
	return l.Connector == "" || o.Connector == "" || l.Connector == o.Connector
}
