package fleet

import "testing"

func TestLocate(t *testing.T) {
	rules := SiteRules{
		ZoneLabels: []string{"zone", "old-zone"}, RackLabels: []string{"rack"}, HostLabels: []string{"host"},
		FabricLabels: []string{"clique"}, ConnectorLabels: []string{"engine", "connector"},
	}
	for _, tc := range []struct {
		labels map[string]string
		want   Location
	}{
		{nil, Location{}},
		{map[string]string{"other": "x"}, Location{}},
		{map[string]string{"zone": "a", "old-zone": "b"}, Location{Zone: "a"}},
		{map[string]string{"zone": "", "old-zone": "b"}, Location{Zone: "b"}},
		{
			map[string]string{"zone": "z", "rack": "r", "host": "h", "clique": "f", "connector": "nixl"},
			Location{Zone: "z", Rack: "r", Host: "h", Fabric: "f", Connector: "nixl"},
		},
	} {
		if got := rules.Locate(tc.labels); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.labels, got, tc.want)
		}
	}
	var none SiteRules
	if got := none.Locate(map[string]string{"": "x", "zone": "a"}); got != (Location{}) {
		t.Errorf("without rules: %+v", got)
	}
}

func TestLocationOr(t *testing.T) {
	whole := Location{Zone: "z", Rack: "r", Host: "h", Fabric: "f", Connector: "c"}
	if got := (Location{}).Or(whole); got != whole {
		t.Errorf("nothing or all: %+v", got)
	}
	other := Location{Zone: "1", Rack: "2", Host: "3", Fabric: "4", Connector: "5"}
	if got := whole.Or(other); got != whole {
		t.Errorf("all or another: %+v", got)
	}
	if got, want := (Location{Host: "own"}).Or(whole), (Location{Zone: "z", Rack: "r", Host: "own", Fabric: "f", Connector: "c"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSiteIsKeptOnce(t *testing.T) {
	a, b := SiteOf(Location{Zone: "z", Host: "h"}), SiteOf(Location{Zone: "z", Host: "h"})
	if a != b || a.Location() != (Location{Zone: "z", Host: "h"}) {
		t.Errorf("%+v, %+v", a.Location(), b.Location())
	}
	if SiteOf(Location{}) != (Site{}) || (Site{}).Location() != (Location{}) {
		t.Error("nowhere is somewhere")
	}
}
