"""What an engine holds by its own account: its whole history of KV events, replayed from 0 and added up.

Independent of Conductor's decoders and index on purpose: blocks are joined by the engine's hashes, tokens compared whole.
"""

import time

import msgpack
import zmq

END = (1 << 64) - 1


class NoHistory(Exception):
    pass


class Truth:
    """The blocks held after the batch numbered `last`; None before the first."""

    def __init__(self):
        self.held = {}  # hash -> (parent hash or None, tokens)
        self.children = {}  # (parent, tokens) -> hash, of held blocks
        self.known = {}  # the same as `held` for every block ever stored
        self.last = None
        self.stored = self.removed = self.cleared = 0

    def apply(self, sequence, payload):
        expected = 0 if self.last is None else self.last + 1
        if sequence != expected:
            raise NoHistory(f"the engine replays {sequence} where {expected} should be")
        self.last = sequence
        for event in msgpack.unpackb(payload, strict_map_key=False)[1]:
            kind, hashes, parent, tokens, size = fields(event)
            if kind == "BlockStored":
                self._store(hashes, parent, tokens, size)
            elif kind == "BlockRemoved":
                for block in hashes:
                    self._remove(block)
            elif kind == "AllBlocksCleared":
                self.cleared += 1
                self.held.clear()
                self.children.clear()
            else:
                raise NoHistory(f"the engine publishes an event called {kind}")

    def _store(self, hashes, parent, tokens, size):
        for at, block in enumerate(hashes):
            entry = (parent, tuple(tokens[at * size : (at + 1) * size]))
            self.held[block] = self.known[block] = entry
            self.children[entry] = block
            self.stored += 1
            parent = block

    def _remove(self, block):
        self.removed += 1
        entry = self.held.pop(block, None)
        if entry is not None and self.children.get(entry) == block:
            del self.children[entry]

    def depth(self, tokens, size):
        """Tokens of the prompt's beginning that are held, without a hole."""
        parent, depth = None, 0
        while depth + size <= len(tokens):
            parent = self.children.get((parent, tuple(tokens[depth : depth + size])))
            if parent is None:
                break
            depth += size
        return depth

    def chains(self):
        """The tokens from the root to each block that was ever stored and has no successor: together, every block."""
        inner = {parent for parent, _ in self.known.values()}
        chains = []
        for block in self.known.keys() - inner:
            parts = []
            while block in self.known:
                block, tokens = self.known[block]
                parts.append(tokens)
            chains.append([token for part in reversed(parts) for token in part])
        return chains


def fields(event):
    """An event of either form: a map, or an array that begins with its type."""
    if isinstance(event, dict):
        wanted = (event.get(name) for name in ("block_hashes", "parent_block_hash", "token_ids", "block_size"))
        return event["type"], *wanted
    kind, *rest = event
    return kind, *(rest + [None] * 4)[:4]


def replay(endpoint, timeout_s=10.0):
    """The engine's history from its start. Both reply forms end in [..., number, payload], and the last has number -1."""
    context = zmq.Context.instance()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, 0)
    try:
        socket.connect(endpoint)
        socket.send_multipart([b"", (0).to_bytes(8, "big")])
        truth, deadline = Truth(), time.monotonic() + timeout_s
        while socket.poll(max(0, deadline - time.monotonic()) * 1_000):
            *_, number, payload = socket.recv_multipart()
            sequence = int.from_bytes(number, "big")
            if sequence == END:
                return truth
            truth.apply(sequence, payload)
        raise NoHistory(f"the engine does not answer at {endpoint}")
    finally:
        socket.close(0)


def settled(endpoint, timeout_s=15.0):
    """The truth, once nothing was published between two replays."""
    deadline = time.monotonic() + timeout_s
    before = replay(endpoint)
    while time.monotonic() < deadline:
        time.sleep(0.15)
        now = replay(endpoint)
        if now.last == before.last:
            return now
        before = now
    raise NoHistory(f"the engine at {endpoint} does not come to rest")
