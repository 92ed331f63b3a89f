package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

// loading measures loading in a process of its own, so that its memory is its own.
func (s *subject) loading(ctx context.Context) ([]TokenRow, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, self, "bench", "tokens-load", filepath.Join(s.Models, s.name, "tokenizer.json")).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, err
	}
	r := TokenRow{}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	r.Tokenizer = s.name
	return []TokenRow{r}, nil
}

// LoadTokenizer loads a tokenizer.json in this process and writes what it took as
// a row.
func LoadTokenizer(file string, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	debug.FreeOSMemory()
	heapBefore := heap()
	rssBefore, err := resident()
	if err != nil {
		return err
	}
	start := cpuTime()
	model, size, err := readTokenizer(file)
	if err != nil {
		return err
	}
	r := TokenRow{Case: "load", Tokens: model.VocabSize(), Bytes: size}
	r.speed(us(cpuTime() - start))
	r.HeapMB = float64(heap()-heapBefore) / 1e6
	debug.FreeOSMemory()
	rss, err := resident()
	if err != nil {
		return err
	}
	r.RSSMB = float64(rss-rssBefore) / 1e6
	if r.PeakMB, err = peakMB(os.Getpid()); err != nil {
		return err
	}
	runtime.KeepAlive(model)
	return json.NewEncoder(out).Encode(r)
}

// readTokenizer keeps the file's bytes no longer than it needs them.
func readTokenizer(file string) (*tokenizer.Tokenizer, int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	model, err := tokenizer.Load(data)
	return model, len(data), err
}

// resident returns the memory that this process has now, in bytes.
func resident() (int64, error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read this process's memory: %w", err)
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0, errors.New("read this process's memory: no resident pages")
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}
