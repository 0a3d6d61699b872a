//! Load: requests at a rate, over the routers in turn, as a load balancer sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use harness::{Client, Stream};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Requests at a time.
const MOST: usize = 256;

/// The load.
pub(crate) struct Load {
    addresses: Vec<String>,
    is_over: AtomicBool,
    is_paused: AtomicBool,
    in_flight: AtomicUsize,
    /// Router that is being ended, or none.
    ending: AtomicUsize,
    answered: AtomicU64,
    cut: AtomicU64,
    failed: AtomicU64,
}

/// Outcomes of all requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) answered: u64,
    /// Answers that a router was sending when it was killed.
    pub(crate) cut: u64,
    pub(crate) failed: u64,
}

/// Number of no router.
const NONE: usize = usize::MAX;

impl Load {
    pub(crate) fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            is_over: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            ending: AtomicUsize::new(NONE),
            answered: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Sends requests until it is stopped.
    pub(crate) async fn run(self: Arc<Self>, rate: f64) {
        let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut requests = JoinSet::new();
        let mut number = 0_usize;
        while !self.is_over.load(Ordering::Relaxed) {
            tick.tick().await;
            while requests.try_join_next().is_some() {}
            if self.is_paused.load(Ordering::Relaxed) || requests.len() >= MOST {
                continue;
            }
            number += 1;
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let load = Arc::clone(&self);
            requests.spawn(async move {
                load.request(number).await;
                load.in_flight.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while requests.join_next().await.is_some() {}
    }

    /// Sends a request to a router, and to the next one where none listens.
    async fn request(&self, number: usize) {
        let is_streamed = number.is_multiple_of(2);
        let body = json!({
            "model": "mock", "prompt": format!("question {number} of the soak"), "max_tokens": 8, "stream": is_streamed,
        });
        for turn in 0..self.addresses.len() {
            let at = (number + turn) % self.addresses.len();
            // A client of its own for each request: no connection outlives a router.
            let client = Client::new(self.addresses[at].clone());
            let begun = client.open("/v1/completions", &body).await;
            let whole = match begun {
                Ok(stream) => whole(stream, is_streamed).await,
                Err(_) if self.ending.load(Ordering::Relaxed) == at => continue,
                Err(error) => Err(error),
            };
            match whole {
                Ok(()) => self.answered.fetch_add(1, Ordering::Relaxed),
                Err(_) if self.ending.load(Ordering::Relaxed) == at => {
                    self.cut.fetch_add(1, Ordering::Relaxed)
                }
                Err(error) => {
                    eprintln!("request {number} at router {at} failed: {error:#}");
                    self.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
            return;
        }
        eprintln!("request {number}: no router listens");
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Pauses the load, and waits until nothing is in flight.
    pub(crate) async fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
        while self.in_flight.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets the load go on.
    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
    }

    /// Marks a router that is being ended; `None` once all are ready.
    pub(crate) fn ending(&self, router: Option<usize>) {
        self.ending.store(router.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// Opens streams that go on, so many at each router.
    pub(crate) async fn hold(&self, each: usize, but: Option<usize>) -> Result<Vec<Stream>> {
        // Without `ignore_eos`, the engine's answer ends after a second by itself.
        let body: Value = json!({
            "model": "mock", "prompt": "hold", "max_tokens": 60_000, "ignore_eos": true, "stream": true,
        });
        let mut held = Vec::new();
        for (at, address) in self.addresses.iter().enumerate() {
            if but == Some(at) {
                continue;
            }
            for _ in 0..each {
                let stream = Client::new(address.clone())
                    .open("/v1/completions", &body)
                    .await?;
                ensure!(stream.status.is_success(), "a held stream: {}", stream.status);
                held.push(stream);
            }
        }
        Ok(held)
    }

    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            answered: read(&self.answered),
            cut: read(&self.cut),
            failed: read(&self.failed),
        }
    }
}

/// Reads a whole answer.
async fn whole(stream: Stream, is_streamed: bool) -> Result<()> {
    let answer = stream.whole().await?;
    ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.text());
    let is_whole = !is_streamed || answer.text().ends_with("data: [DONE]\n\n");
    ensure!(is_whole, "the stream has no end: {}", answer.text());
    Ok(())
}
