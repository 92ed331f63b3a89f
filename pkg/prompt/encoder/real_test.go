package encoder_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// model is a real tokenizer with its template.
type model struct {
	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
}

// loadModel loads a model of [testmodels].
func loadModel(tb testing.TB, name string) model {
	tb.Helper()
	var m model
	var err error
	if m.tokenizer, err = tokenizer.Load(testmodels.Read(tb, name, "tokenizer.json")); err != nil {
		tb.Fatal(err)
	}
	var config struct {
		Template string `json:"chat_template"`
	}
	if err := json.Unmarshal(testmodels.Read(tb, name, "tokenizer_config.json"), &config); err != nil {
		tb.Fatal(err)
	}
	if m.template, err = chat.Compile(config.Template, chat.Options{}); err != nil {
		tb.Fatal(err)
	}
	return m
}

func (m model) encoder(tb testing.TB, budget int64) *encoder.Encoder {
	tb.Helper()
	e, err := encoder.New(encoder.Config{Tokenizer: m.tokenizer, Template: m.template, Layout: layout16, MemoBytes: budget, Random: 42})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// recorded are requests with the token ids and hashes that real Dynamo computed.
type recorded struct {
	BlockSize int `json:"block_size"`
	Requests  []struct {
		Kind           string          `json:"kind"`
		Request        json.RawMessage `json:"request"`
		TokenIDs       []uint32        `json:"token_ids"`
		BlockHashes    []block.Hash    `json:"block_hashes"`
		SequenceHashes []block.Chain   `json:"sequence_hashes"`

		Salt                 string        `json:"salt"`
		SaltedBlockHashes    []block.Hash  `json:"salted_block_hashes_1_4_on"`
		SaltedSequenceHashes []block.Chain `json:"salted_sequence_hashes_1_4_on"`
	} `json:"requests"`
}

// withTokens adds the token ids to a body, as the client sent them.
func withTokens(tb testing.TB, body []byte, ids []uint32) []byte {
	tb.Helper()
	list, err := json.Marshal(ids)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Concat([]byte(`{"prompt":`), list, []byte(","), body[1:])
}

func TestRecordedRequests(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "captures", "dynamo", "requests.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file recorded
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	e := loadModel(t, "qwen3").encoder(t, 1<<20)
	kinds := map[string]int{}
	for round := range 2 {
		for i, req := range file.Requests {
			kinds[req.Kind]++
			kind, body := prompt.Completion, []byte(req.Request)
			switch req.Kind {
			case "chat":
				kind = prompt.Chat
			case "tokens":
				body = withTokens(t, body, req.TokenIDs)
			}
			var scanned prompt.Body
			scanned.Decode = true
			if err := scanned.Scan(kind, body); err != nil {
				t.Fatal(err)
			}
			encode := func(seed block.Seed, hashes []block.Hash, chains []block.Chain) {
				t.Helper()
				r := encoder.Result{WantIDs: true}
				if err := e.Encode(&r, kind, body, &scanned, seed, time.Time{}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(r.IDs, req.TokenIDs) || r.Tokens != len(req.TokenIDs) || !r.Whole {
					t.Errorf("round %d, request %d: %d tokens %d, want %d", round, i, r.Tokens, r.IDs, req.TokenIDs)
				}
				if !slices.Equal(r.Hashes, hashes) || !slices.Equal(r.Chains, chains) {
					t.Errorf("round %d, request %d: hashes %d, chains %d; want %d, %d", round, i, r.Hashes, r.Chains, hashes, chains)
				}
			}
			encode(block.NewSeed("", ""), req.BlockHashes, req.SequenceHashes)
			if req.Salt != "" {
				encode(block.NewSeed("", req.Salt), req.SaltedBlockHashes, req.SaltedSequenceHashes)
			}
		}
	}
	if file.BlockSize != layout16.Size || kinds["chat"] != 18 || kinds["text"] != 2 || kinds["tokens"] != 40 {
		t.Errorf("blocks of %d, requests %v", file.BlockSize, kinds)
	}
	if s := e.Stats(); s.Hits < 9 {
		t.Errorf("%+v", s)
	}
}

func TestOnePromptMakesFewNodes(t *testing.T) {
	e := loadModel(t, "qwen3").encoder(t, 64<<20)
	var r encoder.Result
	text := strings.Repeat("<|im_start|>x", 1<<20/13)
	p := chat.Prompt{Text: text, Usable: len(text)}
	for _, known := range []bool{false, true} {
		if err := e.EncodeText(&r, p, 1); err != nil {
			t.Fatal(err)
		}
		if got := r.ReusedBytes > len(text)-len(text)/200; got != known {
			t.Errorf("%d bytes reused of %d", r.ReusedBytes, len(text))
		}
	}
	if n := e.Stats().Nodes; n < 500 || n > 1000 {
		t.Errorf("%d nodes for %d bytes", n, len(text))
	}
}
