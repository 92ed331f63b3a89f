package recovery

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

const eventSource = `{"type":"EventSource","scope":{"kind":"endpoint","endpoint":{"namespace":"dynamo","component":"backend","name":"generate"}},` +
	`"topic":"kv-events","publisher_id":5067311055330018,"metadata":{"kv_state_endpoint":{"namespace":"dynamo","component":"backend","name":"generate"},` +
	`"worker":{"worker_id":18446744073709551615,"dp_rank":3},"publisher_id":5067311055330018,"recovery_target":{"component":"backend",` +
	`"endpoint":"worker_kv_query_source_1200b14b6b5ae2","namespace":"dynamo","instance_id":18446744073709551615,` +
	`"transport":{"tcp":"127.0.0.1:33711/ffffffffffffffff/dynamo/backend/worker_kv_query_source_1200b14b6b5ae2"},"request_plane_codec":"msgpack"}}}`

const oldInstance = `{"type":"Endpoint","component":"backend","endpoint":"worker_kv_indexer_query_dp12","namespace":"dynamo",` +
	`"instance_id":17599617780687370033,"transport":{"tcp":"[::1]:40777/f43e671ff084f731/worker_kv_indexer_query_dp12"},"device_type":"cuda"}`

func TestParseDiscovery(t *testing.T) {
	newTarget := Target{"127.0.0.1:33711", "ffffffffffffffff/dynamo/backend/worker_kv_query_source_1200b14b6b5ae2", Msgpack}
	oldTarget := Target{"[::1]:40777", "f43e671ff084f731/worker_kv_indexer_query_dp12", JSON}
	for _, c := range []struct {
		object string
		want   Source
		source bool // names the worker, too
	}{
		{eventSource, Source{newTarget, 1<<64 - 1, 3, 5067311055330018}, true},
		{oldInstance, Source{oldTarget, 17599617780687370033, 12, 0}, true},
		{`{"tcp":"[::1]:40777/f43e671ff084f731/worker_kv_indexer_query_dp12"}`, Source{Target: oldTarget}, false},
		{`{"tcp":"127.0.0.1:33711/ffffffffffffffff/dynamo/backend/worker_kv_query_source_1200b14b6b5ae2"}`, Source{Target: newTarget}, false},
		{strings.Replace(eventSource, `"msgpack"`, `"json"`, 1), Source{Target{newTarget.Address, newTarget.Path, JSON}, 1<<64 - 1, 3, 5067311055330018}, true},
		{strings.Replace(eventSource, `,"request_plane_codec":"msgpack"`, "", 1), Source{newTarget, 1<<64 - 1, 3, 5067311055330018}, true},
		{strings.Replace(oldInstance, "_dp12\"}", "_dp99999999999\"}", 1), Source{Target: Target{oldTarget.Address, "f43e671ff084f731/worker_kv_indexer_query_dp99999999999", JSON}}, false},
		{strings.Replace(eventSource, `"worker":{`, `"other":{`, 1), Source{Target: newTarget}, false},
	} {
		target, err := ParseTransport([]byte(c.object))
		if err != nil || target != c.want.Target {
			t.Errorf("%s: target %+v, %v; want %+v", c.object, target, err, c.want.Target)
		}
		source, err := ParseSource([]byte(c.object))
		if c.source && (err != nil || source != c.want) {
			t.Errorf("%s: source %+v, %v; want %+v", c.object, source, err, c.want)
		}
		if !c.source && err == nil {
			t.Errorf("%s: source %+v, want an error", c.object, source)
		}
		if err := target.Validate(); err != nil {
			t.Errorf("%s: %v", c.object, err)
		}
	}
}

func TestParseTransportRefuses(t *testing.T) {
	for object, words := range map[string]string{
		``:                               "discovery object",
		`[]`:                             "discovery object",
		`{`:                              "discovery object",
		`null`:                           "no recovery endpoint",
		`{}`:                             "no recovery endpoint",
		`{"tcp":7}`:                      "discovery object",
		`{"tcp":"x"}`:                    "target",
		`{"http":"http://a:1/v1/rpc/x"}`: "no recovery endpoint",
		`{"nats_tcp":"dynamo.backend"}`:  "no recovery endpoint",
		`{"tcp":"a:1"}`:                  "path",
		`{"tcp":"a:1/"}`:                 "path",
		`{"tcp":":1/x"}`:                 "not host:port",
		`{"tcp":"a:0/x"}`:                "not host:port",
		`{"tcp":"a:65536/x"}`:            "not host:port",
		`{"tcp":"a:http/x"}`:             "not host:port",
		`{"tcp":"a:1/x\ny"}`:             "path",
		`{"tcp":"a:1/` + strings.Repeat("x", maxPath+1) + `"}`:         "path",
		`{"transport":{"tcp":"a:1/x"},"request_plane_codec":"cbor"}`:   "cbor",
		`{"metadata":{"worker":{"worker_id":1,"dp_rank":0}}}`:          "no recovery endpoint",
		`{"metadata":{"worker":{"worker_id":-1,"dp_rank":0}}}`:         "discovery object",
		`{"instance_id":1.5,"transport":{"tcp":"a:1/x"}}`:              "discovery object",
		`{"metadata":{"recovery_target":{"transport":{"tcp":"a:1"}}}}`: "path",
	} {
		_, err := ParseTransport([]byte(object))
		wantError(t, err, words)
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	}
}

func TestRequestValidate(t *testing.T) {
	old := Target{"a:1", "1/" + oldEndpoint + "3", JSON}
	for _, c := range []struct {
		target Target
		rank   uint32
		words  string // empty: fine
	}{
		{old, 3, ""},
		{old, 0, "not that of rank 0"},
		{Target{"a:1", "1/" + oldEndpoint, JSON}, 0, "names no rank"},
		{Target{"a:1", "1/x", Msgpack}, 9, ""},
		{Target{"a:1", "1/x", 0}, 9, "no codec"},
		{Target{"a", "1/x", JSON}, 9, "target"},
		{Target{}, 0, "no codec"},
	} {
		err := Request{Rank: c.rank}.validate(c.target)
		if c.words == "" {
			must(t, err)
			continue
		}
		wantError(t, err, c.words)
	}
}

func TestConfig(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, c := range []struct {
		cfg   Config
		words string
	}{
		{Config{}, "log is not set"},
		{Config{Log: log, Listen: "7"}, "listen"},
		{Config{Log: log, Advertise: "warmpath.svc:7"}, "want an IP"},
		{Config{Log: log, Advertise: "10.0.0.1:0"}, "want an IP"},
		{Config{Log: log, Advertise: "0.0.0.0"}, "cannot dial"},
		{Config{Log: log, Advertise: "[::]:7"}, "cannot dial"},
		{Config{Log: log, Timeout: -1}, "negative"},
		{Config{Log: log, DialTimeout: -1}, "negative"},
		{Config{Log: log, DialBackTimeout: -1}, "negative"},
		{Config{Log: log, MaxQueries: -1}, "negative"},
		{Config{Log: log, MaxResponseBytes: -1}, "negative"},
	} {
		_, err := New(c.cfg)
		wantError(t, err, c.words)
	}
	c, err := New(Config{Log: log})
	must(t, err)
	if got := c.cfg; got.Timeout != time.Minute || got.MaxQueries != 16 || got.MaxDialBacks != 64 || got.MaxResponseBytes != 256<<20 {
		t.Errorf("defaults %+v", got)
	}
}

func TestCallback(t *testing.T) {
	all := &net.TCPAddr{IP: net.IPv6unspecified, Port: 7}
	lo := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}
	towards := &net.TCPAddr{IP: net.ParseIP("::ffff:10.1.2.3"), Port: 50000}
	local := &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 50000, Zone: "eth0"}
	for _, c := range []struct {
		advertise         string
		listener, towards net.Addr
		want              string
	}{
		{"", all, towards, "10.1.2.3:7"},
		{"", lo, towards, "127.0.0.1:7"},
		{"", all, local, "[fe80::1]:7"},
		{"192.0.2.1", all, towards, "192.0.2.1:7"},
		{"192.0.2.1:99", lo, towards, "192.0.2.1:99"},
		{"[2001:db8::1]:99", lo, towards, "[2001:db8::1]:99"},
		{"2001:db8::1", lo, towards, "[2001:db8::1]:7"},
	} {
		if got := (Config{Advertise: c.advertise}).callback(c.listener, c.towards); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
