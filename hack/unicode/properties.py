"""Print what Hugging Face tokenizers holds of characters beside the classes of regexes.

Its normalizers and its added tokens use Unicode data of other versions than
Go's. The tokenizer's tables hold the differences; its test holds them to this.

    pip install tokenizers
    python properties.py > ../../pkg/prompt/tokenizer/testdata/unicode.json
"""

import json

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
OVERLAY, IOTA = "\u0334", "\u0345"  # combining classes 1 and 240


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def words():
    """The characters beside which a token that is a single word is not found."""
    t = Tokenizer(models.BPE({"x": 0}, []))
    t.add_tokens([AddedToken("@@", single_word=True, normalized=False)])
    return [c for c in POINTS if 1 not in t.encode(chr(c) + "@@").ids]


def spaces():
    """The characters that a token with lstrip takes."""
    t = Tokenizer(models.BPE({chr(c): c for c in POINTS}, []))
    t.add_tokens([AddedToken("@@", lstrip=True, normalized=False)])
    return [c for c in POINTS if len(t.encode(chr(c) + "@@").ids) == 1]


def marks():
    """The characters of a combining class other than 0, by their order to others."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    out = []
    for c in map(chr, POINTS):
        if nfd(c) == c and (nfc(c + OVERLAY) == OVERLAY + c or nfc(IOTA + c) == c + IOTA):
            out.append(ord(c))
    return out


def changed(normalize):
    """What each character that changes becomes."""
    return {"%04X" % c: normalize(chr(c)) for c in POINTS if normalize(chr(c)) != chr(c)}


print(json.dumps({
    "oracle": "tokenizers " + tokenizers.__version__,
    "words": ranges(words()),
    "spaces": ranges(spaces()),
    "marks": ranges(marks()),
    "lower": changed(normalizers.Lowercase().normalize_str),
    "nfc": changed(normalizers.NFC().normalize_str),
}, separators=(",", ":")))
