//! A pool: its engines, and when each of them was unable to do what.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use harness::SplitFleet;
use mock_engine::{MockEngine, PdDialect};

const TIME_SCALE: f64 = 5.0;
/// Engines' own timeouts, in real time: longer than the router waits for a leg, as in real ones.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(12);
const PREFILL: usize = 2;
const DECODE: usize = 2;

/// Fault of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// The process was restarted.
    Restart,
    /// The engine does not listen; it is restarted at the end.
    Outage,
    /// 503 with `Retry-After`.
    Busy,
    /// Answers are cut off after some tokens.
    Cut,
    /// The engine takes several times as long.
    Slow,
    /// The bootstrap server of a prefill engine is down.
    Bootstrap,
    /// The answers of a prefill engine lack parameters, and the model stops at the first token.
    Lapse,
}

/// Time span from before a fault began until after it was over.
#[derive(Debug, Clone, Copy)]
struct Span {
    trouble: Trouble,
    /// End. `None` while the fault lasts.
    to: Option<Instant>,
}

pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) dialect: PdDialect,
    pub(crate) fleet: SplitFleet,
    /// Faults of each engine, prefill ones first.
    troubles: Vec<Mutex<Vec<Span>>>,
}

impl Pool {
    pub(crate) async fn start(name: &str) -> Result<Self> {
        let dialect = match name {
            "nixl" => PdDialect::Nixl,
            "mooncake" => PdDialect::Mooncake,
            "store" => PdDialect::Store,
            "sglang" => PdDialect::Sglang,
            _ => bail!("there is no dialect `{name}`"),
        };
        let fleet = SplitFleet::start(dialect, (PREFILL, DECODE), |config| {
            config.time_scale = TIME_SCALE;
            if let Some(pd) = &mut config.pd {
                pd.lease = ENGINE_TIMEOUT.mul_f64(TIME_SCALE);
                pd.abort_timeout = ENGINE_TIMEOUT.mul_f64(TIME_SCALE);
            }
        })
        .await?;
        Ok(Self {
            name: name.to_owned(),
            dialect,
            fleet,
            troubles: (0..PREFILL + DECODE).map(|_| Mutex::default()).collect(),
        })
    }

    pub(crate) fn engines(&self) -> usize {
        self.troubles.len()
    }

    pub(crate) fn is_prefill(engine: usize) -> bool {
        engine < PREFILL
    }

    pub(crate) fn engine(&self, number: usize) -> &MockEngine {
        if Self::is_prefill(number) {
            &self.fleet.prefill[number]
        } else {
            &self.fleet.decode[number - PREFILL]
        }
    }

    /// Records the begin of a fault. Called before the fault is caused.
    pub(crate) fn begins(&self, engine: usize, trouble: Trouble) {
        self.spans(engine).push(Span { trouble, to: None });
    }

    /// Records the end of a fault. Called after the fault has ended.
    pub(crate) fn ends(&self, engine: usize) {
        if let Some(last) = self.spans(engine).last_mut() {
            last.to = Some(Instant::now());
        }
    }

    /// Returns `true` if every prefill engine, or every decode engine, had such a fault at some time since.
    pub(crate) fn each_was(&self, prefill: bool, since: Instant, like: impl Fn(Trouble) -> bool) -> bool {
        (0..self.engines())
            .filter(|&engine| Self::is_prefill(engine) == prefill)
            .all(|engine| self.was(engine, since, &like))
    }

    /// Returns `true` if the engine had such a fault at some time since.
    fn was(&self, engine: usize, since: Instant, like: impl Fn(Trouble) -> bool) -> bool {
        let spans = self.spans(engine);
        // An engine's troubles follow one another.
        let mut recent = spans
            .iter()
            .rev()
            .take_while(|span| span.to.is_none_or(|to| to >= since));
        recent.any(|span| like(span.trouble))
    }

    /// Returns `true` if this decode worker, or any if the name is unknown, had such a fault.
    pub(crate) fn decode_was(&self, worker: &str, since: Instant, like: impl Fn(Trouble) -> bool) -> bool {
        (PREFILL..self.engines())
            .filter(|engine| worker.is_empty() || worker == format!("{}-d{}", self.name, engine - PREFILL))
            .any(|engine| self.was(engine, since, &like))
    }

    /// Formats the faults since then.
    pub(crate) fn troubles(&self, since: Instant) -> String {
        let mut text = String::new();
        for (engine, (_, name, _)) in self.fleet.engines().enumerate() {
            let spans = self.spans(engine);
            let recent = spans.iter().filter(|span| span.to.is_none_or(|to| to >= since));
            for span in recent {
                let _ = write!(text, " {name} {:?}", span.trouble);
            }
        }
        text
    }

    /// Ends whatever is wrong.
    pub(crate) async fn heal(&self) -> Result<()> {
        for engine in 0..self.engines() {
            let faults = self.engine(engine).faults();
            faults.clear();
            faults.accept_connections().await?;
        }
        Ok(())
    }

    /// Returns what remains of any request.
    pub(crate) fn left(&self) -> Vec<String> {
        let left = self.fleet.left().into_iter();
        left.map(|engine| format!("{} {engine}", self.name)).collect()
    }

    fn spans(&self, engine: usize) -> MutexGuard<'_, Vec<Span>> {
        self.troubles[engine]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats the faults and the counters.
impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        for (engine, (_, name, mock)) in self.fleet.engines().enumerate() {
            let mut troubles: Vec<_> = self.spans(engine).iter().map(|span| span.trouble).collect();
            troubles.sort_unstable();
            let counts = troubles.chunk_by(|a, b| a == b);
            let counts: Vec<_> = counts
                .map(|same| format!("{} {:?}", same.len(), same[0]))
                .collect();
            let stats = mock.stats();
            let legs = stats.prefill_legs + stats.decode_legs;
            write!(
                f,
                "\n  {name}: {legs} legs, {} faulty; {}",
                stats.faulted,
                counts.join(", ")
            )?;
        }
        Ok(())
    }
}
