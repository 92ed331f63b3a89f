"""Measures Hugging Face tokenizers beside ours, and merges the results.

    compare.py BINARY TEXTS [--rounds N] [--tokenizers A,B] [--duration D] [--json FILE] [--parts P,Q]

BINARY is a built warmpath, TEXTS the folder that texts.py fills, MODELS (a
variable) that of the models. In every round each text is encoded by one and then
by the other, with one thread; the token ids of both must be equal. Times are CPU
time, to which others on the machine do not add. Each figure is the median of the
rounds, ratio_to_hf the median of the rounds' ratios.

encode-*        again and again: the caches of words of both are warm
encode-*-first  ours by a tokenizer just loaded, theirs after _clear_cache()

hf_us is encode(text), hf_fast_us encode_batch_fast([text]), which keeps no
offsets. Prints a table; --json writes {"rows": [...]}.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import oracle

SIZES = ["10k", "100k"]
TEXTS = ["english", "code", "chinese"]


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("texts")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--tokenizers", default=",".join(oracle.HUGGING_FACE))
    p.add_argument("--duration", default="300ms")
    p.add_argument("--parts", default="load,encode,first,prompt")
    p.add_argument("--json")
    return p.parse_args()


def ours(args, name, parts, dump=None):
    """The rows of our benchmark, for one tokenizer and one round."""
    command = [args.binary, "bench", "tokens", "--models", os.environ["MODELS"], "--texts", args.texts]
    command += ["--tokenizers", name, "--parts", parts, "--rounds", "1", "--duration", args.duration, "-o", "json"]
    if dump:
        command += ["--dump", dump]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["rows"]


def microseconds(call):
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e6


def several(call, least=3, seconds=0.3):
    """The median time of a call."""
    times, start = [], time.perf_counter()
    while len(times) < least or time.perf_counter() - start < seconds:
        times.append(microseconds(call))
    return statistics.median(times)


def theirs(tokenizer, text):
    """The times of Hugging Face with one text: first, again, again without offsets."""
    tokenizer.model._clear_cache()
    first = microseconds(lambda: tokenizer.encode(text, add_special_tokens=False))
    again = several(lambda: tokenizer.encode(text, add_special_tokens=False))
    fast = several(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False))
    return first, again, fast


def check(tokenizer, dump, name):
    """Ends the script when the ids of a text differ."""
    for text in TEXTS:
        for size in SIZES:
            file = pathlib.Path(dump, f"{name}-{text}-{size}")
            ids = json.loads(file.with_suffix(".json").read_text())
            part = file.with_suffix(".txt").read_bytes().decode()
            if tokenizer.encode(part, add_special_tokens=False).ids != ids:
                raise SystemExit(f"compare.py: {file.name}: the token ids differ")


def merge(rows, tokenizer, dump, name):
    """Measures Hugging Face with the texts of rows, and notes it there."""
    times = {}
    for row in rows:
        if not row["case"].startswith("encode-"):
            continue
        size = row["case"].split("-")[1]
        key = (row["text"], size)
        if key not in times:
            text = pathlib.Path(dump, f"{name}-{row['text']}-{size}.txt").read_bytes().decode()
            times[key] = theirs(tokenizer, text)
        first, again, fast = times[key]
        if row["case"].endswith("-first"):
            row["hf_us"] = first
        else:
            row["hf_us"], row["hf_fast_us"] = again, fast
        row["ratio_to_hf"] = row["hf_us"] / row["us"]


def medians(rounds):
    """One row for the same row of all rounds."""
    out = []
    for same in zip(*rounds):
        row = dict(same[0])
        for field, value in row.items():
            if isinstance(value, (int, float)) and field not in ("tokens", "bytes"):
                row[field] = statistics.median(r[field] for r in same)
        out.append(row)
    return out


def measure(args, name):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(oracle.model_file(os.environ["MODELS"], name))
    with tempfile.TemporaryDirectory() as dump:
        ours(args, name, "encode", dump)  # also warms the caches of the machine
        check(tokenizer, dump, name)
        rounds = []
        for number in range(args.rounds):
            print(f"{name}: round {number + 1} of {args.rounds}", file=sys.stderr)
            rows = ours(args, name, args.parts)
            merge(rows, tokenizer, dump, name)
            rounds.append(rows)
    return medians(rounds)


def more(row):
    """The figures that few rows have."""
    texts = {
        "rss_mb": "resident {:.0f} MB",
        "peak_mb": "peak {:.0f} MB",
        "max_us": "slowest turn {:.0f} us",
        "allocs": "{:.0f} allocations",
    }
    return ", ".join(text.format(row[field]) for field, text in texts.items() if field in row) or "-"


def table(rows):
    columns = ["case", "tokenizer", "text", "tokens", "M tokens/s", "us", "HF us", "HF fast us", "times HF", "more"]
    print("| " + " | ".join(columns) + " |")
    print("| --- | --- | --- |" + " ---: |" * (len(columns) - 4) + " --- |")
    for r in rows:
        figures = [f"{r['tokens_per_s'] / 1e6:.2f}", f"{r['us']:.0f}"]
        figures += [f"{r[f]:.0f}" if f in r else "-" for f in ("hf_us", "hf_fast_us")]
        figures.append(f"{r['ratio_to_hf']:.1f}" if "ratio_to_hf" in r else "-")
        print("| " + " | ".join([r["case"], r["tokenizer"], r["text"] or "-", str(r["tokens"]), *figures, more(r)]) + " |")


def main():
    args = arguments()
    rows = [row for name in args.tokenizers.split(",") for row in measure(args, name)]
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"rows": rows}) + "\n")
    table(rows)


if __name__ == "__main__":
    main()
