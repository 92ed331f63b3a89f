package policy_test

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
)

// blockSize is the tokens per block of the trace.
const blockSize = 512

// request is one row of a trace.
type request struct {
	at            time.Duration // since the start of the trace
	input, output int           // tokens
	ids           []int32       // its blocks: equal ids mean equal prompts up to there
	chains        []block.Chain // the same, as pickers know them
}

// trace is a list of requests in the order of their arrival. Ids of blocks count
// from 0 in the order of their first appearance.
type trace struct {
	requests []request
	hashes   []block.Hash // content hashes by id
	parents  []int32      // the block before, by id; -1: none
}

// distinct is the number of blocks that differ.
func (t *trace) distinct() int { return len(t.parents) }

// references is the number of blocks in all requests.
func (t *trace) references() int {
	n := 0
	for i := range t.requests {
		n += len(t.requests[i].ids)
	}
	return n
}

// readTrace reads the form that testdata/README.md describes.
func readTrace(file string) (*trace, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	in, t := bufio.NewReader(unzipped), &trace{}
	var chains []block.Chain // by id
	for at := time.Duration(0); ; {
		var row [4]uint64
		for i := range row {
			if row[i], err = binary.ReadUvarint(in); err != nil {
				if i == 0 && errors.Is(err, io.EOF) {
					return t, nil
				}
				return nil, fmt.Errorf("%s: row %d: %w", file, len(t.requests), err)
			}
		}
		at += time.Duration(row[0]) * time.Millisecond
		r := request{at: at, input: int(row[1]), output: int(row[2])}
		r.ids = t.path(int32(row[3])-1, (r.input+blockSize-1)/blockSize)
		for _, id := range r.ids[len(r.ids)-(t.distinct()-len(chains)):] {
			hash := block.Hash(id + 1)
			if parent := t.parents[id]; parent < 0 {
				chains = append(chains, block.Root(hash))
			} else {
				chains = append(chains, chains[parent].Next(hash))
			}
		}
		for _, id := range r.ids {
			r.chains = append(r.chains, chains[id])
		}
		t.requests = append(t.requests, r)
	}
}

// path returns the n blocks of a prompt that leaves what was seen before after
// block last, -1 for at once. What follows last is new.
func (t *trace) path(last int32, n int) []int32 {
	var ids []int32
	for id := last; id >= 0; id = t.parents[id] {
		ids = append(ids, id)
	}
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	for len(ids) < n {
		id := int32(t.distinct())
		t.parents = append(t.parents, last)
		t.hashes = append(t.hashes, block.Hash(id+1))
		ids, last = append(ids, id), id
	}
	return ids
}

// conversation is the trace of Mooncake's paper.
func conversation(t testing.TB) *trace {
	t.Helper()
	c, err := readTrace("testdata/mooncake-conversation.gz")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The compact form holds every byte of the file it was made from.
func TestTraceIsTheOriginal(t *testing.T) {
	c := conversation(t)
	if n := len(c.requests); n != 12_031 {
		t.Errorf("%d rows, want 12031", n)
	}
	if n := c.references(); n != 288_500 {
		t.Errorf("%d block references, want 288500", n)
	}
	if n := c.distinct(); n != 182_790 {
		t.Errorf("%d distinct blocks, want 182790", n)
	}
	sum := sha256.New()
	for _, r := range c.requests {
		fmt.Fprintf(sum, "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": %d, \"hash_ids\": %s}\n",
			r.at.Milliseconds(), r.input, r.output, strings.ReplaceAll(fmt.Sprint(r.ids), " ", ", "))
	}
	const want = "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != want {
		t.Errorf("written out as it was published it has SHA-256 %s, want %s", got, want)
	}
}
