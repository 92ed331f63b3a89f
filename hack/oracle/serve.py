"""Encodes strings with a reference tokenizer for another process.

    serve.py NAME [TIKTOKEN_FILE]

NAME is one of those in oracle.py, MODELS (a variable) the folder of the models.
A tiktoken file is written on the way, when one is named. A request on stdin is a count (4 bytes, little
endian, as all numbers here) and that many strings: one byte (1: with special
tokens), a length (4 bytes), bytes. What is not UTF-8 in them becomes U+FFFD. The
answer on stdout is, for each, a count (4 bytes) and as many ids (4 bytes each).
Before all that stands, after its length (4 bytes), a JSON object: the oracle's
name, the added tokens with their ids, and a sample of the vocabulary as base64 of
its bytes. The process ends when stdin does.
"""

import array
import base64
import json
import os
import random
import struct
import sys

import oracle


def read(stream, size):
    data = stream.read(size)
    if len(data) != size:
        raise SystemExit("serve.py: a request ends in the middle")
    return data


def requests(stream):
    """Yields lists of (special, text)."""
    while head := stream.read(4):
        (count,) = struct.unpack("<I", head)
        items = []
        for _ in range(count):
            special, size = struct.unpack("<BI", read(stream, 5))
            items.append((special == 1, read(stream, size).decode("utf-8", "replace")))
        yield items


def answer(tokenizer, items):
    """The ids of all items, in their order."""
    ids = [None] * len(items)
    for special in (False, True):
        where = [i for i, item in enumerate(items) if item[0] == special]
        encoded = tokenizer.encode([items[i][1] for i in where], special)
        for i, one in zip(where, encoded):
            ids[i] = one
    return ids


def main():
    if array.array("I").itemsize != 4 or sys.byteorder != "little":
        raise SystemExit("serve.py: needs 32-bit little-endian integers")
    models, name = os.environ["MODELS"], sys.argv[1]
    tokenizer = oracle.load(models, name)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "wb") as f:
            f.write(oracle.tiktoken_file(oracle.tiktoken_ranks(models)))
    sample = random.Random(1).sample(sorted(tokenizer.vocabulary), 20000)
    hello = json.dumps({
        "oracle": tokenizer.version,
        "added": tokenizer.added,
        "sample": [base64.b64encode(token).decode() for token in sample],
    }).encode()
    out = sys.stdout.buffer
    out.write(struct.pack("<I", len(hello)) + hello)
    out.flush()
    for items in requests(sys.stdin.buffer):
        for ids in answer(tokenizer, items):
            out.write(struct.pack("<I", len(ids)))
            out.write(array.array("I", ids).tobytes())
        out.flush()


if __name__ == "__main__":
    main()
