package app

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/warmpath/warmpath/pkg/kvevent/dynamo"
)

// TestSecondReplica: a replica that starts later is ready with what the first one
// knows, and picks as that does: from the other replica, or from a stream whose
// beginning nobody else has to remember.
func TestSecondReplica(t *testing.T) {
	for name, jetStream := range map[string]bool{"from the other replica": false, "from the stream": true} {
		t.Run(name, func(t *testing.T) {
			options := server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}
			if jetStream {
				options.JetStream, options.StoreDir = true, t.TempDir()
			}
			ns := startServer(t, &options)
			spec := fmt.Sprintf("tokenizer: {disabled: true}\neventPlane: {nats: {url: %q, namespace: ns}, jetStream: {enabled: %v, maxBytes: 16777216}, warmUp: {timeout: 10m}}",
				ns.ClientURL(), jetStream)
			first := start(t, spec, prefillA+prefillB+decodeA)
			first.waitReady(t)
			if !jetStream {
				first.waitSubscribed(t, ns)
			}
			ids, body := tokens(1, 12)
			publish(t, ns, dynamo.Gen14, "prefill", stored(12, 1, ids))
			held := `warmpath_worker_blocks{rank="0",tier="device",worker_id="12"}`
			first.waitMetric(t, held, 3)
			if jetStream {
				first.shutdown(t) // nobody else knows
			}

			second := start(t, spec, prefillA+prefillB+decodeA)
			second.waitReady(t)
			if got := second.metric(t, held); got != 3 {
				t.Errorf("ready with %v blocks, want 3", got)
			}
			if set := second.ask(t, completions, body); set["x-prefiller-host-port"] != "10.0.1.2:8000" {
				t.Errorf("picked %v, not the holder", set)
			}
			if got := second.metric(t, `warmpath_worker_state{rank="0",state="synced",worker_id="12"}`); got != 1 {
				t.Errorf("state synced: %v", got)
			}
		})
	}
}

// TestWarmUpShows: a replica whose workers do not answer says what it waits for, and
// one whose time is over is ready.
func TestWarmUpShows(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ns := startNATS(t, 0)
	worker := fmt.Sprintf("- {name: agg-a, address: 10.0.3.1, ports: [8000], workerID: \"31\", recoveryEndpoints: [\"%s/1f/worker_kv_indexer_query_dp0\"]}\n", silent.Addr())
	spec := func(timeout string) string {
		return "tokenizer: {disabled: true}\neventPlane: {nats: {url: \"" + ns.ClientURL() + "\"}, warmUp: {timeout: " + timeout + "}}"
	}
	r := start(t, spec("10m"), worker)
	want := "not ready:\nevent plane: asking workers what they hold: 1 of 1 are left\n"
	r.eventually(t, "/readyz names the worker", func() bool {
		status, text := r.get(t, "/readyz")
		return status == http.StatusServiceUnavailable && text == want
	})
	r = start(t, spec("100ms"), worker)
	r.waitReady(t)
	r.eventually(t, "the log says that it took too long", func() bool { return r.log.count("warming up took too long") > 0 })
	if n := r.log.count("warming up took too long"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}
