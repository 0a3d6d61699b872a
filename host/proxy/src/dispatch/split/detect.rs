//! Dialect detection for a pool that names none: from its prefill workers' own pages, and from the answer to a trial
//! request.
//!
//! SGLang's `/server_info` names the role and the bootstrap port. vLLM's (in dev mode) names the connector. A Mooncake
//! bootstrap server answers `GET /query`. vLLM's `/metrics` has families of the NIXL connector.
//!
//! Where none of these identifies the dialect, one request in a while is tried with nixl's parameters. The other
//! connectors ignore them. An engine that hands blocks over in answer speaks nixl.
//!
//! Every SGLang engine whose bootstrap port is not configured is queried for it. It gets no leg before.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use routing::{Dialect, Role};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::dispatch::split::evidence::{self, PageQuery, Shown};
use crate::fleet::bootstrap::Bootstrap;
use crate::fleet::bootstrap_port::BootstrapPort;
use crate::fleet::pool::{Member, WorkerPool, alike};
use crate::tasks;

/// Intervals of the queries to workers: while the dialect is unknown, and once it is known.
const UNKNOWN_EVERY: Duration = Duration::from_secs(2);
const KNOWN_EVERY: Duration = Duration::from_secs(30);
/// Interval of the queries for bootstrap ports that engines have not named.
const AWAITED_EVERY: Duration = Duration::from_secs(2);
/// Timeout for one page.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for bootstrap ports: no other request waits for the answer of a busy engine.
const AWAITED_PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait of a request for the end of the first round.
const FIRST_ROUND: Duration = Duration::from_secs(3);
/// Interval of the trials with nixl's parameters.
const TRIAL_EVERY: Duration = Duration::from_secs(30);
/// Interval of the warnings of an unknown dialect.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Most servers of prefill workers queried in one round.
const MOST_QUERIED: usize = 16;

/// Advice for an unknown dialect.
const FIX: &str = "say what the engines were started with: `--dialect nixl`, `mooncake-connector`, `store` or `sglang`, or \
    pd = { dialect = \"...\" } in the pool; a bootstrap port other than 8998 goes after its worker's URL (`--prefill URL PORT`), \
    or into its `bootstrap`";

/// Detected dialect of a pool. Kept from snapshot to snapshot.
#[derive(Debug, Default)]
pub(crate) struct Detection {
    /// 0 while unknown, else one more than the dialect's place in [`Dialect::ALL`].
    dialect: AtomicU8,
    /// `true` once a round has ended.
    looked: AtomicBool,
    under_way: AtomicBool,
    ended: Notify,
    state: Mutex<DetectionState>,
}

#[derive(Debug, Default)]
struct DetectionState {
    evidence: Option<Arc<str>>,
    queried: Option<Instant>,
    /// Time of the last round for bootstrap ports.
    ports_queried: Option<Instant>,
    tried: Option<Instant>,
    warned: Option<Instant>,
}

/// Source of a pool's dialect, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialectReport {
    /// `configured`, `detected`, `detecting` (no round has ended yet) or `unknown`.
    pub state: &'static str,
    /// Evidence for the dialect, or the reason why it is unknown and the advice. `None` where the dialect is
    /// configured.
    pub reason: Option<Box<str>>,
}

/// Workers that a round queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The first ones, for the dialect.
    First,
    /// Those whose bootstrap port is awaited.
    Awaited,
}

/// Members at one URL, and the evidence that their server shows.
type Seen<'a> = (Vec<&'a Member>, Shown);

impl Detection {
    /// Returns the dialect. `None` while unknown.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        let place = usize::from(self.dialect.load(Ordering::Acquire)).checked_sub(1)?;
        Dialect::ALL.get(place).copied()
    }

    /// Returns the dialect, after the first round has ended.
    pub(super) async fn wait(&self) -> Option<Dialect> {
        let ended = self.ended.notified();
        if self.dialect().is_none() && !self.looked.load(Ordering::Acquire) {
            // On the heap: only the first requests wait.
            let _ = Box::pin(tokio::time::timeout(FIRST_ROUND, ended)).await;
        }
        self.dialect()
    }

    /// Returns `true` if this request is to be the trial, and records the trial.
    pub(super) fn may_try(&self) -> bool {
        let mut state = self.state();
        let may = state.tried.is_none_or(|tried| tried.elapsed() >= TRIAL_EVERY);
        if may {
            state.tried = Some(Instant::now());
        }
        may
    }

    /// Records the dialect and the evidence for it.
    pub(super) fn found(&self, pool: &str, dialect: Dialect, evidence: &str) {
        let place = Dialect::ALL.iter().position(|known| *known == dialect);
        let place = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0);
        let before = self.dialect.swap(place, Ordering::AcqRel);
        if before != place {
            info!(
                pool,
                dialect = dialect.as_str(),
                evidence,
                "detected the prefill/decode dialect of a pool"
            );
        }
        self.state().evidence = Some(evidence.into());
    }

    /// Returns the source of the dialect, or the reason why it is unknown.
    pub(crate) fn report(&self) -> DialectReport {
        let evidence = self.state().evidence.clone();
        match (self.dialect(), self.looked.load(Ordering::Acquire)) {
            (Some(_), _) => DialectReport {
                state: "detected",
                reason: evidence.map(|evidence| (*evidence).into()),
            },
            (None, false) => DialectReport {
                state: "detecting",
                reason: None,
            },
            (None, true) => DialectReport {
                state: "unknown",
                reason: Some(format!("{}; {FIX}", evidence.as_deref().unwrap_or_default()).into()),
            },
        }
    }

    /// Returns the round that is due, and records its time.
    fn due(&self, pool: &WorkerPool, now: Instant) -> Option<Round> {
        if self.under_way.load(Ordering::Relaxed) {
            return None;
        }
        let is_old = |queried: Option<Instant>, every: Duration| {
            queried.is_none_or(|queried| now.saturating_duration_since(queried) >= every)
        };
        let every = if self.dialect().is_some() {
            KNOWN_EVERY
        } else {
            UNKNOWN_EVERY
        };
        let mut state = self.state();
        if is_old(state.queried, every) {
            state.queried = Some(now);
            return Some(Round::First);
        }
        let mut awaited = bootstraps(pool)
            .map(|server| server.port())
            .filter(|port| port.is_awaited());
        let is_due = match is_old(state.ports_queried, AWAITED_EVERY) {
            true => awaited.next().is_some(),
            false => awaited.any(|port| port.queried_at().is_none()),
        };
        if is_due {
            state.ports_queried = Some(now);
        }
        is_due.then_some(Round::Awaited)
    }

    /// Records the result of a round: the evidence of these workers.
    fn ended(&self, pool: &DetectedPool, round: Round, seen: &[Seen<'_>]) {
        let speaking = seen.iter().find_map(|(members, shown)| match shown {
            Shown::Speaks { dialect, evidence } => Some((members.first()?, *dialect, evidence)),
            _ => None,
        });
        match (speaking, self.dialect()) {
            (Some((member, dialect, evidence)), _) if round == Round::First => {
                let worker = &*member.worker.spec().name;
                self.found(&pool.workers.name, dialect, &format!("{evidence} of {worker}"));
                self.warn_of_others(pool, dialect, seen);
            }
            (Some(_), Some(dialect)) => self.warn_of_others(pool, dialect, seen),
            (_, None) => self.stays_unknown(pool, seen),
            // Knowledge about engines that are gone or busy is kept.
            (None, Some(_)) => {}
        }
        self.record_at_servers(&pool.workers);
        self.end_round();
    }

    /// Records the end of a round: no request waits for it any more.
    fn end_round(&self) {
        self.looked.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }

    /// Records the dialect at the bootstrap servers, also of workers that have joined the pool.
    fn record_at_servers(&self, pool: &WorkerPool) {
        let dialect = self.dialect();
        bootstraps(pool).for_each(|server| server.speaks(dialect));
    }

    fn stays_unknown(&self, pool: &DetectedPool, seen: &[Seen<'_>]) {
        let workers = |is_counted: fn(&Shown) -> bool| {
            let counted = seen.iter().filter(|(_, shown)| is_counted(shown));
            counted.map(|(members, _)| members.len()).sum::<usize>()
        };
        let reached = workers(|shown| !matches!(shown, Shown::Unreachable));
        let refused = seen.iter().find_map(|(_, shown)| match shown {
            Shown::Refused(status) => Some(*status),
            _ => None,
        });
        let evidence = if seen.is_empty() {
            "the pool has no prefill worker".to_owned()
        } else if reached == 0 {
            format!("none of {} prefill workers can be reached", workers(|_| true))
        } else if let Some(status) = refused {
            format!(
                "{} of {reached} prefill workers answered /server_info with {status}: set the pool's `authorization` to their key",
                workers(|shown| matches!(shown, Shown::Refused(_)))
            )
        } else {
            format!(
                "none of {reached} prefill workers shows a connector on /server_info, its bootstrap server, /metrics or in its answers"
            )
        };
        self.state().evidence = Some(evidence.as_str().into());
        if reached == 0 || !self.may_warn() {
            return;
        }
        let alone = pool.alone;
        let meanwhile = if alone {
            "requests are not split: decode workers compute every prompt themselves"
        } else {
            "requests that need two workers are refused"
        };
        warn!(
            pool = &*pool.workers.name,
            evidence,
            meanwhile,
            fix = FIX,
            "failed to detect the prefill/decode dialect of a pool"
        );
    }

    fn warn_of_others(&self, pool: &DetectedPool, dialect: Dialect, seen: &[Seen<'_>]) {
        let other = seen.iter().find_map(|(members, shown)| match shown {
            Shown::Speaks { dialect: other, .. } if *other != dialect => Some((members.first()?, *other)),
            _ => None,
        });
        if let Some((member, other)) = other
            && self.may_warn()
        {
            warn!(
                pool = &*pool.workers.name,
                dialect = dialect.as_str(),
                worker = &*member.worker.spec().name,
                speaks = other.as_str(),
                "the prefill workers of a pool use different dialects: give each dialect a pool of its own"
            );
        }
    }

    fn may_warn(&self) -> bool {
        let mut state = self.state();
        let may = state.warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY);
        if may {
            state.warned = Some(Instant::now());
        }
        may
    }

    fn state(&self) -> MutexGuard<'_, DetectionState> {
        // Each change leaves whole values, whatever a panic elsewhere did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pool whose dialect is detected.
pub(super) struct DetectedPool {
    pub(super) detection: Arc<Detection>,
    pub(super) workers: Arc<WorkerPool>,
    /// Set if a decode worker may run the whole of a request.
    pub(super) alone: bool,
}

impl DetectedPool {
    /// Queries the prefill workers, if the next query is due.
    pub(super) fn query(self, background: &TaskTracker, stop: CancellationToken) {
        if self.detection.dialect().is_some() {
            self.detection.record_at_servers(&self.workers);
        }
        let Some(round) = self.detection.due(&self.workers, Instant::now()) else {
            return;
        };
        self.detection.under_way.store(true, Ordering::Relaxed);
        tasks::spawn(background, "dialect", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = look_at(&self.detection, &self, round) => {}
            }
            self.detection.under_way.store(false, Ordering::Relaxed);
        });
    }
}

async fn look_at(detection: &Detection, pool: &DetectedPool, round: Round) {
    let servers = queried(&pool.workers, round);
    let query = PageQuery {
        authorization: &pool.workers.authorization,
        patience: match round {
            Round::First => PATIENCE,
            Round::Awaited => AWAITED_PATIENCE,
        },
        is_for_port: round == Round::Awaited,
    };
    let shown = join_all(servers.iter().map(|members| evidence::look_at(members, query))).await;
    let seen: Vec<Seen<'_>> = servers.into_iter().zip(shown).collect();
    detection.ended(pool, round, &seen);
}

/// Returns the members that a round queries, by their servers: ranks share one.
fn queried(pool: &WorkerPool, round: Round) -> Vec<Vec<&Member>> {
    let members = pool.members.iter();
    let prefills: Vec<&Member> = members
        .filter(|member| member.worker.spec().role == Role::Prefill)
        .collect();
    let groups = alike(prefills.iter().map(|member| &*member.worker.spec().url));
    let mut servers: Vec<Vec<&Member>> = groups
        .iter()
        .map(|places| places.iter().map(|at| prefills[*at]).collect())
        .collect();
    if round == Round::Awaited {
        let awaited = |members: &Vec<&Member>| {
            let ports = members
                .iter()
                .filter_map(|member| Some(member.bootstrap.as_ref()?.port()));
            ports
                .filter(|port| port.is_awaited())
                .map(BootstrapPort::queried_at)
                .min()
        };
        servers.retain(|members| awaited(members).is_some());
        // Those without a query come first, and no server waits for ever behind others that do not answer.
        servers.sort_by_cached_key(awaited);
    }
    servers.truncate(MOST_QUERIED);
    servers
}

fn bootstraps(pool: &WorkerPool) -> impl Iterator<Item = &Bootstrap> {
    pool.members
        .iter()
        .filter_map(|member| member.bootstrap.as_deref())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn requests_wait_for_the_end_of_the_first_round_only() {
        let detection = Detection::default();
        {
            let mut first = std::pin::pin!(detection.wait());
            assert_eq!(first.as_mut().now_or_never(), None);
            detection.end_round();
            assert_eq!(first.now_or_never(), Some(None));
        }
        assert_eq!(detection.wait().now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn a_request_that_waited_for_the_first_round_gets_the_dialect_of_it() {
        let detection = Detection::default();
        let mut first = std::pin::pin!(detection.wait());
        assert_eq!(first.as_mut().now_or_never(), None);
        detection.found("pool", Dialect::Nixl, "evidence");
        detection.end_round();
        assert_eq!(first.now_or_never(), Some(Some(Dialect::Nixl)));
    }
}
