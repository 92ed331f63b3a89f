package pretok

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// golden is testdata/golden.json: what the real engines do. oracle_test.go
// writes it.
type golden struct {
	Texts []string           `json:"texts"`
	Ends  map[string][][]int `json:"ends"` // by scanner and text: the ends of pieces, in characters
}

const goldenFile = "testdata/golden.json"

// named are the scanners in the golden file.
func named(t testing.TB) map[string]Scanner {
	t.Helper()
	all := map[string]Scanner{"byteLevel": ByteLevel(), "eachDigit": Digits(true), "digits": Digits(false)}
	for _, k := range known {
		var ok bool
		if all[k.name], ok = ByRegex(k.pattern); !ok {
			t.Fatalf("%s: not known", k.name)
		}
		if k.tiktoken {
			if all[k.name+" in tiktoken"], ok = ByTiktoken(k.pattern); !ok {
				t.Fatalf("%s: not known for tiktoken", k.name)
			}
		}
	}
	var ok bool
	if all["deepseek sequence"], ok = BySequence(deepseekSequence[:]); !ok {
		t.Fatal("DeepSeek's sequence is not known")
	}
	return all
}

func TestGolden(t *testing.T) {
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err = json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Texts) < 30 {
		t.Errorf("only %d texts", len(g.Texts))
	}
	for name, s := range named(t) {
		if len(g.Ends[name]) != len(g.Texts) {
			t.Errorf("%s: %d answers for %d texts", name, len(g.Ends[name]), len(g.Texts))
			continue
		}
		for i, text := range g.Texts {
			if got := ends(t, s, text); !slices.Equal(got, g.Ends[name][i]) {
				t.Errorf("%s: ends in %q are %v, want %v", name, text, got, g.Ends[name][i])
			}
		}
	}
}

// ends returns the ends of pieces, in characters.
func ends(t fataler, s Scanner, text string) []int {
	t.Helper()
	all, at := []int{}, 0
	for _, p := range pieces(t, s, text) {
		at += utf8.RuneCountInString(p)
		all = append(all, at)
	}
	return all
}

// goldenTexts are what people and programs write, and what is hard in it.
var goldenTexts = []string{
	"Hello, world! It's 2024; they'LL see, WE'RE not I'M.",
	"don't DON'T don\u2019t 's's'S 'T'ill rock'n'roll l'l 're'Ve '\u017f a'\u017f",
	"HTTPServer parseJSON2XML iPhone15Pro McDonald NASA's camelCaseABC \u01c5ungla",
	"1234567 12,345.678 1\u00b2\u00b3 \u0661\u0662\u0663\u0664 \u2160\u2161 \u4e00\u3007\u4e8c \uff11\uff12\uff13\uff14 0x1F 3.14e-10",
	"  leading, trailing  ", " \n \n\n  x\t\ty \r\n\r\n z  \n", "\n\n\n", "   ", "a\n  ", "a \u00a0\u3000 b\u2003\u2003c\u0085d\u2028e\u200bf\ufeffg\u180eh",
	"func main() {\n\tfmt.Println(\"hi\")  // TODO: x\n}\n\n\n\nif __name__ == '__main__':\n    run(*args, **kw)\n",
	"https://example.org/a/b//c?d=e&f=%20g#h /usr/bin/\n//\n/ C:\\x\\y <|im_start|>user\n</s>",
	"\u4eba\u5de5\u667a\u80fd\uff0c\u4f60\u597d\uff01GPT-4\u6a21\u578b\u3002 \u4e2dABC \u4e2dABCd a\u4e2db \u2e80\u2e81\u4e2d \u3005\u303b \U00020000\U0002f800",
	"\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\uff01\u30ab\u30bf\u30ab\u30ca\u30fb\u30fc\u309b\u3099\u3040\u30a0 \uff76\uff9e\uff77 x\u30ab1\u30ab",
	"\uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab \u0645\u0631\u062d\u0628\u0627\u064b \u0628\u0650\u0633\u0652\u0645\u0650 \u060c \u0661",
	"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a \u0e40\u0e25\u0e48\u0e21 \u0e51\u0e52 \u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u0937 \u0967\u0968",
	"e\u0301te\u0301 E\u0301TE\u0301 \u0301 \u0301a .\u0301. A\u0301B \u0301\u0301 1\u0301 \u20dd x\u20dd",
	"\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea\u2764\ufe0f \U0001f44d\U0001f3fd! a\u200db",
	"\x00a\x00\x00b\x01\x02 \x1b[31m\x7f\u00ad\u202e\ue000\U000e0041\U0010ffff\ufffd\u0378z",
	"\u00dcber Stra\u00dfe \u0130stanbul \u00aa\u00ba \ufb01\ufb06 \u00b5m \u212a \U0001d400\U0001d41a\U0001d7ce \u10d0\u1c90 \uab70\u13a0",
	"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ !a \"b #C $d (e\u00e9 _f ~g \u2019h \u00a1i \u20acj ++k +\u4e2d",
	strings.Repeat("a", 100) + strings.Repeat(" ", 100) + strings.Repeat("\n", 10) + strings.Repeat("1", 10) + strings.Repeat("!", 20),
}
