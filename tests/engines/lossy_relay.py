"""A relay between an engine's KV event sockets and a subscriber, which loses messages and goes away when told to.

Events: SUB to the engine, PUB to the subscriber. Replays: ROUTER to the subscriber, one DEALER to the engine for each of
its sockets. Everything runs on one thread of its own; times are time.monotonic().
"""

import random
import threading
import time

import zmq

ASKERS = 32  # Sockets asking for replays that are kept; a subscriber uses one for each replay.


class LossyRelay:
    def __init__(self, engine_events, engine_replay, events, replay, seed=1):
        self.engine_events, self.engine_replay = engine_events, engine_replay
        self.events, self.replay = events, replay
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.to_drop = 0  # The next so many are lost ...
        self.loss = 0.0  # ... and this part of all others.
        self.passed, self.lost, self.replays = 0, 0, 0
        self.last_passed_at = self.last_lost_at = None
        self.thread = None

    def start(self):
        """Returns once subscribers can connect and what the engine publishes arrives here."""
        self.stopping, ready = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, args=(self.stopping, ready), daemon=True)
        self.thread.start()
        if not ready.wait(10):
            raise RuntimeError("the relay does not start")
        return time.monotonic()

    def stop(self):
        """Closes every socket: to the subscriber it looks as if the relay had been killed."""
        self.stopping.set()
        self.thread.join()

    def drop(self, count):
        with self.lock:
            self.to_drop = count

    def lose(self, part):
        with self.lock:
            self.loss = part

    def dropping(self):
        with self.lock:
            return self.to_drop > 0

    def _run(self, stopping, ready):
        context = zmq.Context()
        try:
            inbound, askers = self._subscribe(context), {}
            outbound, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
            for socket, address in ((outbound, self.events), (router, self.replay)):
                bind(socket, address)
            ready.set()
            while not stopping.is_set():
                poller = zmq.Poller()
                for socket in (inbound, router, *askers.values()):
                    poller.register(socket, zmq.POLLIN)
                readable = dict(poller.poll(20))
                if inbound in readable:
                    self._pass_on(inbound.recv_multipart(), outbound)
                if router in readable:
                    self._ask(context, askers, *take(router))
                for asker, socket in list(askers.items()):
                    while socket in readable and socket.poll(0):
                        router.send_multipart([asker, *socket.recv_multipart()])
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
        # The engine takes the subscription in after the handshake; nothing tells when.
        time.sleep(0.1)
        return inbound

    def _pass_on(self, frames, outbound):
        with self.lock:
            lost = self.to_drop > 0 or self.random.random() < self.loss
            self.to_drop = max(0, self.to_drop - 1)
        if lost:
            self.lost += 1
            self.last_lost_at = time.monotonic()
        else:
            outbound.send_multipart(frames)
            self.passed += 1
            self.last_passed_at = time.monotonic()

    def _ask(self, context, askers, asker, question):
        self.replays += 1
        if asker not in askers:
            while len(askers) >= ASKERS:
                askers.pop(next(iter(askers))).close(0)
            askers[asker] = context.socket(zmq.DEALER)
            askers[asker].setsockopt(zmq.RCVHWM, 0)
            askers[asker].connect(self.engine_replay)
        askers[asker].send_multipart(question)


def take(router):
    asker, *question = router.recv_multipart()
    return asker, question


def bind(socket, address):
    """The address of a relay that was just stopped may be in use for a moment."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return socket.bind(address)
        except zmq.ZMQError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
