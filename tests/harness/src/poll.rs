//! Waiting for a state ("the policy is swapped"), never for a moment: polls until it holds or the deadline passes.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// Far above what anything here takes, so that only a real failure reaches it.
pub const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `look` succeeds.
///
/// # Panics
/// After [`DEADLINE`], naming what was waited for.
#[track_caller]
pub fn eventually<F, Fut>(what: &str, mut look: F) -> impl Future<Output = ()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    eventually_ok(what, move || {
        let seen = look();
        async move { if seen.await { Ok(()) } else { Err("not yet") } }
    })
}

/// Waits until `look` gives a value; the last refusal is shown when it never does.
///
/// # Panics
/// After [`DEADLINE`].
#[track_caller]
pub fn eventually_ok<F, Fut, T, E>(what: &str, mut look: F) -> impl Future<Output = T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Debug,
{
    let what = what.to_owned();
    let caller = std::panic::Location::caller();
    async move {
        let started = Instant::now();
        loop {
            match look().await {
                Ok(value) => return value,
                Err(refusal) => assert!(
                    started.elapsed() < DEADLINE,
                    "{caller}: never happened: {what}; last seen: {refusal:?}"
                ),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
