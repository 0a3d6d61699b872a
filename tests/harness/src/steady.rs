//! Load at a steady rate, independent of the answers' durations: measures latencies and failures.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::client::Client;

/// Requests that are all the same.
#[derive(Debug, Clone)]
pub struct Steady {
    /// Client with the target.
    pub client: Client,
    /// Body of the requests.
    pub body: Value,
    /// Headers of the requests.
    pub headers: Vec<(&'static str, &'static str)>,
    /// Requests per second.
    pub rate: u32,
}

/// Results of the requests.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// Durations of each request that was answered with 200, sorted.
    pub times: Vec<Duration>,
    /// Number of requests that were not.
    pub failed: usize,
}

impl Steady {
    /// Sends for so long, and waits for the last answer. A time begins when its request was due.
    pub async fn run(&self, length: Duration) -> Taken {
        let taken = Arc::<Mutex<Taken>>::default();
        let mut requests = JoinSet::new();
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / self.rate.max(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let started = Instant::now();
        while started.elapsed() < length {
            let due = ticks.tick().await.into_std();
            let (steady, taken) = (self.clone(), Arc::clone(&taken));
            requests.spawn(async move {
                let good = steady.send().await;
                let took = due.elapsed();
                let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                if good {
                    taken.times.push(took);
                } else {
                    taken.failed += 1;
                }
            });
            while requests.try_join_next().is_some() {}
        }
        requests.join_all().await;
        let mut taken = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
        taken.times.sort_unstable();
        taken
    }

    async fn send(&self) -> bool {
        let body = Bytes::from(self.body.to_string());
        let answer = self
            .client
            .stream(Method::POST, "/v1/chat/completions", &self.headers, body)
            .await;
        match answer {
            Ok(answer) => answer
                .whole()
                .await
                .is_ok_and(|answer| answer.status == StatusCode::OK),
            Err(_) => false,
        }
    }
}

impl Taken {
    /// Returns the time that this share of the answers did not exceed; zero without answers.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.times.get(at).copied().unwrap_or_default()
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} answered, {} failed, p50 {:.2?}, p99 {:.2?}, slowest {:.2?}",
            self.times.len(),
            self.failed,
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(1.0),
        )
    }
}
