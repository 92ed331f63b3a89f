package encoder_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/prompt"
	"github.com/warmpath/warmpath/pkg/prompt/chat"
	"github.com/warmpath/warmpath/pkg/prompt/encoder"
)

var layout16 = block.Layout{Size: 16}

func newEncoder(tb testing.TB, t encoder.Tokenizer, budget int64) *encoder.Encoder {
	tb.Helper()
	e, err := encoder.New(encoder.Config{Tokenizer: t, Template: &fakeTemplate{}, Layout: layout16, MemoBytes: budget, Random: 42})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// encode encodes a text and compares the result with the slow way.
func encode(tb testing.TB, e *encoder.Encoder, r *encoder.Result, text string) {
	tb.Helper()
	p := chat.Prompt{Text: text, Usable: len(text)}
	if err := e.EncodeText(r, p, block.NewSeed("", "")); err != nil {
		tb.Fatal(err)
	}
	check(tb, r, p, newFake().whole(text, false), layout16, block.NewSeed("", ""))
}

func message(who string, n, words int) string {
	var b strings.Builder
	b.WriteString("<start>" + who + "\n")
	for i := range words {
		fmt.Fprintf(&b, "%s%d.%d ", who, n, i)
	}
	return b.String() + "<end>!"
}

func TestConversationPaysForWhatIsNew(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	var r encoder.Result
	text := message("system", 0, 300)
	encode(t, e, &r, text+"<start>")
	for turn := range 20 {
		known := len(text)
		text += message("user", turn, 80)
		encode(t, e, &r, text+"<start>assistant")
		if r.ReusedBytes != known {
			t.Fatalf("turn %d: %d bytes reused of %d known", turn, r.ReusedBytes, known)
		}
	}
	s := e.Stats()
	if s.Hits != 20 || s.Misses != 1 || s.Evicted != 0 || s.Nodes != 22 {
		t.Errorf("%+v", s)
	}
	other := text[:len(message("system", 0, 300))] + message("other", 1, 90)
	encode(t, e, &r, other)
	if want := len(message("system", 0, 300)); r.ReusedBytes != want {
		t.Errorf("another conversation reused %d bytes, want the %d of the system message", r.ReusedBytes, want)
	}
	if got := e.Stats().BytesReused - s.BytesReused; got != uint64(r.ReusedBytes) {
		t.Errorf("%d bytes reused counted", got)
	}
}

func TestPromptWithoutCutIsKnownWhole(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	var r encoder.Result
	text := strings.Repeat("no special token here ", 100)
	encode(t, e, &r, text)
	encode(t, e, &r, text)
	if r.ReusedBytes != len(text) {
		t.Errorf("%d bytes reused of %d", r.ReusedBytes, len(text))
	}
	encode(t, e, &r, text+"more")
	if r.ReusedBytes != 0 {
		t.Errorf("%d bytes reused of a text that went on without a cut", r.ReusedBytes)
	}
}

// TestEndIsNoCut has a text end with what looks like an added token but is none:
// the longer token before it has taken its first character.
func TestEndIsNoCut(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	var r encoder.Result
	encode(t, e, &r, strings.Repeat("cut ", 200)+"<|> and more")
	text := strings.Repeat("not cut", 100) + "x<|>"
	encode(t, e, &r, text)
	encode(t, e, &r, text+"abc")
	if r.ReusedBytes != 0 {
		t.Errorf("%d bytes reused", r.ReusedBytes)
	}
}

func TestSharedBeginningOutlivesItsConversations(t *testing.T) {
	e := newEncoder(t, newFake(), 8000)
	var r encoder.Result
	system := message("system", 0, 100)
	for i := range 200 {
		encode(t, e, &r, system+message("user", i, 50)+"<start>assistant")
		if i > 0 && r.ReusedBytes != len(system) {
			t.Fatalf("conversation %d reused %d bytes", i, r.ReusedBytes)
		}
	}
	if s := e.Stats(); s.Evicted < 100 || s.Bytes > 8000 {
		t.Errorf("%+v", s)
	}
}

func TestSeedAndSpecialTokensKeepPromptsApart(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	text := message("user", 0, 100) + message("user", 1, 100)
	var r encoder.Result
	for round := range 2 {
		for _, salt := range []string{"", "a", "b"} {
			for _, special := range []bool{false, true} {
				p := chat.Prompt{Text: text, Usable: len(text), AddSpecial: special}
				seed := block.NewSeed("", salt)
				if err := e.EncodeText(&r, p, seed); err != nil {
					t.Fatal(err)
				}
				check(t, &r, p, newFake().whole(text, special), layout16, seed)
				if (r.ReusedBytes > 0) != (round == 1) {
					t.Errorf("round %d, salt %q, special %v: %d bytes reused", round, salt, special, r.ReusedBytes)
				}
			}
		}
	}
}

func TestGivenTokensAreTaken(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	r := encoder.Result{WantIDs: true}
	ids := make([]uint32, 100)
	for i := range ids {
		ids[i] = uint32(i)
	}
	seed := block.NewSeed("adapter", "")
	if err := e.Encode(&r, prompt.Completion, nil, &prompt.Body{Exact: true, Tokens: ids}, seed, time.Time{}); err != nil {
		t.Fatal(err)
	}
	hashes, chains := twin(ids, layout16, seed)
	if r.Tokens != 100 || !r.Whole || !slices.Equal(r.IDs, ids) || !slices.Equal(r.Hashes, hashes) || !slices.Equal(r.Chains, chains) {
		t.Errorf("%+v", r)
	}
}

// stuckTokenizer does not get on.
type stuckTokenizer struct{ fakeTokenizer }

func (*stuckTokenizer) AppendSegment(dst []uint32, _ string, from int) ([]uint32, int) {
	return append(dst, 1), from
}

func TestErrorsLeaveNothing(t *testing.T) {
	text := message("user", 0, 10)
	stuck := &stuckTokenizer{*newFake()}
	for name, c := range map[string]struct {
		tokenizer encoder.Tokenizer
		template  fakeTemplate
		want      error
	}{
		"template":  {newFake(), fakeTemplate{err: errRefused}, errRefused},
		"tokenizer": {stuck, fakeTemplate{prompt: chat.Prompt{Text: text, Usable: len(text)}}, encoder.ErrTokenizer},
		"media":     {stuck, fakeTemplate{prompt: chat.Prompt{Text: text, Usable: 5}}, encoder.ErrTokenizer},
	} {
		e, err := encoder.New(encoder.Config{Tokenizer: c.tokenizer, Template: &c.template, Layout: layout16, MemoBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r := encoder.Result{WantIDs: true}
		if err := e.Encode(&r, prompt.Chat, nil, &prompt.Body{}, 0, time.Time{}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if r.Tokens != 0 || len(r.Chains) != 0 || len(r.IDs) != 0 || r.Whole {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestWhatNewRefuses(t *testing.T) {
	good := encoder.Config{Tokenizer: newFake(), Template: &fakeTemplate{}, Layout: layout16}
	noTokenizer, noSize := good, good
	noTokenizer.Tokenizer, noSize.Layout.Size = nil, 0
	for _, c := range []encoder.Config{noTokenizer, noSize} {
		if e, err := encoder.New(c); err == nil || e != nil {
			t.Errorf("%+v: no error", c)
		}
	}
	e, err := encoder.New(good)
	if err != nil {
		t.Fatal(err)
	}
	var r encoder.Result
	encode(t, e, &r, message("user", 0, 100))
	if s := e.Stats(); s != (encoder.Stats{}) {
		t.Errorf("an encoder without memo counts %+v", s)
	}
}

func TestCompletionNeedsNoTemplate(t *testing.T) {
	e, err := encoder.New(encoder.Config{Tokenizer: newFake(), Layout: layout16})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"model":"m","prompt":["some \"text\" <end>!","other"]}`)
	var scanned prompt.Body
	if err := scanned.Scan(prompt.Completion, body); err != nil {
		t.Fatal(err)
	}
	r := encoder.Result{WantIDs: true}
	if err := e.Encode(&r, prompt.Completion, body, &scanned, 1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if want := newFake().whole(`some "text" <end>!`, true); !slices.Equal(r.IDs, want) {
		t.Errorf("%d, want %d", r.IDs, want)
	}
	body = []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	if err := scanned.Scan(prompt.Chat, body); err != nil {
		t.Fatal(err)
	}
	var refused *chat.Error
	if err := e.Encode(&r, prompt.Chat, body, &scanned, 1, time.Time{}); !errors.As(err, &refused) || refused.Code != chat.CodeTemplate || r.Tokens != 0 {
		t.Errorf("%v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	e := newEncoder(t, newFake(), 3<<20)
	small := newEncoder(t, newFake(), 3500)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			var r encoder.Result
			for i := range 60 {
				text := message("system", 0, 100)
				for turn := range 1 + i%5 {
					text += message("user", (worker+i)%4*10+turn, 40)
					encode(t, e, &r, text)
					encode(t, small, &r, text)
				}
			}
		})
	}
	wg.Wait()
	if s := e.Stats(); s.Hits == 0 || s.Evicted != 0 {
		t.Errorf("%+v", s)
	}
	if s := small.Stats(); s.Hits == 0 || s.Evicted == 0 || s.Bytes > 3500 {
		t.Errorf("%+v", s)
	}
}

// TestBytesAreWhatTheHeapHolds compares the memo's own account with the heap.
func TestBytesAreWhatTheHeapHolds(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const budget = 4 << 20
	f := newFake()
	before := heap()
	e := newEncoder(t, f, budget)
	var r encoder.Result
	for i := 0; e.Stats().Evicted == 0; i++ {
		text := message("user", i, 500)
		if err := e.EncodeText(&r, chat.Prompt{Text: text, Usable: len(text)}, 1); err != nil {
			t.Fatal(err)
		}
	}
	took := heap() - before - int64(r.Room())
	if s := e.Stats(); s.Bytes > budget || s.Bytes < budget/2 || took > s.Bytes*105/100 || took < s.Bytes*95/100 {
		t.Errorf("the heap grew by %d bytes, the memo counts %d of %d", took, s.Bytes, budget)
	}
	runtime.KeepAlive(e)
}

func TestRoomCountsWhatIsKept(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	var r encoder.Result
	if r.Room() != 0 {
		t.Errorf("%d bytes of nothing", r.Room())
	}
	r.WantIDs = true
	encode(t, e, &r, message("user", 0, 1000))
	if least := 8*len(r.Chains) + 8*len(r.Hashes) + 4*len(r.IDs); r.Room() < least {
		t.Errorf("%d bytes, there are at least %d", r.Room(), least)
	}
}

func TestKnownPromptAllocatesNothing(t *testing.T) {
	e := newEncoder(t, newFake(), 1<<20)
	text := message("system", 0, 300)
	for turn := range 20 {
		text += message("user", turn, 80)
	}
	var r encoder.Result
	encode(t, e, &r, text+strings.Repeat("tail ", 200))
	p := chat.Prompt{Text: text, Usable: len(text)}
	n := testing.AllocsPerRun(100, func() {
		if err := e.EncodeText(&r, p, block.NewSeed("", "")); err != nil || r.ReusedBytes != len(text) {
			t.Fatalf("%d bytes reused of %d, error %v", r.ReusedBytes, len(text), err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestUnsureSpecialTokens wants a prompt for which engines differ in special
// tokens refused, unless the tokenizer has none.
func TestUnsureSpecialTokens(t *testing.T) {
	f := newFake()
	var r encoder.Result
	p := chat.Prompt{Text: "<start>a", Usable: 8, AnySpecial: true}
	var e *chat.Error
	if err := newEncoder(t, f, 0).EncodeText(&r, p, 0); !errors.As(err, &e) || e.Code != chat.CodeRequest || r.Tokens != 0 {
		t.Errorf("%d tokens, %v", r.Tokens, err)
	}
	f.prefix, f.suffix = nil, nil
	if err := newEncoder(t, f, 0).EncodeText(&r, p, 0); err != nil || r.Tokens != len(f.whole(p.Text, true)) {
		t.Errorf("%d tokens, %v", r.Tokens, err)
	}
}
