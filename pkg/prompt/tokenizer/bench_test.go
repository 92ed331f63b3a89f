package tokenizer_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/internal/testmodels"
	"github.com/warmpath/warmpath/pkg/prompt/tokenizer"
)

func BenchmarkLoad(b *testing.B) {
	for _, name := range testmodels.Names() {
		b.Run(name, func(b *testing.B) {
			data := modelFile(b, name, "tokenizer.json")
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var t *tokenizer.Tokenizer
			for b.Loop() {
				var err error
				if t, err = tokenizer.Load(data); err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-held")
			runtime.KeepAlive(t)
			runtime.KeepAlive(data)
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	texts := benchTexts(b)
	for _, name := range testmodels.Names() {
		t := model(b, name)
		for _, text := range texts {
			b.Run(name+"/"+text.name, func(b *testing.B) {
				ids := t.Append(nil, text.text, true)
				b.SetBytes(int64(len(text.text)))
				b.ReportAllocs()
				for b.Loop() {
					ids = t.Append(ids[:0], text.text, true)
				}
				b.ReportMetric(float64(len(ids))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
			})
		}
	}
}

type namedText struct{ name, text string }

// benchTexts are English prose, code and Chinese, about 400 kB each.
func benchTexts(tb testing.TB) []namedText {
	tb.Helper()
	read := func(files ...string) string {
		var b strings.Builder
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			b.Write(data)
		}
		return b.String()
	}
	english := read("../../../docs/architecture.md", "../../../README.md")
	code := read("tokenizer.go", "added.go", "load.go", "nfc.go", "json.go")
	grow := func(s string) string { return strings.Repeat(s, 400_000/len(s)+1) }
	return []namedText{{"english", grow(english)}, {"code", grow(code)}, {"chinese", grow(chinese)}}
}

// chinese is a little prose of our own: what a picker does.
const chinese = `网关收到请求以后，先问选择器应该送到哪一台机器。选择器把提示词切成词元，再算出每一块的散列值，然后在索引里查找哪一个工作进程已经算过同样的开头。如果有，就不必重新计算，用户等待的时间也会短得多。
可是只看缓存还不够：如果大家都去同一台机器，那里就会排队。所以选择器还要看每台机器现在有多忙，把两件事放在一起衡量，选出总代价最小的一台。2026年的测试表明，在一百台机器上，平均首字延迟从三百毫秒降到了九十毫秒左右。
`
