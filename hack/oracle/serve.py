"""Encodes strings with a reference tokenizer for another process.

    serve.py MODELS NAME

NAME is one of those in oracle.py. A request on stdin is a count (4 bytes, little
endian, as all numbers here) and that many strings: one byte (1: with special
tokens), a length (4 bytes), bytes. What is not UTF-8 in them becomes U+FFFD. The
answer on stdout is, for each, a count (4 bytes) and as many ids (4 bytes each).
It starts with the length of a line, and a line that names the oracle. It ends
when stdin does.
"""

import array
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
    tokenizer = oracle.load(sys.argv[1], sys.argv[2])
    out = sys.stdout.buffer
    hello = tokenizer.version.encode()
    out.write(struct.pack("<I", len(hello)) + hello)
    out.flush()
    for items in requests(sys.stdin.buffer):
        for ids in answer(tokenizer, items):
            out.write(struct.pack("<I", len(ids)))
            out.write(array.array("I", ids).tobytes())
        out.flush()


if __name__ == "__main__":
    main()
