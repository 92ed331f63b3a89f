"""Writes vectors.jsonl: payloads of engines' KV events, packed by the msgpack package of PyPI and not by ours.

    pip install msgpack==1.2.4
    python3 pkg/kvevent/vllm/testdata/vectors.py

Lines named "capture VERSION N" are the N-th case of testdata/captures/dynamo/VERSION-engine-events.run.json, as
a publisher was given it. What must come of each line is in vectors_test.go.
"""
import base64, json, os

import msgpack

here = os.path.dirname(os.path.abspath(__file__))
captures = os.path.join(here, "../../../../testdata/captures/dynamo")


def unhex(v):
    """Captures write byte strings as hex:..."""
    if isinstance(v, str) and v.startswith("hex:"):
        return bytes.fromhex(v[4:])
    if isinstance(v, list):
        return [unhex(x) for x in v]
    if isinstance(v, dict):
        return {k: unhex(x) for k, x in v.items()}
    return v


def stored(hashes, parent, tokens, size=4, **more):
    e = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
         "block_size": size, "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": None}
    e.update(more)
    return e


def batch(*events, rank=0):
    return [1789095808.75, list(events), rank]


mm = "%016x" % 42 + 48 * "0"
digest = bytes(range(32))
one, two = [1, 2, 3, 4], [5, 6, 7, 8]
vectors = {
    # The capture of vLLM 0.26.0 in engines.md 1.1, with its key order.
    "map": batch({"type": "BlockStored", "block_hashes": [15760518052499183552], "parent_block_hash": None,
                  "token_ids": one, "block_size": 4, "lora_id": None, "medium": "GPU", "lora_name": None,
                  "extra_keys": [None], "group_idx": 0, "kv_cache_spec_kind": "full_attention"}),
    "written map": batch(stored([15760518052499183552], None, one, lora_name="my-adapter", extra_keys=[[[mm, 1]]], group_idx=0,
                                kv_cache_spec_kind="full_attention", cache_salt="tenant-a"),
                         {"type": "BlockRemoved", "block_hashes": [1], "medium": "CPU", "group_idx": 3}, {"type": "AllBlocksCleared"}),
    "array": batch(["BlockStored", [11, 12], 10, one + two, 4, None, "GPU", None, None]),
    "array, twelve values": batch(["BlockStored", [11], None, one, 4, None, "GPU", None, None, 3, "mla_attention", None]),
    "short array": batch(["BlockStored", [11], None, one, 4]),
    "short array, other size": batch(["BlockStored", [11], None, one, 2]),
    "too short array": batch(["BlockStored", [11], None, one], ["BlockRemoved", [7]]),
    "long array": batch(["BlockStored", [11], None, one, 4, None, "GPU", None, None, None, None, None, [], 1]),
    "removed and cleared": batch(["BlockRemoved", [1, -1, digest], "CPU"], {"type": "BlockRemoved", "block_hashes": []},
                                 ["AllBlocksCleared"], {"type": "AllBlocksCleared"}),
    "map batch": {"ts": 1789095808.75, "events": [stored([11], None, one)], "data_parallel_rank": 7},
    "map batch, rank first": {"data_parallel_rank": 7, "new": {}, "events": [stored([11], None, one)]},
    "no rank": [1789095808.75, [stored([11], None, one)]],
    "nil rank": batch(stored([11], None, one), rank=None),
    "whole seconds": [1789095808, [], 1],
    "long batch": [1.5, [], 1, "more", None],
    "digests": batch(stored([digest, b"\x01\x02", 2**64 - 1, -2**63], digest[:8], one + two + one + two)),
    "parent 0": batch(stored([11], 0, one)),
    "all token sizes": batch(stored([11], None, [0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1], 8), stored([12], None, one)),
    "adapter": batch(stored([11], None, one, lora_name="my-adapter", lora_id=3)),
    "salt": batch(stored([11], None, one, cache_salt="tenant-a")),
    "salt and adapter, repeated as keys": batch(stored([11], None, one, lora_name="my-adapter", cache_salt="tenant-a",
                                                       extra_keys=[["my-adapter", "tenant-a"]])),
    "media": batch(stored([11, 12], None, one + one, extra_keys=[None, [[mm, 1], ["%016x" % 7 + 48 * "0", 2]]])),
    "bare media": batch(stored([11], None, one, extra_keys=[[mm]])),
    "other keys": batch(stored([11, 12], None, one + two, extra_keys=[[["img-1", 0], "secret", b"embeds", 5, [], [5, mm]],
                                                                    [mm[:63] + "1", "x" + mm[1:]]])),
    "keys of no block": batch(stored([11], None, one, extra_keys=[None, [mm, mm]])),
    "other groups": batch(stored([1], None, one, group_idx=1, kv_cache_spec_kind="sliding_window"),
                          stored([2], None, one, group_idx=0, kv_cache_spec_kind="full_attention"),
                          stored([3], None, one, group_idx=2, kv_cache_spec_kind="mamba"),
                          stored([4], None, one, group_idx=4, kv_cache_spec_kind="sink_full_attention"),
                          stored([5], None, one, group_idx=2),
                          {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 1},
                          {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU", "group_idx": 0},
                          ["BlockRemoved", [3], "GPU", 2],
                          {"type": "BlockRemoved", "block_hashes": [9], "group_idx": 9},
                          stored([6], None, one, group_idx=2, kv_cache_spec_kind="full_attention"),
                          ["BlockRemoved", [6], "GPU", 2]),
    "media of all names": batch(*[{"type": "BlockRemoved", "block_hashes": [i], "medium": w} for i, w in enumerate(
        ["GPU", "DEVICE", None, "CPU", "CPU_PINNED", "CPU_TIER1", "CPU_TIER2", "DISK", "NVME",
         "EXTERNAL", "NETWORK", "REMOTE", "SHARED", "FS"])]),
    "placeholder": batch(stored([11, 12], None, [], 0, medium="CPU"), stored([13], None, one)),
    "odd spans": batch(stored([11], None, one + two), stored([11, 12], None, one), stored([13], None, one)),
    "own parent": batch(stored([11], 11, one), stored([13], None, one)),
    "unknown types": batch({"type": "TierBlocksCleared", "tier": 3}, ["BlockTransferred", {"a": [1, {}]}], stored([13], None, one)),
    "unknown fields, any order": batch({"new": {"a": []}, "token_ids": one, "session_id": "s", "block_size": 4, "ownership": None,
                                        "locality": "LOCAL", "block_hashes": [11], "type": "BlockStored"}),
    "bad events": batch(5, "BlockStored", None, [], {}, {"block_hashes": [1]}, [5], {"type": 5}, ["BlockRemoved"],
                        stored("x", None, one), stored([1.5], None, one), stored([b""], None, one), stored([1], "x", one),
                        stored([1], None, [1, 2, 3, -4]), stored([1], None, [1, 2, 3, 2**32]), stored([1], None, [1, 2, 3, None]),
                        stored([1], None, None), stored([1], None, one, None), stored([1], None, one, "4"),
                        stored([], None, []), stored([1], None, one, medium=5), stored([1], None, one, lora_name=5),
                        stored([1], None, one, extra_keys=5), stored([1], None, one, extra_keys=[5]),
                        stored([1], None, one, group_idx=-1), stored([13], None, one)),
}

with open(os.path.join(here, "vectors.jsonl"), "w") as out:
    def write(name, payload):
        out.write(json.dumps({"name": name, "data": base64.b64encode(msgpack.packb(payload)).decode()}) + "\n")

    for name, payload in vectors.items():
        write(name, payload)
    for version in "1.2.1", "1.6.1":
        with open(os.path.join(captures, version + "-engine-events.run.json")) as f:
            cases = json.load(f)["cases"]
        for case in cases:
            if case["via"] == "zmq":
                write("capture %s %d" % (version, case["i"]), [case["t"], unhex(case["events"]), case["dp_rank"]])
