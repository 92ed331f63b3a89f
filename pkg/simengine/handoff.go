package simengine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// Headers in which a request names its prefill worker (engines.md 3.2,
// dynamo.md 5.2), newer spelling first.
const headerPrefiller = "x-prefiller-host-port"

var (
	prefillIDHeaders   = []string{"x-dynamo-prefill-instance-id", "x-prefill-instance-id"}
	prefillRankHeaders = []string{"x-dynamo-prefill-dp-rank", "x-prefill-dp-rank"}
)

// Headers of answers: who answered, who computed the prompt, who decoded.
const (
	headerWorker        = "x-sim-worker"
	headerPrefillWorker = "x-sim-prefill-worker"
	headerDecodeWorker  = "x-sim-decode-worker"
)

// sideChannelPort is the first port of vLLM's NIXL side channel. Nothing listens
// on it here.
const sideChannelPort = 5600

// transferParams is vLLM's kv_transfer_params of the NIXL connector in pull mode
// (engines.md 3.1).
type transferParams struct {
	DoRemotePrefill bool            `json:"do_remote_prefill"`
	DoRemoteDecode  bool            `json:"do_remote_decode"`
	RemoteBlockIDs  json.RawMessage `json:"remote_block_ids"` // one list per KV-cache group
	RemoteEngineID  *string         `json:"remote_engine_id"`
	RemoteRequestID *string         `json:"remote_request_id,omitempty"`
	RemoteHost      *string         `json:"remote_host"`
	RemotePort      *int            `json:"remote_port"`

	TPSize                 int     `json:"tp_size,omitempty"`
	DCPSize                int     `json:"dcp_size,omitempty"`
	PPSize                 int     `json:"pp_size,omitempty"`
	RemoteNumTokens        int     `json:"remote_num_tokens,omitempty"`
	RemoteBlocksExpiryTime float64 `json:"remote_blocks_expiry_time,omitempty"`
	TransferMode           string  `json:"transfer_mode,omitempty"`
}

// complete reports whether a decode worker can fetch blocks with these
// parameters. With less vLLM only warns and transfers nothing.
func (p *transferParams) complete() bool {
	return p.DoRemotePrefill && p.RemoteEngineID != nil && p.RemoteRequestID != nil && p.RemoteHost != nil && p.RemotePort != nil
}

// leg is a prefill that another worker has done.
type leg struct {
	worker string // its name, when it says so
	cached int    // prompt tokens it had in its cache; -1 when not known
}

// remotePrefill has the prompt computed by the prefill worker that the request
// names. It returns nil when none is named: the prompt is computed here.
func (e *Engine) remotePrefill(ctx context.Context, header http.Header, req *request) (*leg, *apiError) {
	if e.cfg.Role == fleet.Prefill || req.transfer.DoRemoteDecode {
		return nil, nil
	}
	addr, apiErr := e.prefillAddr(header)
	if apiErr != nil {
		return nil, apiErr
	}
	if addr == "" {
		if req.transfer.complete() { // a sidecar in front of this worker did it
			return &leg{cached: -1}, nil
		}
		return nil, nil
	}
	body, err := prefillBody(req.body)
	if err != nil {
		return nil, badRequest("", "the body is not a JSON object: %s", err)
	}
	answer, apiErr := e.callPrefill(ctx, addr, header, req, body)
	if apiErr != nil && retriable(apiErr.status) && ctx.Err() == nil {
		answer, apiErr = e.callPrefill(ctx, addr, header, req, body)
	}
	if apiErr != nil {
		e.stats.prefillFailures.Add(1)
		return nil, apiErr
	}
	e.stats.handshakesDecode.Add(1)
	return answer, nil
}

func retriable(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// prefillAddr returns the host:port of the prefill worker named in the headers,
// or nothing when none is.
func (e *Engine) prefillAddr(h http.Header) (string, *apiError) {
	if addr := h.Get(headerPrefiller); addr != "" {
		e.stats.sawPrefillHeader(headerPrefiller + ": " + addr)
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return "", badRequest(headerPrefiller, "%s: %q is not a host:port", headerPrefiller, addr)
		}
		return addr, nil
	}
	name, value := firstHeader(h, prefillIDHeaders)
	if name == "" {
		return "", nil
	}
	e.stats.sawPrefillHeader(name + ": " + value)
	id, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return "", badRequest(name, "%s: %q is not a worker id", name, value)
	}
	var rank uint64
	if rankName, rankValue := firstHeader(h, prefillRankHeaders); rankName != "" {
		if rank, err = strconv.ParseUint(rankValue, 10, 32); err != nil {
			return "", badRequest(rankName, "%s: %q is not a rank", rankName, rankValue)
		}
		if rank == math.MaxUint32 { // Dynamo's "not set"
			rank = 0
		}
	}
	if e.cfg.Resolve != nil {
		if addr, ok := e.cfg.Resolve(id, uint32(rank)); ok {
			return addr, nil
		}
	}
	return "", badRequest(name, "%s: no prefill worker has id %d and rank %d", name, id, rank)
}

func firstHeader(h http.Header, names []string) (name, value string) {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return n, v
		}
	}
	return "", ""
}

// prefillBody turns a client's body into that of the prefill leg (engines.md 3.1
// step 1). All other fields stay as they are, byte for byte.
func prefillBody(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	delete(fields, "stream_options")
	fields["stream"] = json.RawMessage("false")
	fields["max_tokens"] = json.RawMessage("1")
	if _, ok := fields["max_completion_tokens"]; ok {
		fields["max_completion_tokens"] = json.RawMessage("1")
	}
	params, err := json.Marshal(transferParams{DoRemoteDecode: true})
	if err != nil {
		return nil, err
	}
	fields["kv_transfer_params"] = params
	return json.Marshal(fields)
}

// passedHeaders are the client's headers that the prefill leg carries too.
var passedHeaders = []string{"Authorization", "Traceparent", "Tracestate"}

func (e *Engine) callPrefill(ctx context.Context, addr string, header http.Header, req *request, body []byte) (*leg, *apiError) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+req.endpoint.path(), bytes.NewReader(body))
	if err != nil {
		return nil, badRequest(headerPrefiller, "prefill worker %s: %s", addr, err)
	}
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("X-Request-Id", req.id)
	for _, name := range passedHeaders {
		if v := header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	resp, err := e.client.Do(out)
	if err != nil {
		return nil, badGateway("prefill worker %s: %s", addr, err)
	}
	defer func() { _ = resp.Body.Close() }() // only reads: nothing is lost
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, badGateway("answer of prefill worker %s: %s", addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		apiErr := &apiError{
			status: resp.StatusCode, kind: "PrefillError",
			message: fmt.Sprintf("prefill worker %s answered %d", addr, resp.StatusCode),
		}
		if json.Valid(data) {
			apiErr.raw = data
		}
		return nil, apiErr
	}
	return e.readLeg(addr, resp.Header.Get(headerWorker), data)
}

func badGateway(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadGateway, kind: "PrefillError", message: fmt.Sprintf(format, args...)}
}

func (e *Engine) readLeg(addr, worker string, data []byte) (*leg, *apiError) {
	var answer struct {
		Usage            usage           `json:"usage"`
		KVTransferParams *transferParams `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, badGateway("answer of prefill worker %s: %s", addr, err)
	}
	if p := answer.KVTransferParams; p == nil || !p.complete() {
		return nil, badGateway("prefill worker %s: its answer has no kv_transfer_params to fetch blocks with", addr)
	}
	l := &leg{worker: worker}
	if d := answer.Usage.PromptTokensDetails; d != nil {
		l.cached = d.CachedTokens
	}
	return l, nil
}

// offer describes the blocks of a finished prefill to the decode worker.
func (e *Engine) offer(req *request, slots []int) *transferParams {
	if len(req.tokens)%e.cfg.BlockSize != 0 { // the partial last block, which the cache does not count
		slots = append(slots, e.cfg.Blocks)
	}
	ids, _ := json.Marshal([][]int{slots})    // numbers always marshal
	host, _, _ := net.SplitHostPort(e.Addr()) // a listener's address always splits
	port := sideChannelPort + int(e.cfg.Rank)
	return &transferParams{
		DoRemotePrefill:        true,
		RemoteBlockIDs:         ids,
		RemoteEngineID:         &e.engineID,
		RemoteRequestID:        &req.id,
		RemoteHost:             &host,
		RemotePort:             &port,
		TPSize:                 1,
		DCPSize:                1,
		PPSize:                 1,
		RemoteNumTokens:        len(req.tokens),
		RemoteBlocksExpiryTime: float64(e.cfg.Now().Unix() + leaseSeconds),
		TransferMode:           "pull",
	}
}

// leaseSeconds is vLLM's default lease of the blocks of a finished prefill.
const leaseSeconds = 30
