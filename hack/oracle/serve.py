"""Encodes strings with a reference tokenizer for another process.

    serve.py NAME [TIKTOKEN_FILE]
    serve.py json

NAME is one of those in oracle.py, MODELS (a variable) the folder of the models.
A tiktoken file is written on the way, when one is named. A request on stdin is a count (4 bytes, little
endian, as all numbers here) and that many strings: one byte (1: with special
tokens), a length (4 bytes), bytes. What is not UTF-8 in them becomes U+FFFD. The
answer on stdout is, for each, a count (4 bytes) and as many ids (4 bytes each).
Before all that stands, after its length (4 bytes), a JSON object: the oracle's
name, the added tokens with their ids, and a sample of the vocabulary as base64 of
its bytes. The process ends when stdin does.

With "json" each request is preceded by the length (4 bytes) and the text of a
tokenizer.json, which its strings are encoded with. Then its answer is preceded by
one byte: 1, or 0 when Hugging Face refuses the file, and nothing follows. A string
that it cannot encode has the count 4294967295, and no ids.
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


def write(out, all_ids):
    for ids in all_ids:
        if ids is None:
            out.write(b"\xff" * 4)
            continue
        out.write(struct.pack("<I", len(ids)))
        out.write(array.array("I", ids).tobytes())
    out.flush()


def one(tokenizer, item):
    """The ids of one item, None where the oracle breaks down."""
    special, text = item
    try:
        return tokenizer.encode([text], special)[0]
    except BaseException as error:  # a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None


def serve_json(stream, out):
    """Answers requests that bring their tokenizer with them."""
    while head := stream.read(4):
        text = read(stream, struct.unpack("<I", head)[0]).decode()
        items = next(requests(stream))
        try:
            tokenizer = oracle.HuggingFaceText(text)
        except Exception as error:  # whatever it has against the file
            print(f"refused: {error}", file=sys.stderr)
            out.write(b"\0")
            out.flush()
            continue
        out.write(b"\1")
        write(out, [one(tokenizer, item) for item in items])


def main():
    if array.array("I").itemsize != 4 or sys.byteorder != "little":
        raise SystemExit("serve.py: needs 32-bit little-endian integers")
    models, name = os.environ["MODELS"], sys.argv[1]
    out = sys.stdout.buffer
    if name == "json":
        hello = json.dumps({"oracle": oracle.version()}).encode()
        out.write(struct.pack("<I", len(hello)) + hello)
        out.flush()
        serve_json(sys.stdin.buffer, out)
        return
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
    out.write(struct.pack("<I", len(hello)) + hello)
    out.flush()
    for items in requests(sys.stdin.buffer):
        write(out, answer(tokenizer, items))


if __name__ == "__main__":
    main()
