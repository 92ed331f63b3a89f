package eventplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// noise is bytes that do not repeat.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}

// archiveRig is an archive whose clock the test sets.
type archiveRig struct {
	*archive
	offset atomic.Int64
}

func openTestArchive(t *testing.T, conn *nats.Conn, cfg archiveConfig) *archiveRig {
	t.Helper()
	a, err := openArchive(t.Context(), jetStreamOf(t, conn), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &archiveRig{archive: a}
	a.now = func() time.Time { return time.Now().Add(time.Duration(r.offset.Load())) }
	return r
}

func archiveCfg() archiveConfig {
	return archiveConfig{Bucket: archiveBucket("kv"), Storage: jetstream.FileStorage, TTL: time.Hour, Every: time.Minute}
}

// later lets so much time pass that a state may be replaced, once.
func (r *archiveRig) later() { r.offset.Store(int64(2 * time.Minute)) }

func (r *archiveRig) mustSave(t *testing.T, state []byte, want bool) {
	t.Helper()
	if saved, err := r.save(t.Context(), stateTail(state)); err != nil || saved != want {
		t.Fatalf("saved: %v, %v; want %v", saved, err, want)
	}
	r.offset.Store(0)
}

func (r *archiveRig) mustLoad(t *testing.T, want []byte) {
	t.Helper()
	var got []byte
	saved, err := r.load(t.Context(), func(in io.Reader) (err error) {
		got, err = io.ReadAll(in)
		return err
	})
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("loaded %d bytes, want %d; %v", len(got), len(want), err)
	}
	if age := time.Since(saved); age < -time.Minute || age > time.Minute {
		t.Errorf("saved at %s", saved)
	}
}

// TestArchive: what is saved is loaded, and only once in a while replaced.
func TestArchive(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	a := openTestArchive(t, persistent(t, address), archiveCfg())
	if _, err := a.load(t.Context(), nil); !errors.Is(err, errArchiveEmpty) {
		t.Fatalf("load of nothing: %v", err)
	}
	var states [5][]byte
	for i, size := range []int{3<<20 + 5, 0, 1, archiveChunk, 1 << 20} {
		states[i] = noise(uint64(i), size)
		a.mustSave(t, states[i], true)
		a.mustLoad(t, states[i])
		a.mustSave(t, []byte("too early"), false)
		a.mustLoad(t, states[i])
		a.later()
	}
	// Of the states, the last two are there.
	kept, err := a.kept(t.Context(), a.chunkSubject(">"))
	if err != nil || len(kept) != 3 { // and the claim
		t.Errorf("%v is left, %v", kept, err)
	}
	// Any tool can read it.
	got, err := a.store.GetBytes(t.Context(), archiveObject)
	if err != nil || !bytes.Equal(got, states[4]) {
		t.Errorf("the library reads %d bytes, %v", len(got), err)
	}
}

// TestArchiveTakesTurns: of many replicas that want to save, one does.
func TestArchiveTakesTurns(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	for round := range 3 {
		cfg := archiveCfg()
		cfg.Bucket = fmt.Sprintf("round%d", round)
		var wg sync.WaitGroup
		var saved atomic.Int32
		for i := range 8 {
			a := openTestArchive(t, conn, cfg)
			wg.Go(func() {
				ok, err := a.save(t.Context(), stateTail(noise(uint64(i), 1<<20)))
				if err != nil {
					t.Error(err)
				}
				if ok {
					saved.Add(1)
				}
			})
		}
		wg.Wait()
		if n := saved.Load(); n != 1 {
			t.Errorf("round %d: %d replicas saved, want 1", round, n)
		}
	}
}

// TestArchiveThatFails leaves the old state, and the next save is not kept waiting.
func TestArchiveThatFails(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	cfg := archiveCfg()
	cfg.MaxBytes = 4 << 20
	a := openTestArchive(t, persistent(t, address), cfg)
	old := noise(1, 1<<20)
	a.mustSave(t, old, true)
	a.later()
	broken := errors.New("broken")
	if _, err := a.save(t.Context(), func(w io.Writer) error {
		_, err := w.Write(noise(2, 1<<20))
		return errors.Join(err, broken)
	}); !errors.Is(err, broken) {
		t.Fatalf("a state that breaks off: %v", err)
	}
	a.mustLoad(t, old)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := a.save(ctx, func(w io.Writer) error {
		cancel()
		_, err := w.Write(noise(2, 1<<20))
		return err
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a save that is cancelled: %v", err)
	}
	a.mustLoad(t, old)
	if _, err := a.save(t.Context(), stateTail(noise(2, 8<<20))); !errors.Is(err, errStreamRefused) {
		t.Fatalf("a state that is too large: %v", err)
	}
	a.mustLoad(t, old)
	if kept, err := a.kept(t.Context(), a.chunkSubject(">")); err != nil || len(kept) != 1 { // the old one
		t.Errorf("%v is left, %v", kept, err)
	}
	next := noise(3, 1<<20)
	a.mustSave(t, next, true)
	a.mustLoad(t, next)
}

// TestArchiveMakesRoom: what a replica left behind that died while it saved, or that
// arrived after it had given up, keeps nobody from saving.
func TestArchiveMakesRoom(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	cfg := archiveCfg()
	cfg.MaxBytes = 4 << 20
	a := openTestArchive(t, persistent(t, address), cfg)
	old := noise(1, 1<<20)
	a.mustSave(t, old, true)
	for _, size := range []int{archiveChunk, 1} { // to the last byte
		for full := false; !full; {
			_, err := a.js.Publish(t.Context(), a.chunkSubject(fmt.Sprintf("dead%d", size)), noise(2, size))
			if full = errors.Is(reasonOf(err), errStreamRefused); err != nil && !full {
				t.Fatal(err)
			}
		}
	}
	a.mustLoad(t, old)
	a.later()
	next := noise(3, 1<<20)
	a.mustSave(t, next, true)
	a.mustLoad(t, next)
}

// TestArchiveLostTurn: who was so slow that another one began does not get between.
func TestArchiveLostTurn(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	conn := persistent(t, address)
	slow, fast := openTestArchive(t, conn, archiveCfg()), openTestArchive(t, conn, archiveCfg())
	state := noise(1, 1<<20)
	if _, err := slow.save(t.Context(), func(w io.Writer) error {
		fast.later()
		fast.mustSave(t, state, true)
		_, err := w.Write([]byte("late"))
		return err
	}); !errors.Is(err, errArchiveClaimed) {
		t.Fatalf("%v, want %v", err, errArchiveClaimed)
	}
	fast.mustLoad(t, state)
	fast.mustSave(t, nil, false) // its claim stands

	// It leaves the others twice the time, until it comes to an end itself.
	slow.later()
	slow.mustSave(t, nil, false)
	for range 2 {
		slow.offset.Store(int64(3 * time.Minute))
		slow.mustSave(t, state, true)
	}
	slow.later()
	slow.mustSave(t, state, true)
}

// TestArchiveUnderTheReader: a state that is replaced once can be read to its end,
// and one that is gone makes the reader start over.
func TestArchiveUnderTheReader(t *testing.T) {
	for _, times := range []int{1, 2} {
		address, _, _ := startJetStream(t, anyPort, t.TempDir())
		a := openTestArchive(t, persistent(t, address), archiveCfg())
		const size = 4 * archiveAhead * archiveChunk // more than comes at once
		last := noise(0, size)
		a.mustSave(t, last, true)
		calls := 0
		var got []byte
		if _, err := a.load(t.Context(), func(in io.Reader) error {
			calls++
			head := make([]byte, 10)
			if _, err := io.ReadFull(in, head); err != nil {
				return err
			}
			for i := range times {
				if calls > 1 {
					break
				}
				a.later()
				next := noise(uint64(i+1), size)
				a.mustSave(t, next, true)
				if times == 2 {
					last = next
				}
			}
			rest, err := io.ReadAll(in)
			got = slices.Concat(head, rest)
			return err
		}); err != nil {
			t.Fatalf("replaced %d times: %v", times, err)
		}
		if calls != times || !bytes.Equal(got, last) {
			t.Errorf("replaced %d times: read %d times, equal: %v", times, calls, bytes.Equal(got, last))
		}
	}
}

// TestDamagedArchive: any damage is an error.
func TestDamagedArchive(t *testing.T) {
	address, _, _ := startJetStream(t, anyPort, t.TempDir())
	a := openTestArchive(t, persistent(t, address), archiveCfg())
	state := noise(1, 5*archiveChunk)
	all := func(in io.Reader) error {
		_, err := io.Copy(io.Discard, in)
		return err
	}
	for name, c := range map[string]struct {
		damage func(*jetstream.ObjectInfo)
		read   func(io.Reader) error
		want   error
	}{
		"digest": {damage: func(i *jetstream.ObjectInfo) { i.Digest = "SHA-256=AAAA" }, read: all, want: errArchiveDamaged},
		"size":   {damage: func(i *jetstream.ObjectInfo) { i.Size++ }, read: all, want: errArchiveDamaged},
		"short":  {damage: func(i *jetstream.ObjectInfo) { i.Chunks-- }, read: all, want: errArchiveDamaged},
		"long":   {damage: func(i *jetstream.ObjectInfo) { i.Chunks++ }, read: all, want: errArchiveDamaged},
		"hole": {damage: func(*jetstream.ObjectInfo) {
			info, err := a.stream.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.stream.DeleteMsg(t.Context(), info.State.LastSeq-2); err != nil {
				t.Fatal(err)
			}
		}, read: all, want: errArchiveDamaged},
		"none": {damage: func(*jetstream.ObjectInfo) {}, read: all},
		"the reader's own": {
			damage: func(*jetstream.ObjectInfo) {}, want: io.ErrNoProgress,
			read: func(in io.Reader) error { return errors.Join(all(in), io.ErrNoProgress) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			a.later()
			a.mustSave(t, state, true)
			info, err := a.lookUp(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.damage(info)
			meta, err := json.Marshal(info)
			if err != nil {
				t.Fatal(err)
			}
			m := nats.NewMsg(a.metaSubject())
			m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
			m.Data = meta
			if _, err := a.js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if _, err := a.load(t.Context(), c.read); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	a.later()
	a.mustSave(t, state, true)
	if _, err := a.load(t.Context(), func(io.Reader) error { return nil }); err == nil {
		t.Error("a reader that does not read to the end: no error")
	}
}

func TestArchiveWithoutJetStream(t *testing.T) {
	address, _ := startNATS(t, anyPort)
	if _, err := openArchive(t.Context(), jetStreamOf(t, persistent(t, address)), archiveCfg()); !errors.Is(err, errStreamOff) {
		t.Errorf("%v, want %v", err, errStreamOff)
	}
}

// TestArchivePermissions: who may not create, may use what is there; who may
// neither, hears it.
func TestArchivePermissions(t *testing.T) {
	srv := startSecure(t, freePort(t), fmt.Sprintf(`jetstream: {store_dir: %q}
authorization: { users: [
  {user: all, password: x},
  {user: none, password: x, permissions: {publish: {allow: ["other"]}}},
  {user: some, password: x, permissions: {publish: {deny: ["$JS.API.STREAM.CREATE.>", "$JS.API.STREAM.UPDATE.>"]}}},
]}`, t.TempDir()))
	cfg := archiveCfg()
	open := func(user string) (*archiveRig, error) {
		js := jetStreamOf(t, persistent(t, srv.address(), nats.UserInfo(user, "x")))
		a, err := openArchive(t.Context(), js, cfg)
		return &archiveRig{archive: a}, err
	}
	for _, user := range []string{"none", "some"} {
		if _, err := open(user); !errors.Is(err, errStreamDenied) {
			t.Errorf("%s, without a bucket: %v, want %v", user, err, errStreamDenied)
		}
	}
	if _, err := open("all"); err != nil {
		t.Fatal(err)
	}
	if a, err := open("some"); err != nil || a.note != "" {
		t.Fatalf("with a bucket: %v, %q", err, a.note)
	}
	cfg.TTL *= 2
	a, err := open("some")
	if err != nil || a.note == "" {
		t.Fatalf("with a bucket of other limits: %v", err)
	}
	a.mustSave(t, []byte("state"), true)
	a.mustLoad(t, []byte("state"))
	if _, err := open("none"); !errors.Is(err, errStreamDenied) {
		t.Errorf("%v, want %v", err, errStreamDenied)
	}
	if a, err := open("all"); err != nil || a.note != "" || !a.asConfigured() {
		t.Errorf("%v", err)
	}
}

func TestArchiveBucket(t *testing.T) {
	if got := archiveBucket("kv events.é-1_A"); got != "kv-events---1_A-state" {
		t.Error(got)
	}
}

func BenchmarkArchive(b *testing.B) {
	address, _, _ := startJetStream(b, anyPort, b.TempDir())
	cfg := archiveCfg()
	cfg.Every = 0
	a, err := openArchive(b.Context(), jetStreamOf(b, persistent(b, address)), cfg)
	if err != nil {
		b.Fatal(err)
	}
	state := noise(1, 20<<20)
	b.Run("save", func(b *testing.B) {
		b.SetBytes(int64(len(state)))
		for b.Loop() {
			if saved, err := a.save(b.Context(), stateTail(state)); err != nil || !saved {
				b.Fatal(saved, err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		b.SetBytes(int64(len(state)))
		for b.Loop() {
			if _, err := a.load(b.Context(), func(in io.Reader) error {
				_, err := io.Copy(io.Discard, in)
				return err
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
