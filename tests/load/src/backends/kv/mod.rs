//! KV events of the backends over ZMQ, so that a router's index is filled and changes continuously.
//!
//! Each backend has a publisher. It announces its contents to every subscriber at once: the shared prompts of a few
//! groups (`generate`), and unrelated blocks up to the size of a real cache. After that it stores and removes a few
//! blocks at a steady pace. One thread serves all of them.

mod holding;
mod wire;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use zmq::{Context, Socket};

use holding::Holding;

/// Blocks that all backends hold together, besides what prompts share: 4 million tokens.
const FILL: u64 = 1 << 18;
/// Batches per second and backend, after the initial announcement.
const PACE: u32 = 4;
/// Messages that a slow subscriber may lag behind; the first ones come all at once.
const LAG: i32 = 1_000_000;

/// Publishers that run until the process ends.
#[derive(Debug)]
pub struct Publishers {
    endpoints: Vec<String>,
}

impl Publishers {
    /// Starts one publisher for each of `count` backends, on any ports of 127.0.0.1.
    ///
    /// # Errors
    /// Where there are no sockets or no thread to be had.
    pub fn start(count: u16) -> Result<Self> {
        let context = Context::new();
        let mut publishers = Vec::new();
        let mut endpoints = Vec::new();
        for number in 0..count {
            // One that sees its subscribers come.
            let socket = context
                .socket(zmq::XPUB)
                .context("failed to create a ZMQ socket")?;
            socket.set_sndhwm(LAG).context("failed to set up a ZMQ socket")?;
            socket
                .set_xpub_verbose(true)
                .context("failed to set up a ZMQ socket")?;
            socket.set_linger(0).context("failed to set up a ZMQ socket")?;
            socket
                .bind("tcp://127.0.0.1:*")
                .context("failed to bind a ZMQ socket")?;
            let endpoint = socket
                .get_last_endpoint()
                .context("failed to read a ZMQ address")?;
            endpoints.push(endpoint.map_err(|_| anyhow::anyhow!("a ZMQ address is no text"))?);
            publishers.push(Publisher {
                socket,
                holding: Holding::new(number, count, FILL / u64::from(count)),
                sequence: 0,
                has_subscriber: false,
            });
        }
        thread::Builder::new()
            .name("kv-events".to_owned())
            .spawn(move || serve(&mut publishers))
            .context("failed to start a thread")?;
        Ok(Self { endpoints })
    }

    /// Returns the endpoints of the publishers.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Returns the minimum number of blocks that `count` backends hold together after the initial announcement.
    #[must_use]
    pub fn blocks(count: u16) -> u64 {
        let of = |number| Holding::new(number, count, FILL / u64::from(count)).blocks();
        (0..count).map(of).sum()
    }
}

struct Publisher {
    socket: Socket,
    holding: Holding,
    sequence: u64,
    /// A subscriber has connected.
    has_subscriber: bool,
}

fn serve(publishers: &mut [Publisher]) {
    let step = Duration::from_secs(1) / PACE;
    let mut next = Instant::now() + step;
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        let mut items: Vec<_> = publishers
            .iter()
            .map(|publisher| publisher.socket.as_poll_item(zmq::POLLIN))
            .collect();
        // An interrupted wait is a short one.
        let _ = zmq::poll(&mut items, i64::try_from(wait.as_millis()).unwrap_or(0));
        publishers.iter_mut().for_each(Publisher::welcome);
        if Instant::now() >= next {
            next += step;
            publishers.iter_mut().for_each(Publisher::go_on);
        }
    }
}

impl Publisher {
    /// Announces the contents to new subscribers.
    fn welcome(&mut self) {
        let mut new = false;
        while let Ok(message) = self.socket.recv_bytes(zmq::DONTWAIT) {
            // A subscription begins with 1, its end with 0.
            new |= message.first() == Some(&1);
        }
        if new {
            self.has_subscriber = true;
            let batches = self.holding.batches();
            batches.iter().for_each(|batch| self.send(batch));
        }
    }

    fn go_on(&mut self) {
        if self.has_subscriber {
            let batch = self.holding.change();
            self.send(&batch);
        }
    }

    fn send(&mut self, payload: &[u8]) {
        let sequence = self.sequence.to_be_bytes();
        self.sequence += 1;
        // A subscriber that has gone or lags misses it, as with a real engine.
        let _ = self
            .socket
            .send_multipart([b"kv-events", &sequence[..], payload], zmq::DONTWAIT);
    }
}
