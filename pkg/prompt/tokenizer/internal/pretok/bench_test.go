package pretok

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// samples are texts as prompts have them: their words in random order, so that
// no branch predictor learns the text by heart.
var samples = []struct{ name, text string }{
	{"english", shuffled("the quick brown fox jumps over a lazy dog, doesn't it? In 1984 engineers wrote: \"cache that is never "+
		"asked is worth nothing\". Nobody could say who had measured that first.\n\n But I think, therefore we are; of and to in "+
		"with for on as by at from this be have not or which one you were all their been has when more will would about between "+
		"understanding information (see section 12) language", " ")},
	{"code", shuffled("func (s\u00a6*Server)\u00a6 handle(w\u00a6 http.ResponseWriter,\u00a6 r *http.Request)\u00a6 error {\n\t\u00a6if r.Method !=\u00a6"+
		" http.MethodPost {\n\t\t\u00a6return fmt.Errorf(\u00a6\"method %q: want\u00a6 POST (%d)\",\u00a6 r.Method, 405)\n\t}\n\n\t\u00a6for i := 0;\u00a6"+
		" i < len(s.items);\u00a6 i++ {\n        \u00a6self.weights[i]\u00a6 = np.zeros((n_in,\u00a6 n_out), \u00a6dtype=np.float32)  # TODO(x): HTTPServer\n\t}\n", "\u00a6")},
	{"chinese", shuffled("\u4eba\u5de5\u667a\u80fd \u662f \u8ba1\u7b97\u673a \u79d1\u5b66 \u7684 \u4e00\u4e2a \u5206\u652f\uff0c \u5b83 \u4f01\u56fe "+
		"\u4e86\u89e3 \u667a\u80fd\u7684 \u5b9e\u8d28\u3002 \u5728 2024 \u5e74\uff0c GPT \u6a21\u578b\u7684 \u53c2\u6570 \u8d85\u8fc7 \u4e00\u4e07\u4ebf\uff01\n", " ")},
	{"arabic", shuffled("\u0627\u0644\u0630\u0643\u0627\u0621\u00a6 \u0627\u0644\u0627\u0635\u0637\u0646\u0627\u0639\u064a\u00a6 \u0647\u0648\u00a6 \u0633\u0644"+
		"\u0648\u0643\u00a6 \u0648\u062e\u0635\u0627\u0626\u0635\u00a6 \u0645\u0639\u064a\u0646\u0629\u060c\u00a6 \u062a\u062a\u0633\u0645\u00a6 \u0628\u0647\u0627\u00a6 \u0627\u0644"+
		"\u0628\u0631\u0627\u0645\u062c.\n", "\u00a6")},
	{"spaces", strings.Repeat(" ", 65536) + "x"},
}

// shuffled returns some 64 KB of the parts of a text in random order, with what
// separates them when that is a space between words.
func shuffled(text, separator string) string {
	random := rand.New(rand.NewPCG(10, 11))
	parts := strings.Split(text, separator)
	var b strings.Builder
	for b.Len() < 1<<16 {
		b.WriteString(parts[random.IntN(len(parts))])
		if separator == " " && parts[0] == "the" {
			b.WriteString(separator)
		}
	}
	return b.String()
}

func BenchmarkNext(b *testing.B) {
	scanners := named(b)
	for _, name := range []string{"gpt2", "qwen2", "llama3", "qwen35", "o200k", "kimi", "deepseek sequence"} {
		s := scanners[name]
		for _, sample := range samples {
			b.Run(name+"/"+sample.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(sample.text)))
				cut := 0
				for b.Loop() {
					for at := 0; at < len(sample.text); cut++ {
						at = s.Next(sample.text, at)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(cut), "ns/piece")
			})
		}
	}
}
