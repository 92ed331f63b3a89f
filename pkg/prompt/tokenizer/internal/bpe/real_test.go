package bpe_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// modelFile is the part of tokenizer.json that BPE needs.
type modelFile struct {
	Model struct {
		Vocab        map[string]uint32 `json:"vocab"`
		Merges       []mergeEntry      `json:"merges"`
		Unk          string            `json:"unk_token"`
		FuseUnk      bool              `json:"fuse_unk"`
		ByteFallback bool              `json:"byte_fallback"`
		IgnoreMerges bool              `json:"ignore_merges"`
	} `json:"model"`
}

// mergeEntry is "a b" or ["a", "b"].
type mergeEntry [2]string

func (m *mergeEntry) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		return json.Unmarshal(data, (*[2]string)(m))
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	m[0], m[1], _ = strings.Cut(s, " ")
	return nil
}

var specs = struct {
	sync.Mutex
	byName map[string]bpe.Spec
}{byName: map[string]bpe.Spec{}}

// realSpec reads the specification of a real model, once per run.
func realSpec(tb testing.TB, name string) bpe.Spec {
	tb.Helper()
	specs.Lock()
	defer specs.Unlock()
	if spec, ok := specs.byName[name]; ok {
		return spec
	}
	var file modelFile
	if err := json.Unmarshal(testmodels.Read(tb, name, "tokenizer.json"), &file); err != nil {
		tb.Fatal(err)
	}
	m := file.Model
	spec := bpe.Spec{Unk: -1, FuseUnk: m.FuseUnk, ByteFallback: m.ByteFallback, IgnoreMerges: m.IgnoreMerges, Chars: m.ByteFallback}
	size := uint32(0)
	for _, id := range m.Vocab {
		size = max(size, id+1)
	}
	spec.Tokens = make([][]byte, size)
	for token, id := range m.Vocab {
		spec.Tokens[id] = []byte(token)
		if !spec.Chars {
			spec.Tokens[id] = fromByteLevel(token)
		}
	}
	for _, merge := range m.Merges {
		spec.Merges = append(spec.Merges, [2]uint32{m.Vocab[merge[0]], m.Vocab[merge[1]]})
	}
	for b := range spec.ByteTokens {
		spec.ByteTokens[b] = -1
		hex := strings.ToUpper(strconv.FormatUint(uint64(b)+256, 16)[1:])
		if id, ok := m.Vocab["<0x"+hex+">"]; ok {
			spec.ByteTokens[b] = int32(id)
		}
	}
	if id, ok := m.Vocab[m.Unk]; ok && m.Unk != "" {
		spec.Unk = int32(id)
	}
	specs.byName[name] = spec
	return spec
}

// byteLevel is GPT-2's alphabet: a printable character for each byte.
var byteLevel = func() (chars [256]rune) {
	next := rune(256)
	for b := range chars {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			chars[b] = rune(b)
		default:
			chars[b] = next
			next++
		}
	}
	return chars
}()

var byteOf = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	for b, r := range byteLevel {
		m[r] = byte(b)
	}
	return m
}()

// fromByteLevel undoes the alphabet; nil when a character is not in it.
func fromByteLevel(token string) []byte {
	out := []byte{}
	for _, r := range token {
		b, ok := byteOf[r]
		if !ok {
			return nil
		}
		out = append(out, b)
	}
	return out
}

func realModel(tb testing.TB, name string) *bpe.Model {
	tb.Helper()
	m, err := bpe.New(realSpec(tb, name))
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
