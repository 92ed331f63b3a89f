package tokens

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/hack/oracle"
)

const root = "../.."

// item is one string to encode.
type item struct {
	text    string
	special bool // with the tokens of the post-processor
}

// reference is a process with a reference tokenizer.
type reference struct {
	Oracle string            // its name and version
	Added  map[string]uint32 // the added tokens
	Sample [][]byte          // some of the vocabulary

	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

var install = sync.OnceValues(func() (oracle.Env, error) { return oracle.Install(context.Background()) })

// startReference starts the oracle of that name; args go to serve.py.
func startReference(t *testing.T, name string, args ...string) *reference {
	t.Helper()
	env, err := install()
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's context: that one ends before the process is asked to.
	r := &reference{cmd: env.Command(context.Background(), filepath.Join(root, "hack/oracle/serve.py"), append([]string{name}, args...)...)}
	r.cmd.Stderr = &r.stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = bufio.NewReaderSize(out, 1<<20)
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.in.Close()
		if err := r.cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the oracle ended badly: %v\n%s", err, &r.stderr)
		}
	})
	if err := r.hello(); err != nil {
		r.fatal(t, err)
	}
	return r
}

func (r *reference) hello() error {
	n, err := r.number()
	if err != nil {
		return err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r.out, text); err != nil {
		return err
	}
	return json.Unmarshal(text, r)
}

func (r *reference) fatal(t *testing.T, err error) {
	t.Helper()
	r.in.Close()
	_ = r.cmd.Wait() // so that all it said is there
	t.Fatalf("the oracle failed: %v\n%s", err, &r.stderr)
}

func (r *reference) number() (uint32, error) {
	var b [4]byte
	_, err := io.ReadFull(r.out, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// send asks for the ids of all items. receive must be called for the answer.
func (r *reference) send(items []item) error {
	request := binary.LittleEndian.AppendUint32(nil, uint32(len(items)))
	for _, it := range items {
		special := byte(0)
		if it.special {
			special = 1
		}
		request = append(request, special)
		request = binary.LittleEndian.AppendUint32(request, uint32(len(it.text)))
		request = append(request, it.text...)
	}
	_, err := r.in.Write(request)
	return err
}

// receive returns the ids of n items, nil where the oracle broke down.
func (r *reference) receive(n int) ([][]uint32, error) {
	all := make([][]uint32, n)
	for i := range all {
		count, err := r.number()
		if err != nil {
			return nil, err
		}
		if count == math.MaxUint32 {
			continue
		}
		raw := make([]byte, 4*count)
		if _, err := io.ReadFull(r.out, raw); err != nil {
			return nil, err
		}
		ids := make([]uint32, count)
		for k := range ids {
			ids[k] = binary.LittleEndian.Uint32(raw[4*k:])
		}
		all[i] = ids
	}
	return all, nil
}

// ask sends items and waits for their ids.
func (r *reference) ask(t *testing.T, items []item) [][]uint32 {
	t.Helper()
	sent := make(chan error, 1)
	go func() { sent <- r.send(items) }()
	ids, err := r.receive(len(items))
	if err == nil {
		err = <-sent
	}
	if err != nil {
		r.fatal(t, err)
	}
	return ids
}

// askWith is ask for a process that was started as "json": with a tokenizer of
// the request's own. ok is false when the oracle refuses the tokenizer.
func (r *reference) askWith(t *testing.T, file []byte, items []item) (ids [][]uint32, ok bool) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := r.in.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(file))), file...))
		if err == nil {
			err = r.send(items)
		}
		sent <- err
	}()
	good, err := r.out.ReadByte()
	if err == nil && good == 1 {
		ids, err = r.receive(len(items))
	}
	if err == nil {
		err = <-sent
	}
	if err != nil {
		r.fatal(t, err)
	}
	return ids, good == 1
}

// added are the oracle's added tokens in order.
func (r *reference) added() []string {
	names := make([]string, 0, len(r.Added))
	for name := range r.Added {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(r.Added[a]) - int(r.Added[b]) })
	return names
}

// difference says where two answers differ.
func difference(got, want []uint32) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	near := func(ids []uint32) []uint32 { return ids[min(len(ids), max(0, at-2)):min(len(ids), at+6)] }
	return fmt.Sprintf("from token %d on (%d tokens, want %d): %d, want %d", at, len(got), len(want), near(got), near(want))
}
