"""The strings of the golden files: ways in which tokenizers have gone wrong."""

EMPTY = ["", " ", "\n", "\t", "\r", "\r\n", "\x00", "a", "0", "'", "é", "中", "😀"]

ENGLISH = [
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they've said it's what we'd do; you'll see, don't we're he'S THEY'VE I'M",
    "O'Reilly's 'quoted' ''double'' ’curly’ it’s don’t rock'n'roll '80s 'tis",
    "'s 't 're 've 'm 'll 'd 'x 'S 'T 'RE 'VE 'M 'LL 'D 'ſ 'K",  # long s and Kelvin fold to s and k
    "a'ſb you'ſ 'ſ'ſ x'LL x'lL x'Ll",
    "hello'world won't've shouldn't'd",
    "Hello, World! Hello,World! Hello  ,  World  !",
    "camelCase PascalCase HTTPServer XMLHttpRequest iPhone eBay McDonald",
    "ALLCAPS lower Title mIxEd aB Ab AB ab ABc aBC",
    "naïve café résumé Ångström coöperate façade",
    "e.g. i.e. etc... U.S.A. 3.14 1,000,000.00 $5 50% #1 @user a/b a\\b a|b",
    "word-word word_word word–word word—word word…word",
    "(parens) [brackets] {braces} <angles> «guillemets» “quotes” „low“",
    "Dr. Smith's e-mail: john.doe+tag@example.com; see https://example.com/a?b=c&d=%20#frag",
]

DIGITS = [
    "0 1 12 123 1234 12345 123456 1234567 12345678901234567890",
    "a1b2c3 1a2b3c v1.2.3-rc4 0x1F 1e10 1_000 12:34:56 2024-11-29",
    "١٢٣٤ ۱۲۳۴ १२३४ ๑๒๓๔ １２３４ 𝟏𝟐𝟑𝟒",  # digits of other scripts
    "½ ¼ ² ³ ¹ ₀ ₁ Ⅳ ⅷ ① ⑳ ㊿ 〇 一二三 ௰ 𐄇",  # numbers that are no digits
    "1½2 x²y³ H₂O 10⁻³",
    "-1 +1 −1 ±1 1- 1+ (1) 1st 2nd 3rd",
    "0" * 50,
    "9" * 301,
]

SPACE = [
    "  ", "   ", " " * 7, " " * 50, " " * 300,
    " a", "  a", "   a", "a ", "a  ", "a   ", "a  b", "a   b", "a    b",
    "\n\n", "\n\n\n", "\n" * 20, " \n", "\n ", " \n ", "  \n  \n  ", "a\nb", "a\n\nb", "a\n \nb", "a \n b", "a  \n  b",
    "\r\n\r\n", "\r\r", "\n\r", "a\r\nb\r\n", " \r\n \r\n x", "\t\t\t", "\ta\tb", "a\t\tb", "a \t b", "\t \t ", "\n\t\n\t", "   \t",
    "a\u00a0b \u00a0 \u00a0\u00a0c", "a\u3000b\u3000\u3000c", "a\u2003b\u2009c\u200ad\u202fe\u205ff\u1680g",
    "a\u2028b\u2029c", "a\x0bb\x0cc\x0b\x0c ", "a\x85b\x85\x85", "a\x1cb\x1dc\x1ed\x1fe",
    "a\u200bb\u200cc\u200dd\u2060e\ufefff", "\ufeffstart", "\u180eb",
    "if x:\n    y\n\n\n    z\n\t\tw\n", "x  \n\n  \n   y", "end \n", "end\n ", ".\n", ".\n\n", ". \n", "!!\r\n\r\n", "/\n/\r\n//\n",
]

CODE = [
    "func main() {\n\tfmt.Println(\"hi\")\n}\n",
    "def f(x: int) -> list[int]:\n    return [i**2 for i in range(x) if i % 2 == 0]\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] << 2; } // done\n",
    "SELECT * FROM t WHERE a='x' AND b>=3 -- comment\n;",
    "<div class=\"a b\">&nbsp;&lt;x&gt;</div>\n<!-- c -->",
    "{\"key\":[1,2,{\"a\":null}],\"s\":\"\\u00e9\\n\"}",
    "x=>{...y}; a?.b??c; !!d; e!==f; `t${g}`; /re+/gi",
    "#include <stdio.h>\n#define X(a,b) ((a)##b)\n",
    "a::b->c.d::<E>(&mut f)?; 'life: loop {}",
    "echo \"$HOME\" | grep -E '^[a-z]+$' > /dev/null 2>&1 && ls -la ../..",
    "\\begin{equation} \\frac{\\partial f}{\\partial x} = \\sum_{i=0}^{n} x_i^2 \\end{equation}",
    "~~~~~~ ------ ====== ****** ###### ______ ...... ,,,,,, ;;;;;; !!!!!! ??????",
    "=" * 100, "-" * 81 + "\n", "/" * 40 + "\n", "({[<" * 12, "\\n\\t\\r\\0",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "SGVsbG8sIFdvcmxkIQ== 0123456789abcdef0123456789ABCDEF 550e8400-e29b-41d4-a716-446655440000",
]

SCRIPTS = [
    "你好，世界！今天天气怎么样？我们去公园吧。", "中文English混合text测试123数字", "繁體中文測試：龍龜鬱", "㐀㐁䶵 𠀀𠀁𪛖 豈更 ⼀⼁ 々〆〇〡",
    "こんにちは世界。カタカナとひらがなとＡＢＣ", "ｶﾀｶﾅ ﾊﾝｶｸ ー゛゜ヽヾゝゞ", "日本語のテキストを、トークンに分割する。\n次の行。", "一龥龦鿿",  # beyond 龥, which a pattern ends with
    "안녕하세요 세계! 한국어 텍스트입니다.", "\u1112\u1161\u11ab\u1100\u1173\u11af \u1100\u1161 \ud55c\u1100",  # jamo that NFC joins
    "مرحبا بالعالم، كيف حالك؟", "السَّلَامُ عَلَيْكُمْ", "שָׁלוֹם עוֹלָם",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง", "नमस्ते दुनिया क्षत्रिय", "வணக்கம் உலகம்", "বাংলা ভাষা", "ສະບາຍດີ", "မြန်မာဘာသာ", "ខ្មែរ", "བོད་སྐད།",
    "Привет, мир! Съешь ещё этих мягких французских булок", "Γειά σου Κόσμε ΣΊΣΥΦΟΣ σς", "Բարեւ աշխարհ", "გამარჯობა ᲒᲐᲛᲐᲠᲯᲝᲑᲐ", "ሰላም ልዑል", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "Việt Nam Tiếng Việt ằẵặ", "İstanbul ISPARTA ıi ŞĞÜ", "ﬀ ﬁ ﬂ ﬃ ﬄ ﬅ ﬆ ŉ Ǆ ǅ ǆ ǈ", "ªº ʰʱ ˠ ᴬᴮ ⁿ ₐ",
]

MARKS = [
    "e\u0301 é e\u0301\u0302 a\u0300\u0301\u0302\u0303", "\u0301a \u0301 \u0301\u0301", "a\u0301b\u0327c\u0308", "q\u0323\u0307 q\u0307\u0323 s\u0323\u0307 ṩ",
    "\u212b \u2126 \u212a \u1e9b\u0323 \ufb1d \u0344 \u0958 \u2adc",  # what NFC takes apart, or never puts together
    "ก็\u0e33 \u0e4d\u0e32 \u0f73 \u0f75 \u0f81", "a\u20dd b\u20e3 1\ufe0f\u20e3 #\ufe0f\u20e3",
    "Z̷̢̡̛͖̝̲̭̯͕̙̭̟͐͂̀͋̄̾̚a̸̡̧̛̗̙̼̯̹̲͚͉̔̋͐͊̈́̍̕l̵̛̪͇̯̗̦̲̰̥̭̟̍̈́̌͂̀̌̈́g̶̨̢̛̥̼̮̮̪̲͔̘̈́̈̒̑̐̎̚o̷̧̨̨̮̗̮͙̜̲͚̣̓̽͋̈̊̎̈́",
    "a" + "\u0301" * 40, "\u0b95\u0bca \u0b95\u0bc6\u0bbe \u09cb \u09c7\u09be", "𑂚 \U00011099\U000110ba 𝅗𝅥 \U0001d158\U0001d165", "\u0338= ≠ =\u0338 <\u0338",
]

EMOJI = [
    "😀😃😄 👍👍🏽👍🏿 ❤️❤ 🇩🇪🇫🇷🇯🇵🇺", "👨‍👩‍👧‍👦 👩🏽‍💻 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🧑‍🤝‍🧑 🏳️‍🌈", "a😀b 😀a 1😀2 😀\n😀 \n", "☀☁☂ ♠♥♦♣ ✓✗ ★☆ ←→⇒ ∀∃∈∑∫√∞≈≠≤≥", "™®©℠ №℃℉ ‰‱ §¶†‡ •‣◦",
    "🜀 🂡 🀄 𐐀𐐨 𝒜𝓑ℂ 𓀀 𒀀 🪿🫨🫩", "\ufe0f \u200d \U000e0001",
]

CONTROL = [
    "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10\x7f\x80\x81\x9f", "a\x00b\x00\x00c", "\x1b[31mred\x1b[0m", "\x08\x08 \x7f\x7f", "\xad soft\xadhyphen",
    "\ufffd\ufffd a\ufffdb", "\ufffe\uffff \ufdd0\ufdef \U0001ffff \U0010ffff", "\ue000\uf8ff \U000f0000 \U00100000", "\u0378\u0380 \u2e9a \U0001f8ff \U00020000",
    "\u202eabc\u202c \u2066x\u2069 \u061c",
]

LONG = [
    "a" * 200, "ab" * 150, "thequickbrownfox" * 20, "supercalifragilisticexpialidocious" * 5, "é" * 100, "中" * 150, "哈哈" * 60 + "啊" * 30,
    "あ" * 120, "กขค" * 40, "😀" * 40, "xyz " * 60, "\u0301" * 30, "▁" * 20 + "a▁b ▁ ▁▁", "Ġ ĠĠ Ċ Ġa", "<0x00> <0x0A> <unk> <s> </s> <pad>",
]

INVALID = [
    b"\xff", b"\xfe\xff", b"a\x80b", b"\xc3", b"\xc3(", b"\xe4\xb8", b"\xe4\xb8\xad\xe4\xb8", b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xf0\x9fx\x98\x80",
    b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"ok \xe2\x82 ok \xe2\x82\xac",
    bytes(range(128, 256)), b"<|im_start|>\xff<|im_end|>\xe2\x80",
]

COMMON = EMPTY + ENGLISH + DIGITS + SPACE + CODE + SCRIPTS + MARKS + EMOJI + CONTROL + LONG + INVALID

CHAT = "{0}system\nYou are helpful.{1}\n{0}user\nHi, {0}{1}! 你好{1}\n"


def glued(added):
    """Strings with a tokenizer's added tokens, alone and stuck to what is around."""
    picked = list(dict.fromkeys(added[:4] + added[len(added) // 2 : len(added) // 2 + 3] + added[-5:]))
    first, last = picked[0], picked[-1]
    texts = [f"{t}" for t in picked]
    texts += [f"a{t}b {t} \n{t}\n  {t}  1{t}2" for t in picked[:6]]
    texts += [first + last, last * 3, first[:-1], last[1:], first[:-1] + last, first.upper(), first.replace("|", "｜"), CHAT.format(first, last)]
    texts += [f"e{first}\u0301", f"\u0301{last}\u0301", f"'{first}s don'{last}t", f"  {first}\n\n{last}  ", f"12{last}34", f"中{first}文"]
    return texts
