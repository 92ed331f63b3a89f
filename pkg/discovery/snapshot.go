package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Rules say how the labels of workers become roles and places.
type Rules struct {
	Roles fleet.RoleRules
	Sites fleet.SiteRules
}

// RulesOf returns those of a spec.
func RulesOf(spec *v1alpha1.RoutingPolicySpec) Rules {
	t := &spec.Topology
	return Rules{
		Roles: fleet.RoleRules(spec.Roles),
		Sites: fleet.SiteRules{
			ZoneLabels: t.ZoneLabels, RackLabels: t.RackLabels, HostLabels: t.HostLabels, FabricLabels: t.FabricLabels,
			ConnectorLabels: t.ConnectorLabels,
		},
	}
}

// Load reads the list of workers at path once. The error names file, line and
// field of everything that is wrong with it.
func Load(path string, rules Rules) (*fleet.Snapshot, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return decode(data, path, rules)
}

func read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list of workers: %w; create it (kind %s) or point discovery.file.path at one", err, v1alpha1.KindWorkerList)
	}
	if err != nil {
		return nil, fmt.Errorf("list of workers: %w", err)
	}
	return data, nil
}

func decode(data []byte, path string, rules Rules) (*fleet.Snapshot, error) {
	list, err := v1alpha1.DecodeWorkers(data, path)
	if err != nil {
		return nil, err
	}
	snapshot, err := Snapshot(list, rules)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return snapshot, nil
}

// Snapshot turns a validated list into the pool's workers, one for each
// data-parallel rank. Workers that are not ready are left out. A worker without
// any of the role labels is aggregated; one whose role labels all hold unknown
// words is an error, since guessing its role would misroute silently.
func Snapshot(list *v1alpha1.WorkerList, rules Rules) (*fleet.Snapshot, error) {
	var workers []fleet.Worker
	var errs []error
	for i := range list.Workers {
		spec := &list.Workers[i]
		ranks, err := ranksOf(spec, rules)
		if err != nil {
			errs = append(errs, fmt.Errorf("worker %q: %w", spec.Name, err))
			continue
		}
		if spec.Ready == nil || *spec.Ready {
			workers = append(workers, ranks...)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return fleet.NewSnapshot(workers)
}

func ranksOf(spec *v1alpha1.WorkerSpec, rules Rules) ([]fleet.Worker, error) {
	addr, err := spec.IP()
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	role, err := roleOf(spec.Labels, rules.Roles)
	if err != nil {
		return nil, err
	}
	id := fleet.WorkerID(spec.Name)
	if spec.WorkerID != nil {
		id = uint64(*spec.WorkerID)
	}
	site := siteOf(spec, &rules.Sites)
	says := fleet.Say(fleet.Advertised{KVBlocks: spec.KVBlocks, MaxBatchedTokens: spec.MaxBatchedTokens})
	ranks := make([]fleet.Worker, spec.DataParallelSize)
	for rank := range ranks {
		port := spec.Ports[0]
		if len(spec.Ports) > 1 {
			port = spec.Ports[rank]
		}
		recovery := ""
		if len(spec.RecoveryEndpoints) > 0 {
			recovery = spec.RecoveryEndpoints[rank]
		}
		ranks[rank] = fleet.Worker{
			Site:     site,
			Key:      fleet.Key{ID: id, Rank: uint32(rank)},
			Name:     spec.Name,
			Endpoint: netip.AddrPortFrom(addr, uint16(port)),
			Role:     role,
			Recovery: recovery,
			Says:     says,
		}
	}
	return ranks, nil
}

// siteOf returns where a worker runs: as it is written down, else as its labels say.
func siteOf(spec *v1alpha1.WorkerSpec, rules *fleet.SiteRules) fleet.Site {
	s := &spec.Site
	written := fleet.Location{Zone: s.Zone, Rack: s.Rack, Host: s.Host, Fabric: s.Fabric, Connector: spec.Connector}
	return fleet.SiteOf(written.Or(rules.Locate(spec.Labels)))
}

func roleOf(labels map[string]string, rules fleet.RoleRules) (fleet.Role, error) {
	role, known := rules.Role(labels)
	if known {
		return role, nil
	}
	for _, key := range rules.Labels {
		if value, present := labels[key]; present {
			return role, fmt.Errorf("label %s: %q is no role; add the word to spec.roles or take the worker off the list", key, value)
		}
	}
	return fleet.Aggregated, nil
}
