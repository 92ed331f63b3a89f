"""Writes golden.json: what Hugging Face's BPE makes of words.

    pip install tokenizers==0.22.2
    python golden.py FOLDER > golden.json

FOLDER holds one folder per real model, each with its tokenizer.json. "real" are
words of these, "small" are vocabularies made up to meet what real ones do not:
symbols without a token, merges of such, merges listed twice, merges in any order.
Words are hexadecimal, for they need not be UTF-8.
"""

import json
import os
import random
import sys

from tokenizers import Tokenizer
from tokenizers.models import BPE

CODE = "func (m *Model) Append(dst []uint32, word string) []uint32 {\n\treturn append(dst, m.ids[word]...)\n}\n"
TEXTS = [
    "hello", " world", " internationalization", "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaft",
    "don't", " I'll", "HTTPServer", "snake_case_name", "camelCaseName", "0", "123", "3.14159", "1234567890123",
    "语言模型", "今天天气很好", "分词的正确性比速度更加重要", "東京都に住んでいます", "ありがとうございます", "안녕하세요", "สวัสดีครับ",
    "مرحبا بالعالم", "Привет", "नमस्ते", "Ελληνικά", "naïve café", "e\u0301\u0327", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "🙂" * 9,
    "\ufeff", "\u200b\u200d", "\x00\x01\x7f", "\ufffd", "𒀀𒁀", "𝔘𝔫𝔦", "ꙮ", "\U0010fffd", "ﷺ", "\r\n\r\n", "\t\t\t", "\n" * 7,
    " " * 5, " " * 130, "=" * 77, "-" * 200, "a" * 300, "ab" * 120, "abc" * 70, "<|endoftext|>", "<unk>", "<0x41>",
    "https://example.org/a/b?c=d&e=%20f#g", "aGVsbG8gd29ybGQhIHRoaXMgaXMgYmFzZTY0", CODE,
]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-/"


def byte_level():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {}, 256
    for b in range(256):
        table[b] = chr(b) if b in plain else chr(n)
        n += b not in plain
    return table


def real(folder, name):
    rnd = random.Random(name)
    path = os.path.join(folder, name, "tokenizer.json")
    model = Tokenizer.from_file(path).model
    with open(path) as f:
        spec = json.load(f)["model"]
    table = byte_level()
    back = {c: b for b, c in table.items()}
    if spec["byte_fallback"]:
        spell = lambda word: word.decode()
        tokens = [t.encode() for t in spec["vocab"]]
    else:
        spell = lambda word: "".join(table[b] for b in word)
        tokens = [bytes(back[c] for c in t) for t in spec["vocab"] if all(c in back for c in t)]
    words = [t.replace(" ", "▁").encode() if spec["byte_fallback"] else t.encode() for t in TEXTS]
    for _ in range(60):
        words.append(b"".join(rnd.choice(tokens) for _ in range(rnd.randint(2, 5))))
    for _ in range(20):
        words.append("".join(rnd.choice(LETTERS) for _ in range(rnd.randint(5, 60))).encode())
    for _ in range(20):
        words.append(bytes(rnd.randrange(256) for _ in range(rnd.randint(1, 20))))
    if spec["byte_fallback"]:
        words = [w.decode(errors="replace").encode() for w in words]
    return [[w.hex(), [t.id for t in model.tokenize(spell(w))]] for w in words]


def small(seed):
    rnd = random.Random(seed)
    alphabet = rnd.choice(["a", "ab", "abc", "a é", "語誤a", "aé語🙂"])
    tokens = [c for c in alphabet if rnd.randrange(8)] + ["~"]
    options = {"fuse_unk": rnd.random() < 0.5, "byte_fallback": rnd.random() < 0.5, "ignore_merges": rnd.random() < 0.3}
    if rnd.random() < 0.6:
        tokens.append("?")
        options["unk_token"] = "?"
    for b in sorted(set("é語誤🙂".encode())):
        if rnd.random() < 0.9:
            tokens.append(f"<0x{b:02X}>")
    likely = [t for t in tokens if len(t) == 1] + rnd.sample(tokens, 3)
    merges = []
    for _ in range(rnd.randint(1, 14)):
        left, right = rnd.choice(likely), rnd.choice(likely)
        if len(left + right) > 20:
            continue
        if left + right not in tokens:
            tokens.append(left + right)
            likely.append(left + right)
        merges.insert(rnd.randint(0, len(merges)), (left, right))
    model = BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, **options)
    words = []
    for _ in range(6):
        word = ""
        for _ in range(rnd.randint(1, 7)):
            word += rnd.choice([rnd.choice(likely), rnd.choice(alphabet), rnd.choice(alphabet) * rnd.randint(2, 6)])
        words.append([word, [t.id for t in model.tokenize(word)]])
    return {"tokens": tokens, "merges": merges, **options, "words": words}


def main():
    folder = sys.argv[1]
    lines = []
    for name in ["deepseek_v3", "gemma3", "gptoss", "llama3_1", "qwen3"]:
        words = ",\n".join(json.dumps(w, separators=(",", ":")) for w in real(folder, name))
        lines.append(f'"{name}": [\n{words}\n]')
    cases = ",\n".join(json.dumps(small(seed), separators=(",", ":")) for seed in range(400))
    print('{"real": {\n' + ",\n".join(lines) + '\n},\n"small": [\n' + cases + "\n]}")


main()
