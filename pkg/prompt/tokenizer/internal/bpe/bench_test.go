package bpe_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/warmpath/warmpath/pkg/prompt/tokenizer/internal/bpe"
)

// split cuts text about as the pre-tokenizers in use do.
var split = regexp.MustCompile(` ?\pL+| ?\pN| ?[^\s\pL\pN]+[\r\n]*|\s*[\r\n]+|\s+`)

const chinese = `大型语言模型的推理服务通常由许多台服务器共同完成,每台服务器都保存着最近处理过的提示的缓存。如果新的请求与以前的请求有相同的开头,那么把它送到同一台服务器就可以省去重复的计算。` +
	`路由器需要知道每台服务器上有哪些缓存块,这些信息通过消息系统实时传递。当一台服务器重新启动时,它的缓存就会全部丢失,路由器必须马上忘记它。` +
	`为了计算缓存块的哈希值,路由器必须得到与引擎完全一样的分词结果,只要有一个词不同,后面所有的哈希值都会不一样。因此分词的正确性比速度更加重要,但是速度也不能太慢。` +
	`昨天下午我们在公园里散步的时候,看见几个孩子在湖边放风筝,天空很蓝,风也不大。老人们坐在长椅上聊天,谈论着今年的收成和城里新开的商店。` +
	`经济学家认为,下半年的增长速度将会放缓,主要原因是出口减少和房地产市场的调整。与此同时,科技企业的投资仍然保持强劲,人工智能和新能源成为最受关注的领域。` +
	`医生建议患者每天早上服用一次药物,饭后半小时为宜,并且避免饮酒。如果出现头痛、恶心或者皮疹等不良反应,应当立即停药并到医院就诊。`

// texts are the words of each kind of text.
func texts(tb testing.TB) map[string][]string {
	tb.Helper()
	return map[string][]string{
		"english": split.FindAllString(files(tb, "docs/*.md"), -1),
		"code":    split.FindAllString(files(tb, "pkg/index/*.go"), -1),
		"chinese": split.FindAllString(chinese, -1),
	}
}

func files(tb testing.TB, pattern string) string {
	tb.Helper()
	names, err := filepath.Glob("../../../../../" + pattern)
	if err != nil || len(names) == 0 {
		tb.Fatal("no files", pattern, err)
	}
	var all strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

var models = []string{"qwen3", "llama3_1", "deepseek_v3", "gptoss"}

func BenchmarkWords(b *testing.B) {
	for _, model := range models {
		m := realModel(b, model)
		for kind, words := range texts(b) {
			b.Run(model+"/"+kind, func(b *testing.B) { encode(b, m, words) })
		}
	}
	m := realModel(b, "gemma3")
	for kind, words := range texts(b) {
		text := strings.ReplaceAll(strings.Join(words, ""), " ", "▁")
		b.Run("gemma3/"+kind, func(b *testing.B) { encode(b, m, []string{text}) })
	}
}

// BenchmarkLong has words that step by step merging takes long for, also with the
// queue, and shorter ones with the obvious twin.
func BenchmarkLong(b *testing.B) {
	m, slow := realModel(b, "qwen3"), newTwin(realSpec(b, "qwen3"))
	for kind, word := range longWords(100_000) {
		b.Run(kind, func(b *testing.B) { encode(b, m, []string{word}) })
		b.Run(kind+"/queue", func(b *testing.B) {
			var s bpe.Scratch
			var ids []uint32
			b.SetBytes(int64(len(word)))
			for b.Loop() {
				ids = m.Merge(ids[:0], word, &s)
			}
		})
		b.Run(kind+"/twin of 1000", func(b *testing.B) {
			b.SetBytes(1000)
			for b.Loop() {
				slow.encode(word[:1000])
			}
		})
	}
}

func encode(b *testing.B, m *bpe.Model, words []string) {
	b.Helper()
	var s bpe.Scratch
	var ids []uint32
	tokens, size := 0, 0
	for _, w := range words {
		size += len(w)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		tokens = 0
		for _, w := range words {
			ids = m.Append(ids[:0], w, &s)
			tokens += len(ids)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tokens), "ns/token")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(words)), "ns/word")
}

func BenchmarkNew(b *testing.B) {
	for _, model := range append(models, "gemma3") {
		spec := realSpec(b, model)
		b.Run(model, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bpe.New(spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
