package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/warmpath/warmpath/pkg/fleet"
)

// workerLogFilter is the DYN_LOG value under which a worker logs every request
// it takes, and little else.
const workerLogFilter = "warn,dynamo_runtime::pipeline::network::ingress::push_handler=info"

// receivedMessage is what a worker logs, in every version tested, when a
// request reaches it; the fields of logLine come with it.
const receivedMessage = "request received"

type logLine struct {
	Message    string `json:"message"`
	RequestID  string `json:"request_id"`
	InstanceID string `json:"instance_id"` // decimal
	Endpoint   string `json:"endpoint"`
}

// Run is one worker's part in a request.
type Run struct {
	Role   fleet.Role
	Worker uint64 // instance id
}

// requestsIn returns the ids of the requests that a worker has logged, in
// order. A line that is being written is left for the next call.
func requestsIn(path string, instance uint64) ([]string, error) {
	log, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	log = log[:bytes.LastIndexByte(log, '\n')+1]
	var ids []string
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l logLine
		// Lines that are not JSON come from Python and are of no interest.
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Message != receivedMessage || l.Endpoint != "generate" {
			continue
		}
		if l.InstanceID != fmt.Sprint(instance) {
			return nil, fmt.Errorf("%s: worker %d logs a request for instance %s", path, instance, l.InstanceID)
		}
		ids = append(ids, l.RequestID)
	}
	return ids, lines.Err()
}

// RanOn returns the workers that took a request, as told by their own logs: in
// a split pool the prefill worker and the decode worker, in that order. The
// request's id is the UUID in x-dynamo-request-id. A worker logs a request
// before it answers, so after the reply nothing is missing.
func (s *Stack) RanOn(requestID string) ([]Run, error) {
	var runs []Run
	for _, w := range s.workers {
		ids, err := requestsIn(w.logPath, w.id)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if id == requestID {
				runs = append(runs, Run{Role: w.role, Worker: w.id})
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return int(a.Role) - int(b.Role) })
	return runs, nil
}
