package interop

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/recovery"
)

// discovered returns the objects of one kind ("endpoints", "event_sources") in
// Dynamo's discovery, by their key without the kind.
func (s *Stack) discovered(kind string) (map[string][]byte, error) {
	if s.cfg.Pods != nil {
		return s.cfg.Pods.discovered(kind)
	}
	// In a folder, an object is a file; its name is the key, percent-encoded.
	folder := map[string]string{"endpoints": "instances"}[kind]
	if folder == "" {
		folder = kind
	}
	dir := filepath.Join(s.discoveryDir(), "v1", folder)
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	objects := map[string][]byte{}
	for _, f := range files {
		key, err := url.PathUnescape(f.Name())
		if err != nil {
			return nil, fmt.Errorf("discovery file %s: %w", f.Name(), err)
		}
		if objects[key], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// registered returns the instance ids in discovery that serve requests, ascending.
// The key of such an object is <namespace>/<component>/generate/<id in hex>.
func (s *Stack) registered() ([]uint64, error) {
	objects, err := s.discovered("endpoints")
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for key := range objects {
		parts := strings.Split(key, "/")
		if len(parts) != 4 || parts[2] != "generate" {
			continue
		}
		id, err := strconv.ParseUint(parts[3], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("in discovery: %s: %w", key, err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// RecoverySources returns where each worker rank answers recovery queries. Up to
// 1.3 that is an endpoint of a certain name, later an event source (dynamo-live.md
// section 3).
func (s *Stack) RecoverySources() (map[fleet.Key]recovery.Source, error) {
	objects, err := s.discovered("event_sources")
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		if objects, err = s.discovered("endpoints"); err != nil {
			return nil, err
		}
		maps.DeleteFunc(objects, func(key string, _ []byte) bool {
			return !strings.Contains(key, "/worker_kv_indexer_query_dp")
		})
	}
	sources := map[fleet.Key]recovery.Source{}
	for key, object := range objects {
		source, err := recovery.ParseSource(object)
		if err != nil {
			return nil, fmt.Errorf("in discovery: %s: %w\n%s", key, err, object)
		}
		sources[fleet.Key{ID: source.WorkerID, Rank: source.Rank}] = source
	}
	return sources, nil
}

// RecoveryEndpoints returns where a worker's ranks answer recovery queries, by
// rank, as discovery writes it ("tcp"):
// "127.0.0.1:1234/abc/worker_kv_indexer_query_dp0". A worker that publishes no
// events has none.
func (s *Stack) RecoveryEndpoints(worker uint64) ([]string, error) {
	sources, err := s.RecoverySources()
	if err != nil {
		return nil, err
	}
	var endpoints []string
	for rank := range uint32(s.cfg.Ranks) {
		if source, ok := sources[fleet.Key{ID: worker, Rank: rank}]; ok {
			endpoints = append(endpoints, source.Address+"/"+source.Path)
		}
	}
	return endpoints, nil
}
