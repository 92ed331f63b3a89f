package eventplane

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// archiveConfig says where the state of a plane is kept for replicas that start
// later: in an object store of JetStream.
type archiveConfig struct {
	Bucket   string
	Storage  jetstream.StorageType
	Replicas int           // 0 is 1
	MaxBytes int64         // 0 is without a limit; two states are there at a time
	TTL      time.Duration // of a state that no other has replaced; 0 is for ever
	Every    time.Duration // a state that is younger is not replaced
}

// archiveBucket is the bucket that goes with a stream.
func archiveBucket(stream string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, stream) + "-state"
}

const (
	archiveObject = "state"
	// archiveChunk is the size of the pieces that a state is kept in, that of the
	// nats command.
	archiveChunk = 128 << 10
	// archiveWindow is how many pieces may wait for the server's word that it has
	// them: 8 MiB.
	archiveWindow = 64
	// archiveAhead is how many pieces a reader asks for ahead: 2 MiB.
	archiveAhead = 16
	// archiveLook is how long a reader waits for a piece before it looks whether that
	// is there at all.
	archiveLook = 250 * time.Millisecond
	// archiveTries bounds how often reading starts over because a newer state has
	// replaced the one that was being read.
	archiveTries = 3
)

var (
	// errArchiveEmpty is returned by load when no state was saved.
	errArchiveEmpty = errors.New("no state is archived")
	// errArchiveDamaged is returned by load for a state that is not what was saved.
	errArchiveDamaged = errors.New("the archived state is damaged")
	// errArchiveClaimed is returned by save when another replica took over.
	errArchiveClaimed = errors.New("another replica archives its state at the same time")
)

// maxOvertaken bounds how much longer is waited: 8 times.
const maxOvertaken = 3

// archive keeps one state. Its form in the bucket is that of any object, so tools
// for object stores read it too. Beside the object stands a claim, of who is about
// to replace it and since when: replicas agree by it who saves.
type archive struct {
	cfg    archiveConfig
	js     jetstream.JetStream
	stream jetstream.Stream // under the bucket
	store  jetstream.ObjectStore
	note   string // what is not as configured, for the log; empty when all is

	now func() time.Time

	// overtaken is how often in a row another replica began while we saved. Where that
	// takes longer than all wait for each other, nobody would ever come to an end: so
	// who was overtaken leaves the others more time.
	overtaken int
}

// openArchive makes sure that the bucket is there. It fails as openStream does.
func openArchive(ctx context.Context, js jetstream.JetStream, cfg archiveConfig) (*archive, error) {
	a := &archive{cfg: cfg, js: js, now: time.Now}
	err := a.lookUpBucket(ctx)
	if there := err == nil; there && !a.asConfigured() || errors.Is(err, errStreamGone) {
		refused := a.configure(ctx)
		switch {
		case refused == nil:
			err = a.lookUpBucket(ctx)
		case there && ctx.Err() == nil:
			a.note = fmt.Sprintf("its limits cannot be changed to those configured, and it is used as it is: %v", refused)
		default:
			err = refused
		}
	}
	if err == nil {
		a.store, err = ask(ctx, js.Conn(), func(ctx context.Context) (jetstream.ObjectStore, error) {
			return js.ObjectStore(ctx, cfg.Bucket)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("object store %q: %w", cfg.Bucket, err)
	}
	return a, nil
}

// lookUpBucket asks for the stream under the bucket.
func (a *archive) lookUpBucket(ctx context.Context) (err error) {
	a.stream, err = ask(ctx, a.js.Conn(), func(ctx context.Context) (jetstream.Stream, error) {
		return a.js.Stream(ctx, "OBJ_"+a.cfg.Bucket)
	})
	return err
}

// configure makes the bucket, or brings it up to date.
func (a *archive) configure(ctx context.Context) error {
	_, err := ask(ctx, a.js.Conn(), func(ctx context.Context) (jetstream.ObjectStore, error) {
		return a.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: a.cfg.Bucket, Description: "what warmpath knows, for replicas that start later",
			Storage: a.cfg.Storage, Replicas: a.cfg.Replicas, MaxBytes: a.cfg.MaxBytes, TTL: a.cfg.TTL,
		})
	})
	return err
}

// asConfigured says whether the bucket has the limits that are wanted: then nobody
// needs the right to change it.
func (a *archive) asConfigured() bool {
	have := a.stream.CachedInfo().Config
	return have.MaxAge == a.cfg.TTL && have.Replicas == max(a.cfg.Replicas, 1) &&
		(have.MaxBytes == a.cfg.MaxBytes || have.MaxBytes == -1 && a.cfg.MaxBytes == 0)
}

func (a *archive) chunkSubject(id string) string { return "$O." + a.cfg.Bucket + ".C." + id }

func (a *archive) metaSubject() string {
	return "$O." + a.cfg.Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(archiveObject))
}

func (a *archive) claimSubject() string { return a.chunkSubject("claim") }

// save replaces the state by what write writes, unless one was saved, or begun to
// be, not long ago: then it returns false at once. Readers see the old state or
// the new one. What fails leaves the old one.
func (a *archive) save(ctx context.Context, write func(io.Writer) error) (saved bool, err error) {
	claim, err := a.claim(ctx)
	if errors.Is(err, errStreamRefused) { // it is our turn, and not even the claim fits
		if err = a.makeRoom(ctx); err == nil {
			claim, err = a.claim(ctx)
		}
	}
	if err == nil && claim > 0 {
		switch err = a.replace(ctx, claim, write); {
		case err == nil:
			a.overtaken = 0
		case errors.Is(err, errArchiveClaimed):
			a.overtaken++
			fallthrough
		default:
			a.release(ctx, claim)
		}
	}
	if err != nil {
		return false, fmt.Errorf("archive in object store %q: %w", a.cfg.Bucket, err)
	}
	return claim > 0, nil
}

// claim puts up our claim and returns its sequence, or 0 when it is the turn of
// another replica, or of nobody yet. Chance keeps replicas apart.
func (a *archive) claim(ctx context.Context) (uint64, error) {
	last, err := a.lastClaim(ctx)
	if err != nil {
		return 0, err
	}
	seq := uint64(0)
	if last != nil {
		seq = last.Sequence
		every := a.cfg.Every << min(a.overtaken, maxOvertaken)
		limit := every + time.Duration(mathrand.Float64()*float64(every)/8)
		if age := a.now().Sub(last.Time); age < limit && age > -limit { // clocks differ
			return 0, nil
		}
	}
	m := nats.NewMsg(a.claimSubject())
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	ack, err := ask(ctx, a.js.Conn(), func(ctx context.Context) (*jetstream.PubAck, error) {
		return a.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(seq))
	})
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, nil // another replica was faster
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// lastClaim returns nil when there is none.
func (a *archive) lastClaim(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	last, err := ask(ctx, a.js.Conn(), func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return a.stream.GetLastMsgForSubject(ctx, a.claimSubject())
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return last, err
}

// release lets others try at once what we failed to do. When that fails too, they
// try later.
func (a *archive) release(ctx context.Context, claim uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	_ = a.stream.Purge(ctx, jetstream.WithPurgeSubject(a.claimSubject()), jetstream.WithPurgeSequence(claim+1))
}

// replace stores a state beside the old one and then points to it. The old one
// stays until the next time, for those who are reading it. Room is made first: a
// save that broke off must not keep all later ones from succeeding.
func (a *archive) replace(ctx context.Context, claim uint64, write func(io.Writer) error) error {
	if err := a.makeRoom(ctx); err != nil {
		return err
	}
	info := &jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: archiveObject, Opts: &jetstream.ObjectMetaOptions{ChunkSize: archiveChunk}},
		Bucket:     a.cfg.Bucket, NUID: rand.Text(),
	}
	if err := a.storePieces(ctx, info, write); err != nil {
		return err
	}
	if last, err := a.lastClaim(ctx); err != nil {
		return err
	} else if last == nil || last.Sequence != claim {
		return errArchiveClaimed // it took us so long that another one has begun
	}
	meta, err := json.Marshal(info)
	if err != nil {
		return err
	}
	m := nats.NewMsg(a.metaSubject())
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	m.Data = meta
	_, err = ask(ctx, a.js.Conn(), func(ctx context.Context) (*jetstream.PubAck, error) { return a.js.PublishMsg(ctx, m) })
	return err
}

// makeRoom removes the pieces of all states but the one that is pointed to.
func (a *archive) makeRoom(ctx context.Context) error {
	keep := map[string]bool{a.claimSubject(): true}
	old, err := a.lookUp(ctx)
	switch {
	case err == nil:
		keep[a.chunkSubject(old.NUID)] = true
	case !errors.Is(err, errArchiveEmpty):
		return err
	}
	kept, err := a.kept(ctx, a.chunkSubject(">"))
	if err != nil {
		return err
	}
	for subject := range kept {
		if keep[subject] {
			continue
		}
		if _, err := ask(ctx, a.js.Conn(), func(ctx context.Context) (any, error) {
			return nil, a.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}); err != nil {
			return err
		}
	}
	return nil
}

// storePieces stores the pieces of a state, and notes in info what they are.
func (a *archive) storePieces(ctx context.Context, info *jetstream.ObjectInfo, write func(io.Writer) error) error {
	w := archiveWriter{ctx: ctx, js: a.js, subject: a.chunkSubject(info.NUID), digest: sha256.New(), info: info}
	err := write(&w)
	if err == nil {
		err = w.close()
	}
	if err != nil {
		a.discard(ctx, w.subject)
	}
	return err
}

// discard removes the pieces of a state that broke off. Those under way have to
// arrive first: a purge overtakes them in the server. When that cannot be had, the
// next save makes room.
func (a *archive) discard(ctx context.Context, subject string) {
	if !a.js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	select {
	case <-a.js.PublishAsyncComplete():
	case <-ctx.Done():
		return
	}
	_ = a.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)) // else the next save does it
}

// archiveWriter stores what is written, in pieces.
type archiveWriter struct {
	ctx     context.Context //nolint:containedctx // an io.Writer takes none
	js      jetstream.JetStream
	subject string
	digest  hash.Hash
	info    *jetstream.ObjectInfo
	buf     []byte
	waiting []jetstream.PubAckFuture
}

// Write implements io.Writer.
func (w *archiveWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.buf == nil {
			w.buf = make([]byte, 0, archiveChunk) // the library may send the last one again
		}
		take := min(len(p), archiveChunk-len(w.buf))
		w.buf, p = append(w.buf, p[:take]...), p[take:]
		if len(w.buf) == archiveChunk {
			if err := w.send(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *archiveWriter) send() error {
	w.digest.Write(w.buf)
	w.info.Size += uint64(len(w.buf))
	w.info.Chunks++
	ack, err := w.js.PublishAsync(w.subject, w.buf)
	w.buf = nil
	if err != nil {
		return reasonOf(err)
	}
	w.waiting = append(w.waiting, ack)
	return w.settle(archiveWindow - 1)
}

// settle waits until no more than that many pieces wait for the server's word.
func (w *archiveWriter) settle(most int) error {
	for ; len(w.waiting) > most; w.waiting = w.waiting[1:] {
		if err := w.await(w.waiting[0]); err != nil {
			return err
		}
	}
	return nil
}

func (w *archiveWriter) await(ack jetstream.PubAckFuture) error {
	limit := time.NewTimer(askLimit)
	defer limit.Stop()
	select {
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return reasonOf(err)
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-limit.C:
		return errStreamSilent
	}
}

func (w *archiveWriter) close() error {
	if len(w.buf) > 0 {
		if err := w.send(); err != nil {
			return err
		}
	}
	if err := w.settle(0); err != nil {
		return err
	}
	w.info.Digest = jetstream.GetObjectDigestValue(w.digest)
	return nil
}

// lookUp returns what is known of the state that is archived.
func (a *archive) lookUp(ctx context.Context) (*jetstream.ObjectInfo, error) {
	info, err := ask(ctx, a.js.Conn(), func(ctx context.Context) (*jetstream.ObjectInfo, error) {
		return a.store.GetInfo(ctx, archiveObject)
	})
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, errArchiveEmpty
	}
	return info, err
}

// load hands the archived state to read, which has to read it to its end, and
// returns when it was saved. An error of read's is returned as it is. When the
// state is replaced under the reader, read is called again, with the new one: it
// must change nothing before it has come to the end.
func (a *archive) load(ctx context.Context, read func(io.Reader) error) (saved time.Time, err error) {
	var last string
	for range archiveTries {
		info, lookErr := a.lookUp(ctx)
		if lookErr != nil {
			err = lookErr
			break
		}
		if info.NUID == last {
			break // it was not replaced: trying again is of no use
		}
		last = info.NUID
		if err = a.read(ctx, info, read); err == nil {
			return info.ModTime, nil
		}
	}
	return time.Time{}, fmt.Errorf("object store %q: %w", a.cfg.Bucket, err)
}

// read reads one state.
func (a *archive) read(ctx context.Context, info *jetstream.ObjectInfo, read func(io.Reader) error) error {
	consumer, err := ask(ctx, a.js.Conn(), func(ctx context.Context) (jetstream.Consumer, error) {
		return a.js.OrderedConsumer(ctx, "OBJ_"+a.cfg.Bucket, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{a.chunkSubject(info.NUID)}, MaxResetAttempts: 1,
		})
	})
	if err != nil {
		return err
	}
	chunks, err := consumer.Messages(jetstream.PullMaxMessages(archiveAhead))
	if err != nil {
		return err
	}
	defer chunks.Stop()
	r := &archiveReader{ctx: ctx, chunks: chunks, archive: a, info: info, digest: sha256.New()}
	err = read(r)
	if _, end := r.Read(nil); end != nil && !errors.Is(end, io.EOF) { //nolint:contextcheck // the reader has it
		return end
	} else if end == nil && err == nil {
		// The digest is looked at there.
		return errors.New("the archived state was not read to its end")
	}
	return err
}

// archiveReader reads the pieces of a state.
type archiveReader struct {
	ctx     context.Context //nolint:containedctx // an io.Reader takes none
	chunks  jetstream.MessagesContext
	archive *archive
	info    *jetstream.ObjectInfo
	digest  hash.Hash
	size    uint64
	count   uint32
	buf     []byte
	err     error
}

// Read implements io.Reader.
func (r *archiveReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.buf) == 0 {
		return 0, r.err
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// next gets the next piece, or says that there are no more.
func (r *archiveReader) next() error {
	if r.count == r.info.Chunks {
		if r.size != r.info.Size || jetstream.GetObjectDigestValue(r.digest) != r.info.Digest {
			return fmt.Errorf("%w: its digest is wrong", errArchiveDamaged)
		}
		return io.EOF
	}
	m, err := r.wait()
	if err != nil {
		return err
	}
	r.buf = m.Data()
	r.digest.Write(r.buf)
	r.size += uint64(len(r.buf))
	r.count++
	return nil
}

// wait waits for the next piece as long as all are there.
func (r *archiveReader) wait() (jetstream.Msg, error) {
	for waited := time.Duration(0); waited < askLimit; waited += archiveLook {
		ctx, cancel := context.WithTimeout(r.ctx, archiveLook)
		m, err := r.chunks.Next(jetstream.NextContext(ctx))
		cancel()
		switch {
		case err == nil:
			return m, nil
		case r.ctx.Err() != nil:
			return nil, r.ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, reasonOf(err)
		}
		subject := r.archive.chunkSubject(r.info.NUID)
		kept, err := r.archive.kept(r.ctx, subject)
		if err != nil {
			return nil, err
		}
		if kept[subject] < uint64(r.info.Chunks) {
			return nil, fmt.Errorf("%w: %d of its %d pieces are there", errArchiveDamaged, kept[subject], r.info.Chunks)
		}
	}
	return nil, errStreamSilent
}

// kept returns how many messages there are under each subject.
func (a *archive) kept(ctx context.Context, subject string) (map[string]uint64, error) {
	return ask(ctx, a.js.Conn(), func(ctx context.Context) (map[string]uint64, error) {
		info, err := a.stream.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return nil, err
		}
		return info.State.Subjects, nil
	})
}
