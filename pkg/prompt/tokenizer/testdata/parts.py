"""Golden ids for every part of a tokenizer.json, alone and with others.

Small made-up tokenizers, of random parts, encode small odd strings with Hugging
Face tokenizers. A case that this refuses or panics on is left out.

    pip install tokenizers
    python parts.py > golden-parts.json
"""

import json
import random

import tokenizers

CASES, STRINGS = 80, 8
ATOMS = ["a", "b", "A", "B", "ab", " ", "  ", "\t", "\n", "<a>", "<a", "a>", "<ab>", "▁", "1", "12", "²", "é", "e\u0301",
         "\u0301", "İ", "Σ", "x", "_", "-", "\u00a0", "\u3000", "<s>", "\u0315", "\u1100\u1161", "\u200d", "中", "😀", "\u0085"]
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0, 1], "tokens": ["<s>", "x"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
}
OFFSETS = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
rnd = random.Random(1)
pick, chance = rnd.choice, lambda p: rnd.random() < p


def alphabet():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain} | {b: chr(0x100 + i) for i, b in enumerate(rest)}
    return [table[b] for b in range(256)]


def spell(text):
    return "".join(alphabet()[b] for b in text.encode())


def models():
    """Vocabularies and merges that the cases share."""
    merges = [("a", "b"), ("Ġ", "a"), ("Ġa", "b"), ("Ã", "©"), ("ab", "ab"), ("1", "1"), ("Ġ", "Ġ"), ("b", "Ġa"), ("<", "a")]
    vocab = alphabet() + [a + b for a, b in merges]
    yield "bytes", vocab, merges
    merges = [("a", "b"), ("▁", "a"), ("▁a", "b"), ("ab", "ab"), ("1", "1"), ("▁", "▁"), ("b", "▁a"), ("<", "a"), (" ", "a"), (" ", " ")]
    vocab = list("abAx 1\n▁_é<>中") + [a + b for a, b in merges] + ["<unk>"] + ["<0x%02X>" % b for b in range(256) if b != 0xCC]
    yield "chars", vocab, merges


def normalizer(inner=False):
    kind = pick(["NFC", "Lowercase", "Replace", "Prepend"] + [None, None, "Sequence"] * (not inner))
    if kind == "Replace":
        return {"type": kind, "pattern": {"String": pick([" ", "a", "ab", "  ", "▁"])}, "content": pick(["▁", "", "b", "aa", " "])}
    if kind == "Prepend":
        return {"type": kind, "prepend": pick(["▁", "a", " "])}
    if kind == "Sequence":
        return {"type": kind, "normalizers": [normalizer(True) for _ in range(rnd.randint(0, 3))]}
    return kind and {"type": kind}


def pre_tokenizer(byte_level):
    def one():
        kind = pick(["Split", "Split", "Digits", "Metaspace"])
        if kind == "Digits":
            return {"type": kind, "individual_digits": chance(.5)}
        if kind == "Metaspace":
            return {"type": kind, "replacement": pick("▁_"), "prepend_scheme": pick(["always", "first", "never"]), "split": chance(.5)}
        if chance(.5):
            return {"type": kind, "pattern": {"Regex": pick([QWEN, r"\p{N}{1,3}", r"\p{N}"])}, "behavior": "Isolated", "invert": False}
        behavior = pick(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
        return {"type": kind, "pattern": {"String": pick([" ", "a", "▁", "ab"])}, "behavior": behavior, "invert": chance(.3)}

    parts = [one() for _ in range(rnd.randint(0, 2))]
    if byte_level:
        parts.append({"type": "ByteLevel", "add_prefix_space": chance(.4), "trim_offsets": True, "use_regex": chance(.5)})
    if len(parts) == 1 and chance(.5):
        return parts[0]
    return {"type": "Sequence", "pretokenizers": parts} if parts else None


def added():
    contents = {"".join(pick(ATOMS) for _ in range(rnd.randint(1, 3))) for _ in range(rnd.randint(0, 5))}
    tokens = []
    for content in sorted(contents):
        odd = chance(.5)
        flags = {flag: odd and chance(.4) for flag in ("single_word", "lstrip", "rstrip")}
        tokens.append({"id": 0, "content": content, **flags, "normalized": chance(.5), "special": chance(.5)})
    return tokens


def case(name, vocab, merges):
    byte_level = name == "bytes"
    model = {
        "type": "BPE", "dropout": None, "unk_token": pick([None, "<unk>"]) if not byte_level else None,
        "continuing_subword_prefix": None, "end_of_word_suffix": pick([None, ""]), "fuse_unk": chance(.5),
        "byte_fallback": not byte_level and chance(.5), "ignore_merges": chance(.5),
    }
    parts = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added(), "normalizer": normalizer(),
        "pre_tokenizer": pre_tokenizer(byte_level), "post_processor": pick([None, OFFSETS, TEMPLATE, {"type": "Sequence", "processors": [TEMPLATE, OFFSETS]}]),
        "decoder": None,
    }
    lines = chance(.5) and not any(" " in a + b for a, b in merges)
    whole = model | {"vocab": {t: i for i, t in enumerate(vocab)}, "merges": [" ".join(m) if lines else m for m in merges]}
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(parts | {"model": whole}))
        rows = []
        for _ in range(STRINGS):
            text = "".join(pick(ATOMS + [t["content"] for t in parts["added_tokens"]] * 3) for _ in range(rnd.randint(0, 12)))
            plain, special = (tokenizer.encode(text, add_special_tokens=s).ids for s in (False, True))
            rows.append({"text": text, "ids": plain, "ids_special": special})
    except BaseException:  # a panic is no Exception
        return None
    return {"vocabulary": name, "lines": lines, "model": model, "parts": parts, "strings": rows}


def main():
    kinds = list(models())
    cases = []
    while len(cases) < CASES:
        made = case(*pick(kinds))
        if made:
            cases.append(made)
    dump = lambda x: json.dumps(x, ensure_ascii=False, separators=(",", ":"))
    print('{"oracle":"tokenizers %s",' % tokenizers.__version__)
    print('"vocabularies":' + dump({name: {"tokens": vocab, "merges": merges} for name, vocab, merges in kinds}) + ",")
    print('"cases":[\n' + ",\n".join(map(dump, cases)) + "\n]}")


main()
