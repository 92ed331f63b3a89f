package pretok

import (
	"strings"
	"testing"
)

// samples are texts as prompts have them.
var samples = []struct{ name, text string }{
	{"english", strings.Repeat("The quick brown fox jumps over the lazy dog, doesn't it? In 1984 the engineers wrote: \"a cache that "+
		"is never asked is worth nothing\". Nobody could say afterwards who had measured that first.\n\n", 40)},
	{"code", strings.Repeat("func (s *Server) handle(w http.ResponseWriter, r *http.Request) error {\n\tif r.Method != http.MethodPost {\n"+
		"\t\treturn fmt.Errorf(\"method %q: want POST (%d)\", r.Method, 405)\n\t}\n\n\tfor i := 0; i < len(s.items); i++ {\n"+
		"        self.weights[i] = np.zeros((n_in, n_out), dtype=np.float32)  # TODO(x): HTTPServer\n\t}\n", 30)},
	{"chinese", strings.Repeat("\u4eba\u5de5\u667a\u80fd\u662f\u8ba1\u7b97\u673a\u79d1\u5b66\u7684\u4e00\u4e2a\u5206\u652f\uff0c\u5b83\u4f01\u56fe"+
		"\u4e86\u89e3\u667a\u80fd\u7684\u5b9e\u8d28\u3002\u5728 2024 \u5e74\uff0cGPT \u6a21\u578b\u7684\u53c2\u6570\u8d85\u8fc7\u4e00\u4e07\u4ebf\uff01\n", 120)},
	{"arabic", strings.Repeat("\u0627\u0644\u0630\u0643\u0627\u0621 \u0627\u0644\u0627\u0635\u0637\u0646\u0627\u0639\u064a \u0647\u0648 \u0633\u0644"+
		"\u0648\u0643 \u0648\u062e\u0635\u0627\u0626\u0635 \u0645\u0639\u064a\u0646\u0629\u060c \u062a\u062a\u0633\u0645 \u0628\u0647\u0627 \u0627\u0644"+
		"\u0628\u0631\u0627\u0645\u062c.\n", 100)},
	{"spaces", strings.Repeat(" ", 16384) + "x"},
}

func BenchmarkNext(b *testing.B) {
	for _, s := range []struct {
		name    string
		scanner Scanner
	}{
		{"gpt2", &gpt2},
		{"qwen3", &qwen2},
		{"llama3", &llama3},
		{"qwen35", &qwen35},
		{"o200k", &o200k},
		{"kimi", &kimi},
		{"deepseek", &deepseekFused},
	} {
		for _, sample := range samples {
			b.Run(s.name+"/"+sample.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(sample.text)))
				cut := 0
				for b.Loop() {
					for at := 0; at < len(sample.text); cut++ {
						at = s.scanner.Next(sample.text, at)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(cut), "ns/piece")
			})
		}
	}
}
