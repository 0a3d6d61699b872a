//! Troubles of one engine: it alternates between health and some fault; with a record of the faults.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use harness::Random;
use http::StatusCode;
use mock_engine::{EngineGone, MockEngine, RequestFault, Times};

/// Time in which the traces of a fault disappear: connections that it broke, a worker that is ejected.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Troubles that are remembered, the oldest of which go.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The process is gone with its connections and its cache, and comes back.
    Killed,
    /// Restarts at once.
    Restarted,
    /// Accepts requests and never answers.
    Hung,
    /// Every step takes many times as long.
    Slow,
    /// Answers with errors.
    Errors,
    /// Closes connections in the middle of answers.
    Cut,
}

const ALL: [Trouble; 6] = [
    Trouble::Killed,
    Trouble::Restarted,
    Trouble::Hung,
    Trouble::Slow,
    Trouble::Errors,
    Trouble::Cut,
];

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "killed",
            Self::Restarted => "restarted",
            Self::Hung => "hung",
            Self::Slow => "slow",
            Self::Errors => "errors",
            Self::Cut => "cut",
        })
    }
}

/// Record of engines, faults and times.
#[derive(Debug, Default)]
pub(super) struct Record(Mutex<Vec<Spell>>);

#[derive(Debug, Clone, Copy)]
struct Spell {
    engine: usize,
    trouble: Trouble,
    to: Option<Instant>,
}

impl Record {
    fn begins(&self, engine: usize, trouble: Trouble) {
        let mut spells = self.lock();
        if spells.len() >= REMEMBERED {
            spells.remove(0);
        }
        spells.push(Spell {
            engine,
            trouble,
            to: None,
        });
    }

    fn ends(&self, engine: usize) {
        let mut spells = self.lock();
        let last = spells.iter_mut().rev().find(|spell| spell.engine == engine);
        if let Some(last) = last {
            last.to = Some(Instant::now());
        }
    }

    /// Returns the faults of any engine since then, including their aftermath; sorted, each once.
    pub(super) fn since(&self, since: Instant) -> Vec<Trouble> {
        let spells = self.lock();
        let touches = |spell: &&Spell| spell.to.is_none_or(|to| to + AFTERMATH >= since);
        let mut troubles: Vec<_> = spells.iter().filter(touches).map(|spell| spell.trouble).collect();
        troubles.sort_unstable();
        troubles.dedup();
        troubles
    }

    /// Returns how often each fault has begun.
    pub(super) fn counts(&self) -> Vec<(Trouble, usize)> {
        let spells = self.lock();
        let count = |trouble| spells.iter().filter(|spell| spell.trouble == trouble).count();
        ALL.into_iter().map(|trouble| (trouble, count(trouble))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays faults until it is dropped.
pub(super) async fn play(engine: &MockEngine, number: usize, record: &Record, seed: u64) {
    let mut random = Random::new(seed);
    loop {
        tokio::time::sleep(random.ms(3_000, 20_000)).await;
        let trouble = random.one_of(&ALL);
        record.begins(number, trouble);
        let begun = begin(engine, trouble, &mut random).await;
        if trouble != Trouble::Restarted {
            tokio::time::sleep(random.ms(300, 6_000)).await;
        }
        let ended = end(engine, trouble).await;
        record.ends(number);
        if begun.and(ended).is_err() {
            return;
        }
    }
}

async fn begin(engine: &MockEngine, trouble: Trouble, random: &mut Random) -> Result<(), EngineGone> {
    let faults = engine.faults();
    match trouble {
        Trouble::Killed => return faults.refuse_connections().await,
        Trouble::Restarted => return faults.restart(Some(random.below(1 << 30) as u64)).await,
        Trouble::Hung => faults.on_requests(RequestFault::Hang, Times::UntilCleared),
        Trouble::Slow => faults.slow_down(20.0),
        Trouble::Errors => {
            let status = random.one_of(&[
                StatusCode::INTERNAL_SERVER_ERROR,
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::TOO_MANY_REQUESTS,
            ]);
            let fault = RequestFault::Status {
                status,
                retry_after: random.once_in(2).then_some(1),
            };
            faults.on_requests(fault, Times::UntilCleared);
        }
        Trouble::Cut => {
            let after_tokens = 1 + random.below(20) as u32;
            faults.on_requests(
                RequestFault::Cut { after_tokens },
                Times::Next(1 + random.below(8) as u32),
            );
        }
    }
    Ok(())
}

async fn end(engine: &MockEngine, trouble: Trouble) -> Result<(), EngineGone> {
    let faults = engine.faults();
    faults.clear();
    if trouble == Trouble::Killed {
        faults.restart(None).await?;
        return faults.accept_connections().await;
    }
    Ok(())
}

/// Restores every engine to health.
pub(super) async fn heal(engines: &[MockEngine]) {
    for engine in engines {
        engine.faults().clear();
        // Engines that listen go on; none has been stopped.
        let _ = engine.faults().accept_connections().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_counts_while_it_lasts_and_a_little_longer() {
        let record = Record::default();
        let before = Instant::now();
        record.begins(1, Trouble::Slow);
        record.begins(0, Trouble::Killed);
        record.begins(2, Trouble::Slow);
        assert_eq!(record.since(before), [Trouble::Killed, Trouble::Slow]);
        record.ends(1);
        record.ends(2);
        assert_eq!(record.since(Instant::now() + 2 * AFTERMATH), [Trouble::Killed]);
        assert_eq!(record.counts()[3], (Trouble::Slow, 2));
    }
}
