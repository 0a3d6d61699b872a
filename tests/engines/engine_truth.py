"""Ground truth of an engine's KV cache: the sum of the engine's KV events, replayed from sequence number 0.

The module deliberately shares no code with Conductor's decoders and index.
Blocks are joined by the engine's hashes, and tokens are compared in full.
"""

import time

import msgpack
import zmq

END = (1 << 64) - 1


class HistoryError(Exception):
    """Error of an incomplete or unreadable event history."""


class CacheState:
    """Blocks that an engine's KV cache holds after batch `last`, which is None before the first batch."""

    def __init__(self):
        self.held = {}  # hash -> (parent hash or None, tokens)
        self.children = {}  # (parent, tokens) -> hash, of held blocks
        self.ever_stored = {}  # the same as `held`, for every block ever stored
        self.last = None
        self.stored_count = self.removed_count = self.cleared_count = 0

    def apply(self, sequence, payload):
        """Applies the next batch of events."""
        expected = 0 if self.last is None else self.last + 1
        if sequence != expected:
            raise HistoryError(f"the engine replayed batch {sequence} instead of {expected}")
        self.last = sequence
        for event in msgpack.unpackb(payload, strict_map_key=False)[1]:
            kind, hashes, parent, tokens, size = event_fields(event)
            if kind == "BlockStored":
                self._store(hashes, parent, tokens, size)
            elif kind == "BlockRemoved":
                for block in hashes:
                    self._remove(block)
            elif kind == "AllBlocksCleared":
                self.cleared_count += 1
                self.held.clear()
                self.children.clear()
            else:
                raise HistoryError(f"the engine published an event of unknown type {kind}")

    def _store(self, hashes, parent, tokens, size):
        for index, block in enumerate(hashes):
            entry = (parent, tuple(tokens[index * size : (index + 1) * size]))
            self.held[block] = self.ever_stored[block] = entry
            self.children[entry] = block
            self.stored_count += 1
            parent = block

    def _remove(self, block):
        self.removed_count += 1
        entry = self.held.pop(block, None)
        if entry is not None and self.children.get(entry) == block:
            del self.children[entry]

    def matched_tokens(self, tokens, block_size):
        """Returns the length, in tokens, of the prompt's longest prefix of held blocks."""
        parent, matched = None, 0
        while matched + block_size <= len(tokens):
            parent = self.children.get((parent, tuple(tokens[matched : matched + block_size])))
            if parent is None:
                break
            matched += block_size
        return matched

    def chains(self):
        """Returns the tokens from the root to each leaf of all blocks ever stored. Every block is in one of them."""
        inner = {parent for parent, _ in self.ever_stored.values()}
        chains = []
        for block in self.ever_stored.keys() - inner:
            parts = []
            while block in self.ever_stored:
                block, tokens = self.ever_stored[block]
                parts.append(tokens)
            chains.append([token for part in reversed(parts) for token in part])
        return chains


def event_fields(event):
    """Returns type, hashes, parent, tokens and block size of an event: a map, or an array that begins with the type."""
    if isinstance(event, dict):
        values = (event.get(name) for name in ("block_hashes", "parent_block_hash", "token_ids", "block_size"))
        return event["type"], *values
    kind, *rest = event
    return kind, *(rest + [None] * 4)[:4]


def replay_history(endpoint, timeout_s=10.0):
    """Returns the cache state after a replay of the engine's whole history.

    Both reply formats end in [..., sequence number, payload], and the last reply has sequence number -1.
    """
    context = zmq.Context.instance()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, 0)
    try:
        socket.connect(endpoint)
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        state, deadline = CacheState(), time.monotonic() + timeout_s
        while socket.poll(max(0, deadline - time.monotonic()) * 1_000):
            *_, number, payload = socket.recv_multipart()
            sequence = int.from_bytes(number, "big")
            if sequence == END:
                return state
            state.apply(sequence, payload)
        raise HistoryError(f"the engine did not finish a replay at {endpoint} in {timeout_s:.0f} s")
    finally:
        socket.close(0)


def stable_state(endpoint, timeout_s=15.0):
    """Returns the cache state as soon as two successive replays end at the same batch."""
    deadline = time.monotonic() + timeout_s
    before = replay_history(endpoint)
    while time.monotonic() < deadline:
        time.sleep(0.15)
        now = replay_history(endpoint)
        if now.last == before.last:
            return now
        before = now
    raise HistoryError(f"the engine at {endpoint} still published events after {timeout_s:.0f} s")
