package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/fleet"
)

// Picker is a running cmd/epp.
type Picker struct {
	ExtProc netip.AddrPort
	metrics string // base URL
}

// BuildPicker builds cmd/epp with the race detector and returns the binary.
func BuildPicker(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "epp")
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", binary, "github.com/warmpath/warmpath/cmd/epp")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the picker: %v\n%s", err, out)
	}
	return binary
}

// StartPicker runs the picker for the workers of a stack until the test ends,
// and returns when it is ready.
func StartPicker(t testing.TB, binary string, s *Stack, sidecars map[uint64]*Sidecar) *Picker {
	t.Helper()
	dir := t.TempDir()
	writeYAML(t, filepath.Join(dir, "workers.yaml"), workerList(s, sidecars))
	ports := [3]string{"127.0.0.1:" + freePort(t), "127.0.0.1:" + freePort(t), "127.0.0.1:" + freePort(t)}
	config := filepath.Join(dir, "config.yaml")
	writeYAML(t, config, map[string]any{
		"apiVersion": v1alpha1.APIVersion,
		"kind":       v1alpha1.KindEndpointPickerConfig,
		"server": map[string]any{
			"extProcAddress":  ports[0],
			"healthAddress":   ports[1],
			"metricsAddress":  ports[2],
			"recoveryAddress": "127.0.0.1:0",
			"drainTimeout":    "3s",
		},
		"discovery": map[string]any{"file": map[string]any{"path": "workers.yaml"}},
		"spec": map[string]any{
			"blockSize":  s.cfg.BlockSize,
			"eventPlane": map[string]any{"nats": map[string]any{"url": s.cfg.NATSURL, "namespace": s.cfg.Namespace}},
			// The frontend has no endpoint that turns text into token ids.
			"tokenizer": map[string]any{"disabled": true},
			"handoff":   map[string]any{"preset": v1alpha1.HandoffDynamo},
		},
	})
	p := &Picker{ExtProc: netip.MustParseAddrPort(ports[0]), metrics: "http://" + ports[2]}
	proc := startProcess(t, "epp", dir, os.Environ(), binary, "--config", config)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := poll(ctx, func() error {
		if !proc.running() {
			return fmt.Errorf("epp %w (%s)\n%s", errPart, proc.cmd.ProcessState, proc.logTail())
		}
		return p.get(ctx, "/readyz", nil)
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// workerList describes a stack as file discovery wants it. The roles come from
// the label that Dynamo's operator writes.
func workerList(s *Stack, sidecars map[uint64]*Sidecar) map[string]any {
	labels := map[fleet.Role]string{fleet.Aggregated: "worker", fleet.Prefill: "prefill", fleet.Decode: "decode"}
	var workers []map[string]any
	for _, w := range s.workers {
		addr := sidecars[w.id].Addr
		workers = append(workers, map[string]any{
			"name":             w.name,
			"address":          addr.Addr().String(),
			"ports":            []int{int(addr.Port())},
			"labels":           map[string]string{"nvidia.com/dynamo-component-type": labels[w.role]},
			"dataParallelSize": s.cfg.Ranks,
			// A string: YAML readers may round larger numbers.
			"workerID": strconv.FormatUint(w.id, 10),
		})
	}
	return map[string]any{
		"apiVersion": v1alpha1.APIVersion,
		"kind":       v1alpha1.KindWorkerList,
		"workers":    workers,
	}
}

func writeYAML(t testing.TB, path string, v any) {
	t.Helper()
	b, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Index returns what the picker's index says each worker rank holds on its
// device. Ranks that hold nothing are left out.
func (p *Picker) Index(ctx context.Context) (map[fleet.Key]map[block.Chain]bool, error) {
	var dump struct {
		Workers []struct {
			ID     uint64         `json:"id,string"`
			Rank   uint32         `json:"rank"`
			Blocks map[string]int `json:"blocks"`
			Chains []string       `json:"chains"`
		} `json:"workers"`
	}
	if err := p.get(ctx, "/debug/index?chains=true", &dump); err != nil {
		return nil, err
	}
	held := map[fleet.Key]map[block.Chain]bool{}
	for _, w := range dump.Workers {
		key := fleet.Key{ID: w.ID, Rank: w.Rank}
		if n := w.Blocks["device"]; n != len(w.Chains) {
			return nil, fmt.Errorf("index of %s counts %d device blocks and lists %d", key, n, len(w.Chains))
		}
		for _, text := range w.Chains {
			c, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("index of %s: chain: %w", key, err)
			}
			if held[key] == nil {
				held[key] = map[block.Chain]bool{}
			}
			held[key][block.Chain(c)] = true
		}
	}
	return held, nil
}

// get reads a page of the metrics port; v, unless nil, takes its JSON.
func (p *Picker) get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, resp.Status)
	}
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
