"""One part of a real Dynamo deployment, from the ai-dynamo-runtime wheel alone.

    dynamo_stack.py worker --role aggregated|prefill|decode --block-size N --blocks N --ranks N --namespace NS
                           [--speedup X] [--host-blocks N] [--durable]
    dynamo_stack.py frontend --port PORT --router direct|kv

A worker is Dynamo's mocker engine behind Dynamo's real worker code: it registers
in discovery, publishes KV events and serves requests. The frontend is Dynamo's
real OpenAI frontend. In direct mode it sends a request to the worker that the
request's headers name. In kv mode it chooses workers itself, and tells other
routers what it placed where.

When its runtime is up a worker prints one line of JSON on stdout:
{"instance_id": n}. Everything else goes to stderr. A part ends on SIGTERM, and
when its stdin closes, so that it never outlives the test that started it.

Read from the environment: DYN_MODEL (the model directory, which is also the
model's name) and what Dynamo itself reads: NATS_SERVER, DYN_EVENT_PLANE,
DYN_DISCOVERY_BACKEND, DYN_FILE_KV or KUBECONFIG and POD_NAME, DYN_TCP_RPC_HOST,
DYN_LOG.
"""

import argparse
import asyncio
import json
import os
import signal
import sys

import uvloop
from dynamo import _core, llm
from dynamo.runtime import DistributedRuntime

# A worker has this long to leave discovery before its process ends.
GRACE_SECONDS = 0.3


def new_runtime():
    """A runtime on the event plane and discovery named by the environment."""
    args = [asyncio.get_running_loop(), os.environ["DYN_DISCOVERY_BACKEND"], "tcp"]
    try:
        # From 1.3 on the event plane is an argument, and is not NATS by default.
        return DistributedRuntime(*args, event_plane=os.environ["DYN_EVENT_PLANE"])
    except TypeError:
        return DistributedRuntime(*args)


# What a token takes in the cache. It sets the pace of moves between device and
# host, nothing else.
KV_BYTES_PER_TOKEN = 114688


def mocker_args(opts):
    """The mocker engine's settings: up to 1.5 flat, in 1.6 a document."""
    engine = {
        "num_gpu_blocks": opts.blocks,
        "block_size": opts.block_size,
        "worker_type": opts.role,
        "speedup_ratio": opts.speedup,
        "enable_prefix_caching": True,
    }
    if hasattr(_core, "MockEngineArgs"):
        if opts.host_blocks:
            raise SystemExit("this release's mocker has no host tier")
        return _core.MockEngineArgs(
            engine_type="vllm",
            dp_size=opts.ranks,
            enable_local_indexer=not opts.durable,
            **engine,
        )
    if opts.host_blocks:
        engine["native_host_offload"] = {"num_host_blocks": opts.host_blocks}
        engine["kv_cache_bytes_per_token"] = KV_BYTES_PER_TOKEN
    return _core._normalize_mocker_config(
        {
            "dp_size": opts.ranks,
            "engine": {"backend": "vllm", **engine},
            "dynamo": {"enable_local_indexer": not opts.durable},
        }
    )


def runtime_config(opts):
    """What the worker tells frontends about itself in its model card."""
    publishes = opts.role != "decode"
    config = llm.ModelRuntimeConfig()
    config.total_kv_blocks = opts.blocks
    config.max_num_seqs = 256
    config.max_num_batched_tokens = 8192
    config.data_parallel_size = opts.ranks
    # Without a local indexer a worker of 1.2 and 1.3 publishes to JetStream.
    config.enable_local_indexer = publishes and not opts.durable
    if hasattr(config, "kv_event_publishing_enabled"):
        config.kv_event_publishing_enabled = publishes
    return config


async def start_worker(opts):
    runtime = new_runtime()
    component = "prefill" if opts.role == "prefill" else "backend"
    path = f"{opts.namespace}.{component}.generate"
    instance = runtime.endpoint(path).connection_id()
    settings = {
        "engine_type": llm.EngineType.Mocker,
        "model_path": os.environ["DYN_MODEL"],
        "endpoint_id": f"dyn://{path}",
        "mocker_engine_args": mocker_args(opts),
        "runtime_config": runtime_config(opts),
        "kv_cache_block_size": opts.block_size,
        "is_prefill": opts.role == "prefill",
    }
    try:
        entry = llm.EntrypointArgs(is_decode=opts.role == "decode", **settings)
    except TypeError:
        # 1.2 knows a decode worker only by its being no prefill worker.
        entry = llm.EntrypointArgs(**settings)
    engine = await llm.make_engine(runtime, entry)
    return runtime, instance, llm.run_input(runtime, f"dyn://{path}", engine)


def router_config(opts):
    if opts.router == "direct":
        return llm.RouterConfig(llm.RouterMode.Direct, None)
    return llm.RouterConfig(llm.RouterMode.KV, llm.KvRouterConfig(router_replica_sync=True))


async def start_frontend(opts):
    runtime = new_runtime()
    entry = llm.EntrypointArgs(
        llm.EngineType.Dynamic,
        http_host="127.0.0.1",
        http_port=opts.port,
        router_config=router_config(opts),
    )
    engine = await llm.make_engine(runtime, entry)
    return runtime, None, llm.run_input(runtime, "http", engine)


def parse():
    parser = argparse.ArgumentParser()
    parts = parser.add_subparsers(dest="part", required=True)
    worker = parts.add_parser("worker")
    worker.add_argument("--role", choices=["aggregated", "prefill", "decode"], required=True)
    worker.add_argument("--block-size", type=int, required=True)
    worker.add_argument("--blocks", type=int, required=True)
    worker.add_argument("--ranks", type=int, required=True)
    worker.add_argument("--namespace", required=True)
    worker.add_argument("--speedup", type=float, default=20.0, help="over a real engine's pace")
    worker.add_argument("--host-blocks", type=int, default=0)
    worker.add_argument("--durable", action="store_true")
    frontend = parts.add_parser("frontend")
    frontend.add_argument("--port", type=int, required=True)
    frontend.add_argument("--router", choices=["direct", "kv"], required=True)
    return parser.parse_args()


def stop_event():
    """Set by SIGTERM, SIGINT or the end of stdin."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def readable():
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    try:
        loop.add_reader(0, readable)
    except PermissionError:
        # A file or /dev/null, when started by hand: there is no end to wait for.
        pass
    return stop


async def main():
    opts = parse()
    start = start_worker if opts.part == "worker" else start_frontend
    runtime, instance, serving = await start(opts)
    # Not before: the start blocks the loop, for minutes when NATS is away, and
    # until here a signal's default action ends the process at once.
    stop = stop_event()
    if instance is not None:
        print(json.dumps({"instance_id": instance}), flush=True)
    served = asyncio.ensure_future(serving)
    stopped = asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait({served, stopped}, return_when=asyncio.FIRST_COMPLETED)
    code = 0
    if served in done:
        # Serving ends by itself only when something is wrong.
        print(f"serving ended by itself: {served.exception()!r}", file=sys.stderr, flush=True)
        code = 1
    runtime.shutdown()
    await asyncio.sleep(GRACE_SECONDS)
    # The runtime's own threads keep an interpreter alive for seconds more.
    os._exit(code)


if __name__ == "__main__":
    # No thread pool for tokenizing: prompts here are tiny.
    os.environ.setdefault("DYN_COMPUTE_THREADS", "0")
    uvloop.run(main())
