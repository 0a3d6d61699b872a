"""Relay between an engine's KV event sockets and a subscriber, which can drop messages and be stopped and restarted.

Events: a SUB socket to the engine, a PUB socket to the subscriber.
Replays: a ROUTER socket to the subscriber, and a DEALER socket to the engine for each replay client.
All sockets are used by one thread. Times are those of time.monotonic().
"""

import random
import threading
import time

import zmq

MAX_REPLAY_CLIENTS = 32  # Replay clients with an open socket to the engine. A subscriber uses one for each replay.


class LossyRelay:
    def __init__(self, engine_events, engine_replay, events, replay, seed=1):
        self.engine_events, self.engine_replay = engine_events, engine_replay
        self.events, self.replay = events, replay
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.drops_left = 0  # Number of next messages to drop.
        self.loss_rate = 0.0  # Probability to drop any other message.
        self.forwarded_count, self.dropped_count, self.replay_count = 0, 0, 0
        self.last_forwarded_at = self.last_dropped_at = None
        self.thread = None

    def start(self):
        """Starts the relay. Returns the time when its sockets are bound and its subscription is active."""
        self.stopping, ready = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, args=(self.stopping, ready), daemon=True)
        self.thread.start()
        if not ready.wait(10):
            raise RuntimeError("the relay did not start in 10 s")
        return time.monotonic()

    def stop(self):
        """Closes every socket, as if the relay's process had been killed."""
        self.stopping.set()
        self.thread.join()

    def drop_next(self, count):
        with self.lock:
            self.drops_left = count

    def set_loss_rate(self, rate):
        with self.lock:
            self.loss_rate = rate

    def is_dropping(self):
        with self.lock:
            return self.drops_left > 0

    def _run(self, stopping, ready):
        context = zmq.Context()
        try:
            inbound, replay_sockets = self._subscribe(context), {}
            outbound, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
            for socket, address in ((outbound, self.events), (router, self.replay)):
                bind_with_retries(socket, address)
            ready.set()
            while not stopping.is_set():
                poller = zmq.Poller()
                for socket in (inbound, router, *replay_sockets.values()):
                    poller.register(socket, zmq.POLLIN)
                readable = dict(poller.poll(20))
                if inbound in readable:
                    self._forward_or_drop(inbound.recv_multipart(), outbound)
                if router in readable:
                    self._forward_replay_request(context, replay_sockets, *receive_replay_request(router))
                for client, socket in list(replay_sockets.items()):
                    while socket in readable and socket.poll(0):
                        router.send_multipart([client, *socket.recv_multipart()])
        finally:
            context.destroy(linger=0)

    def _subscribe(self, context):
        inbound = context.socket(zmq.SUB)
        inbound.setsockopt(zmq.RECONNECT_IVL, 50)
        inbound.setsockopt(zmq.SUBSCRIBE, b"")
        monitor = inbound.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        inbound.connect(self.engine_events)
        monitor.poll(5_000)
        inbound.disable_monitor()
        # The engine processes the subscription after the handshake, without an acknowledgement.
        time.sleep(0.1)
        return inbound

    def _forward_or_drop(self, frames, outbound):
        with self.lock:
            is_dropped = self.drops_left > 0 or self.random.random() < self.loss_rate
            self.drops_left = max(0, self.drops_left - 1)
        if is_dropped:
            self.dropped_count += 1
            self.last_dropped_at = time.monotonic()
        else:
            outbound.send_multipart(frames)
            self.forwarded_count += 1
            self.last_forwarded_at = time.monotonic()

    def _forward_replay_request(self, context, replay_sockets, client, request):
        self.replay_count += 1
        if client not in replay_sockets:
            while len(replay_sockets) >= MAX_REPLAY_CLIENTS:
                replay_sockets.pop(next(iter(replay_sockets))).close(0)
            replay_sockets[client] = context.socket(zmq.DEALER)
            replay_sockets[client].setsockopt(zmq.RCVHWM, 0)
            replay_sockets[client].connect(self.engine_replay)
        replay_sockets[client].send_multipart(request)


def receive_replay_request(router):
    client, *request = router.recv_multipart()
    return client, request


def bind_with_retries(socket, address):
    """Binds the socket. The address of a relay that was just stopped may still be in use for a moment."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return socket.bind(address)
        except zmq.ZMQError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
