package dynamo

import (
	"github.com/tinylib/msgp/msgp"

	"github.com/warmpath/warmpath/pkg/kvevent/internal/msgpack"
)

// KVMetrics is what a worker or a router says about the load of one rank of a
// worker (topic kv_metrics, dynamo.md 1.5). Each sender states only what it
// knows, so later messages replace earlier ones field by field. It is sent on
// change only: silence is not death.
type KVMetrics struct {
	WorkerID uint64
	Rank     uint32

	DecodeBlocks  Optional[uint64] // KV blocks of the requests that run
	PrefillTokens Optional[uint64] // prompt tokens placed and not yet computed
	UsedBlocks    Optional[uint64] // KV blocks that are in use, by the worker's own count
}

// metricsFields are the fields of kv_metrics, in their positional order.
var metricsFields = []string{
	"worker_id", "dp_rank", "active_decode_blocks", "active_prefill_tokens", "kv_used_blocks",
}

const (
	metricsWorker = iota
	metricsRank
	metricsDecode
	metricsPrefill
	metricsUsed
)

// readMetrics reads the payload of a kv_metrics message.
func (d *LoadDecoder) readMetrics(b []byte, m *KVMetrics) ([]byte, error) {
	l, b, err := msgpack.ReadLayout(b)
	if err != nil {
		return nil, err
	}
	hasWorker := false
	for i := range l.N {
		var f int
		if f, b, err = l.Field(b, i, metricsFields); err != nil {
			return nil, err
		}
		switch f {
		case metricsWorker:
			m.WorkerID, b, err = msgpack.ReadUint(b)
			hasWorker = true
		case metricsRank:
			m.Rank, b, err = readRank(b)
		case metricsDecode:
			m.DecodeBlocks, b, err = readOptional(b)
		case metricsPrefill:
			m.PrefillTokens, b, err = readOptional(b)
		case metricsUsed:
			m.UsedBlocks, b, err = readOptional(b)
		default:
			b, err = d.skipUnknown(b)
		}
		if err != nil {
			return nil, msgpack.FieldError(metricsFields, f, err)
		}
	}
	if !hasWorker {
		return nil, errNoWorker
	}
	return b, nil
}

// appendMetrics appends the payload of a kv_metrics message.
func appendMetrics(b []byte, m *KVMetrics) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(metricsFields)))
	b = msgp.AppendString(b, metricsFields[metricsWorker])
	b = msgp.AppendUint64(b, m.WorkerID)
	b = msgp.AppendString(b, metricsFields[metricsRank])
	b = msgp.AppendUint32(b, m.Rank)
	b = msgp.AppendString(b, metricsFields[metricsDecode])
	b = appendOptional(b, m.DecodeBlocks)
	b = msgp.AppendString(b, metricsFields[metricsPrefill])
	b = appendOptional(b, m.PrefillTokens)
	b = msgp.AppendString(b, metricsFields[metricsUsed])
	return appendOptional(b, m.UsedBlocks)
}
