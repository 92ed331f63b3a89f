package fleet

import "cmp"

// SiteRules say which labels tell where a worker runs. Of each list the first label
// that a worker has counts.
type SiteRules struct {
	ZoneLabels, RackLabels, HostLabels, FabricLabels, ConnectorLabels []string
}

// Locate returns what the labels of a worker say of its location.
func (r *SiteRules) Locate(labels map[string]string) Location {
	return Location{
		Zone:      firstOf(labels, r.ZoneLabels),
		Rack:      firstOf(labels, r.RackLabels),
		Host:      firstOf(labels, r.HostLabels),
		Fabric:    firstOf(labels, r.FabricLabels),
		Connector: firstOf(labels, r.ConnectorLabels),
	}
}

// firstOf returns the value of the first of some labels that is there and says
// something.
func firstOf(labels map[string]string, names []string) string {
	for _, name := range names {
		if value := labels[name]; value != "" {
			return value
		}
	}
	return ""
}

// Or returns the location with what is not known of it taken from another.
func (l Location) Or(o Location) Location {
	return Location{
		Zone:      cmp.Or(l.Zone, o.Zone),
		Rack:      cmp.Or(l.Rack, o.Rack),
		Host:      cmp.Or(l.Host, o.Host),
		Fabric:    cmp.Or(l.Fabric, o.Fabric),
		Connector: cmp.Or(l.Connector, o.Connector),
	}
}
