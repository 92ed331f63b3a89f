"""Print what the regex engine of Hugging Face tokenizers holds every code point to be.

The engine is Oniguruma, with Unicode data of its own, so neither Go's tables
nor Python's are asked: each class is a pattern that is run over all code
points. tiktoken's engine (fancy-regex over Rust's regex) is asked the same, and
the two must agree: then one table serves both.

    python classes.py > classes.txt     # needs: pip install tokenizers tiktoken
    go run ./hack/unicode               # writes the Go table from classes.txt
"""

import sys

import tiktoken
import tokenizers
from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Split

# The order is that of the bits in the Go table.
CLASSES = {
    "upper": r"[\p{Lu}\p{Lt}]",
    "lower": r"\p{Ll}",
    "caseless": r"[\p{Lm}\p{Lo}]",
    "mark": r"\p{M}",
    "number": r"\p{N}",
    "punct": r"\p{P}",
    "symbol": r"\p{S}",
    "space": r"\s",
    "newline": r"[\r\n]",
    "han": r"\p{Han}",
    "cjk": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]",
}
# Digits asks the standard library of Rust, which knows a newer Unicode.
DIGITS = "digit"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 4096


def in_tokenizers(pattern):
    """Code points that the pattern matches in tokenizers."""
    split = Split(Regex(pattern), "removed")
    found = set(CODE_POINTS)
    for i in range(0, len(CODE_POINTS), CHUNK):
        chunk = CODE_POINTS[i : i + CHUNK]
        for text, _ in split.pre_tokenize_str("".join(map(chr, chunk))):
            found.difference_update(map(ord, text))
    return found


def in_digits():
    """Code points that the Digits pre-tokenizer cuts out."""
    digits = Digits(individual_digits=True)
    return {c for c in CODE_POINTS if len(digits.pre_tokenize_str("a" + chr(c))) == 2}


def in_tiktoken(pattern):
    """Code points that the pattern matches in tiktoken, which drops all else."""
    ranks = {bytes([i]): i for i in range(256)}
    encoding = tiktoken.Encoding("one", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ids = encoding.encode_ordinary("".join(map(chr, CODE_POINTS)))
    return set(map(ord, bytes(ids).decode()))


def main():
    members = {}
    for name, pattern in CLASSES.items():
        members[name] = in_tokenizers(pattern)
        if members[name] != in_tiktoken(pattern):
            sys.exit(f"tokenizers and tiktoken differ in {name}: they need a table each")
    members[DIGITS] = in_digits()
    print("# Written by classes.py: the classes of all code points, as the regex engines of")
    print(f"# tokenizers {tokenizers.__version__} and tiktoken {tiktoken.__version__} hold them.")
    start, last = 0, None
    for c in range(0x110001):
        now = [n for n in members if c in members[n]] if c < 0x110000 else None
        if now != last:
            if last:
                print(f"{start:04X}-{c - 1:04X} {' '.join(last)}")
            start, last = c, now


if __name__ == "__main__":
    main()
