//! A tiny publisher of KV events: what vLLM's does, plus losing messages on purpose.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kv_feed::{Endpoint, FeedSpec, StoreSpec};
use routing::{StoreId, WorkerId};
use zmq::{Context, POLLIN, Socket, SocketType};

/// Framing of replay replies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// vLLM to 0.25, SGLang to 0.5.6.
    ThreeFrames,
    /// Later ones.
    FourFrames,
}

pub(crate) struct Publisher {
    live: Socket,
    replay: Option<(Socket, Form)>,
    kept: VecDeque<(u64, Vec<u8>)>,
    next: u64,
    /// Goes into the timestamps, as time does in real ones.
    run: u32,
    muted: bool,
}

const TOPIC: &[u8] = b"kv-events";

fn bind(kind: SocketType) -> Socket {
    let socket = Context::new().socket(kind).unwrap();
    socket.set_linger(0).unwrap();
    socket.bind("tcp://127.0.0.1:*").unwrap();
    socket
}

fn endpoint(socket: &Socket) -> String {
    socket.get_last_endpoint().unwrap().unwrap()
}

impl Publisher {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            replay: Some((bind(SocketType::ROUTER), form)),
            ..Self::without_replay()
        }
    }

    pub(crate) fn without_replay() -> Self {
        let live = bind(SocketType::XPUB);
        live.set_xpub_verbose(true).unwrap();
        Self {
            live,
            replay: None,
            kept: VecDeque::new(),
            next: 0,
            run: 0,
            muted: false,
        }
    }

    /// Returns a publisher without replay, at an address.
    pub(crate) fn bound_to(address: &str) -> Self {
        let live = Context::new().socket(SocketType::XPUB).unwrap();
        live.set_linger(0).unwrap();
        live.set_xpub_verbose(true).unwrap();
        live.bind(address).unwrap();
        Self {
            live,
            ..Self::without_replay()
        }
    }

    /// Returns a publisher that connects to `endpoint` and that a feed follows by binding it.
    pub(crate) fn connecting_to(endpoint: &str) -> Self {
        let live = Context::new().socket(SocketType::XPUB).unwrap();
        live.set_linger(0).unwrap();
        live.set_xpub_verbose(true).unwrap();
        live.connect(endpoint).unwrap();
        Self {
            live,
            ..Self::new(Form::FourFrames)
        }
    }

    /// Closes the live socket and opens it again at the same address. All subscribers are disconnected for a moment.
    pub(crate) fn reopen(&mut self) -> &mut Self {
        let address = endpoint(&self.live);
        self.live = Context::new().socket(SocketType::XPUB).unwrap();
        self.live.set_linger(0).unwrap();
        self.live.set_xpub_verbose(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // The address is free once libzmq has closed the old socket, which it does in its own time.
        while let Err(error) = self.live.bind(&address) {
            assert!(Instant::now() < deadline, "{address}: {error}");
            std::thread::yield_now();
        }
        self
    }

    /// Sets whether replays are answered from now on.
    pub(crate) fn mute(&mut self, muted: bool) -> &mut Self {
        self.muted = muted;
        self
    }

    /// Returns the specification of a store's feed.
    pub(crate) fn store_spec(&self) -> StoreSpec {
        StoreSpec {
            store: StoreId(1),
            name: "store".into(),
            endpoint: Endpoint::Connect(endpoint(&self.live)),
            curve: None,
        }
    }

    /// Publishes that the store holds an object of this block (Mooncake's own form), numbered from 1.
    pub(crate) fn publish_object(&mut self, block: u64) -> &mut Self {
        let payload = self.object(block);
        self.next += 1;
        let frames: [&[u8]; 3] = [b"", &self.next.to_be_bytes(), &payload];
        self.send_frames(&frames)
    }

    /// Publishes an object that no subscriber gets.
    pub(crate) fn lose_object(&mut self) -> &mut Self {
        self.next += 1;
        self
    }

    fn object(&self, block: u64) -> Vec<u8> {
        let key = format!("model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@{block:016x}");
        let text = |text: &str| rmpv::Value::from(text);
        let nil = rmpv::Value::Nil;
        let fields = [
            ("event_id", rmpv::Value::from(self.next)),
            ("timestamp", rmpv::Value::from(1_700_000_000_000_u64)),
            ("event_type", text("stored")),
            ("model_name", nil.clone()),
            ("tenant_id", text("default")),
            ("backend_id", text("b")),
            ("medium", text("cpu")),
            ("dp_rank", nil.clone()),
            ("group_id", nil),
            ("seq_hashes", rmpv::Value::Array(Vec::new())),
            ("object_key", text(&key)),
        ];
        let event = rmpv::Value::Map(
            fields
                .into_iter()
                .map(|(key, value)| (text(key), value))
                .collect(),
        );
        let envelope = [
            rmpv::Value::from(1_700_000_000_000_u64),
            rmpv::Value::Array(vec![event]),
            rmpv::Value::from(0),
        ];
        let mut payload = Vec::new();
        rmpv::encode::write_value(&mut payload, &rmpv::Value::Array(envelope.to_vec())).unwrap();
        payload
    }

    pub(crate) fn spec(&self) -> FeedSpec {
        FeedSpec {
            worker: WorkerId(1),
            name: "worker".into(),
            endpoint: Endpoint::Connect(endpoint(&self.live)),
            replay: self.replay.as_ref().map(|(socket, _)| endpoint(socket)),
            topic: String::new(),
            rank: None,
            adapter: None,
            curve: None,
        }
    }

    /// Waits until someone has subscribed: what is published before goes nowhere.
    #[track_caller]
    pub(crate) fn await_subscriber(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            while self.live.poll(POLLIN, 5).unwrap() == 0 {
                assert!(Instant::now() < deadline, "no subscriber came in time");
                self.serve();
            }
            // 0 is somebody who left.
            if self.live.recv_bytes(0).unwrap().first() == Some(&1) {
                return;
            }
        }
    }

    pub(crate) fn publish(&mut self, hash: u64) -> &mut Self {
        self.publish_as(Some(0), hash)
    }

    pub(crate) fn publish_as(&mut self, rank: Option<u16>, hash: u64) -> &mut Self {
        let payload = self.batch(rank, hash);
        self.publish_payload(&payload)
    }

    pub(crate) fn publish_payload(&mut self, payload: &[u8]) -> &mut Self {
        self.send_frames(&[TOPIC, &self.next.to_be_bytes(), payload]);
        self.keep(payload.to_vec());
        self
    }

    pub(crate) fn send_frames(&mut self, frames: &[&[u8]]) -> &mut Self {
        self.live.send_multipart(frames, 0).unwrap();
        self
    }

    /// Publishes a batch that no subscriber gets.
    pub(crate) fn lose(&mut self, hash: u64) -> &mut Self {
        let payload = self.batch(Some(0), hash);
        self.keep(payload);
        self
    }

    /// Drops the oldest batches from what can be replayed.
    pub(crate) fn forget(&mut self, batches: usize) -> &mut Self {
        self.kept.drain(..batches);
        self
    }

    /// Forgets all batches and restarts the numbering, as a new process at the same address would.
    pub(crate) fn start_anew(&mut self) -> &mut Self {
        self.kept.clear();
        self.next = 0;
        self.run += 1;
        self
    }

    fn keep(&mut self, payload: Vec<u8>) {
        self.kept.push_back((self.next, payload));
        self.next += 1;
    }

    /// Answers pending requests for replays; waits a little for one.
    pub(crate) fn serve(&mut self) {
        let Some((socket, form)) = &self.replay else {
            std::thread::yield_now();
            return;
        };
        if socket.poll(POLLIN, 5).unwrap() == 0 {
            return;
        }
        let request = socket.recv_multipart(0).unwrap();
        if self.muted {
            return;
        }
        let [client, empty, start] = &request[..] else {
            return;
        };
        assert!(empty.is_empty());
        let start = u64::from_be_bytes(start[..].try_into().unwrap());
        let reply = |topic: &[u8], sequence: u64, payload: &[u8]| {
            let number = sequence.to_be_bytes();
            let frames: &[&[u8]] = match form {
                Form::ThreeFrames => &[client, b"", &number, payload],
                Form::FourFrames => &[client, b"", topic, &number, payload],
            };
            socket.send_multipart(frames, 0).unwrap();
        };
        for (sequence, payload) in self.kept.iter().filter(|&&(sequence, _)| sequence >= start) {
            reply(TOPIC, *sequence, payload);
        }
        reply(b"", u64::MAX, b"");
    }

    /// Returns a batch with one block of one token.
    fn batch(&self, rank: Option<u16>, hash: u64) -> Vec<u8> {
        let (hashes, parent, tokens, block_size, lora) = ([hash], None::<u64>, [7], 1, None::<u64>);
        let event = ("BlockStored", hashes, parent, tokens, block_size, lora);
        rmp_serde::to_vec(&(f64::from(self.run) + 1.5, [event], rank)).unwrap()
    }
}
