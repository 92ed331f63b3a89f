package pick

import "github.com/warmpath/warmpath/pkg/fleet"

// sites numbers what the workers of a pool have in common, so that decisions
// compare numbers.
type sites struct {
	all     []site
	numbers map[fleet.Site]int32
	values  map[string]int32 // of hosts, fabrics, racks and zones, from 1 on
	groups  map[string]int32 // of connectors, from 1 on
}

// site is a fleet.Location in numbers; 0 is not known.
type site struct {
	near  [fleet.Elsewhere]int32 // what workers at a distance have in common
	group int32                  // workers that connect
}

func newSites() *sites {
	return &sites{numbers: map[fleet.Site]int32{}, values: map[string]int32{}, groups: map[string]int32{}}
}

// add returns the position in all of a site.
func (s *sites) add(f fleet.Site) int32 {
	if at, known := s.numbers[f]; known {
		return at
	}
	at := int32(len(s.all))
	s.numbers[f] = at
	l := f.Location()
	var n site
	for d, text := range [fleet.Elsewhere]string{fleet.SameHost: l.Host, fleet.SameFabric: l.Fabric, fleet.SameRack: l.Rack, fleet.SameZone: l.Zone} {
		if text != "" {
			n.near[d] = number(s.values, string(rune('0'+d))+text) // a host may be named as a rack
		}
	}
	if l.Connector != "" {
		n.group = number(s.groups, l.Connector)
	}
	s.all = append(s.all, n)
	return at
}

func number(all map[string]int32, text string) int32 {
	n, known := all[text]
	if !known {
		n = int32(len(all)) + 1
		all[text] = n
	}
	return n
}

// alike says whether it is all the same which workers are paired.
func (s *sites) alike() bool { return len(s.all) <= 1 }
