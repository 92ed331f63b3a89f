"""Answer how the real engines cut text into pieces.

One request a line on stdin, one answer a line on stdout, both JSON. The first
line says who is asked: {"pre_tokenizer": {…}} is one of tokenizer.json,
{"tiktoken": "pattern"} a pattern of a tiktoken file. Each further line is a list
of texts. Its answer is a list with the pieces of each text as start and end, in
characters: [0, 3, 3, 7] for two pieces.

    pip install tokenizers tiktoken
"""

import json
import sys

import tiktoken
import tokenizers

BATCH = 50


def ask_tokenizers(config):
    """Pieces by the offsets that tokenizers reports."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    whole = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": config}
    whole |= {"post_processor": None, "decoder": None, "model": model}
    pre = tokenizers.Tokenizer.from_str(json.dumps(whole)).pre_tokenizer

    def answer(texts):
        return [[n for _, span in pre.pre_tokenize_str(t) for n in span] for t in texts]

    return answer


def ask_tiktoken(pattern):
    """Pieces by their tokens: with every part of the texts in the vocabulary, a
    piece is one token. Text that the pattern does not match has none."""

    def answer(texts):
        spans = []
        for i in range(0, len(texts), BATCH):
            spans += batch(texts[i : i + BATCH])
        return spans

    def batch(texts):
        parts = {bytes([i]): None for i in range(256)}
        for t in texts:
            for i in range(len(t)):
                for j in range(i + 1, len(t) + 1):
                    parts[t[i:j].encode()] = None
        ranks = {part: i for i, part in enumerate(parts)}
        words = list(parts)
        encoding = tiktoken.Encoding("one", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return [ends(t, [words[i] for i in encoding.encode_ordinary(t)]) for t in texts]

    def ends(text, pieces):
        if b"".join(pieces) != text.encode():
            return []  # a gap was dropped
        at, spans = 0, []
        for p in pieces:
            end = at + len(p.decode())
            spans += [at, end]
            at = end
        return spans

    return answer


def main():
    who = json.loads(sys.stdin.readline())
    answer = ask_tiktoken(who["tiktoken"]) if "tiktoken" in who else ask_tokenizers(who["pre_tokenizer"])
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
