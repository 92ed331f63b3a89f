"""Writes the golden files of pkg/prompt/tokenizer/testdata from the oracles.

    golden.py DIR [NAME...]

The variable MODELS names the folder of the models. DIR/golden-NAME.json is {"tokenizer", "oracle", "strings": [{"text" or "base64",
"ids", "ids_special"}]}: base64 holds bytes that are not UTF-8; ids_special has
the tokens of the post-processor.
"""

import base64
import json
import os
import sys

import cases
import oracle


def entry(text, ids, special):
    if isinstance(text, bytes):
        key, value = "base64", base64.b64encode(text).decode()
    else:
        key, value = "text", text
    return json.dumps({key: value, "ids": ids, "ids_special": special}, ensure_ascii=False, separators=(",", ":"))


def write(models, directory, name):
    tokenizer = oracle.load(models, name)
    texts = cases.COMMON + cases.glued(list(tokenizer.added))
    decoded = [t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in texts]
    lines = map(entry, texts, tokenizer.encode(decoded, False), tokenizer.encode(decoded, True))
    path = os.path.join(directory, f"golden-{name}.json")
    head = json.dumps({"tokenizer": name, "oracle": tokenizer.version})[:-1]
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write(head + ', "strings": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{path}: {len(texts)} strings, {os.path.getsize(path)} bytes")


def main():
    models = os.environ["MODELS"]
    directory, *names = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    for name in names or oracle.HUGGING_FACE + oracle.TIKTOKEN[:2]:
        write(models, directory, name)


if __name__ == "__main__":
    main()
