//! Dialect detection for a pool that names none: from its prefill workers' own pages, and from the answer to a trial
//! request.
//!
//! SGLang's `/server_info` names the role and the bootstrap port. vLLM's (in dev mode) names the connector. A Mooncake
//! bootstrap server answers `GET /query`. vLLM's `/metrics` has families of the NIXL connector.
//!
//! Where none of these identifies the dialect, one request in a while is tried with nixl's parameters. The other
//! connectors ignore them. An engine that hands blocks over in answer speaks nixl.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use routing::{Dialect, Role};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use worker_client::{ConnectionReuse, OutgoingRequest, SendTimeouts, read_body};

use crate::fleet::pool::{Member, WorkerPool};
use crate::fleet::worker::WorkerHandle;
use crate::tasks;

/// Intervals of the queries to workers: while the dialect is unknown, and once it is known.
const UNKNOWN_EVERY: Duration = Duration::from_secs(2);
const KNOWN_EVERY: Duration = Duration::from_secs(30);
/// Timeout for one page.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait of a request for the end of the first round.
const FIRST_ROUND: Duration = Duration::from_secs(3);
/// Interval of the trials with nixl's parameters.
const TRIAL_EVERY: Duration = Duration::from_secs(30);
/// Interval of the warnings of an unknown dialect.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Most prefill workers queried in one round.
const MOST_QUERIED: usize = 16;
/// Longest page that is read, in bytes.
const LONGEST_PAGE: usize = 4 << 20;

const SERVER_INFO: PathAndQuery = PathAndQuery::from_static("/server_info");
const METRICS: PathAndQuery = PathAndQuery::from_static("/metrics");

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

/// Evidence that one prefill worker shows.
#[derive(Debug)]
enum Shown {
    Speaks {
        dialect: Dialect,
        evidence: Box<str>,
        /// SGLang's bootstrap port.
        port: Option<u16>,
    },
    Nothing,
    Unreachable,
}

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
                "detected what the engines of a pool hand prompts over with"
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

    fn is_due(&self, now: Instant) -> bool {
        let every = if self.dialect().is_some() {
            KNOWN_EVERY
        } else {
            UNKNOWN_EVERY
        };
        let mut state = self.state();
        let is_due = !self.under_way.load(Ordering::Relaxed)
            && state
                .queried
                .is_none_or(|queried| now.saturating_duration_since(queried) >= every);
        if is_due {
            state.queried = Some(now);
        }
        is_due
    }

    /// Records the result of a round: the evidence of these workers.
    fn round(&self, pool: &DetectedPool, shown: &[(&Member, Shown)]) {
        let speaking = shown.iter().find_map(|(member, shown)| match shown {
            Shown::Speaks {
                dialect, evidence, ..
            } => Some((*member, *dialect, evidence)),
            _ => None,
        });
        match speaking {
            Some((member, dialect, evidence)) => {
                let worker = &*member.worker.spec().name;
                self.found(&pool.workers.name, dialect, &format!("{evidence} of {worker}"));
                self.warn_of_others(pool, dialect, shown);
            }
            None if self.dialect().is_none() => self.stays_unknown(pool, shown),
            // Knowledge about engines that are gone or busy is kept.
            None => {}
        }
        for bootstrap in pool
            .workers
            .members
            .iter()
            .filter_map(|member| member.bootstrap.as_ref())
        {
            bootstrap.speaks(self.dialect());
        }
        for (member, shown) in shown {
            if let (Some(bootstrap), Shown::Speaks { port: Some(port), .. }) = (&member.bootstrap, shown) {
                bootstrap.record_port(*port);
            }
        }
        self.looked.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }

    fn stays_unknown(&self, pool: &DetectedPool, shown: &[(&Member, Shown)]) {
        let reached = shown
            .iter()
            .filter(|(_, shown)| !matches!(shown, Shown::Unreachable))
            .count();
        let evidence = if shown.is_empty() {
            "the pool has no prefill worker".to_owned()
        } else if reached == 0 {
            format!("none of {} prefill workers can be reached", shown.len())
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
            "failed to detect what the engines of a pool hand prompts over with"
        );
    }

    fn warn_of_others(&self, pool: &DetectedPool, dialect: Dialect, shown: &[(&Member, Shown)]) {
        let other = shown.iter().find_map(|(member, shown)| match shown {
            Shown::Speaks { dialect: other, .. } if *other != dialect => Some((member, *other)),
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
                "the prefill workers of a pool hand prompts over in different ways; give each way a pool of its own"
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
        if !self.detection.is_due(Instant::now()) {
            return;
        }
        self.detection.under_way.store(true, Ordering::Relaxed);
        tasks::spawn(background, "dialect", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = look_at(&self.detection, &self) => {}
            }
            self.detection.under_way.store(false, Ordering::Relaxed);
        });
    }
}

async fn look_at(detection: &Detection, pool: &DetectedPool) {
    let is_prefill = |member: &&Member| member.worker.spec().role == Role::Prefill;
    let members: Vec<&Member> = pool
        .workers
        .members
        .iter()
        .filter(is_prefill)
        .take(MOST_QUERIED)
        .collect();
    let shown = join_all(members.iter().map(|member| look_at_worker(member))).await;
    let shown: Vec<(&Member, Shown)> = members.into_iter().zip(shown).collect();
    detection.round(pool, &shown);
}

async fn look_at_worker(member: &Member) -> Shown {
    let info = page(&member.link, &SERVER_INFO).await;
    if let Ok(Some(info)) = &info
        && let Some((dialect, port)) = inference_api::server_dialect(info)
    {
        let evidence = "/server_info".into();
        return Shown::Speaks {
            dialect,
            evidence,
            port,
        };
    }
    if let Some(bootstrap) = &member.bootstrap
        && bootstrap.answers().await
    {
        return Shown::Speaks {
            dialect: Dialect::Mooncake,
            evidence: format!("the bootstrap server {}", bootstrap.address()).into(),
            port: None,
        };
    }
    match page(&member.link, &METRICS).await {
        Ok(Some(metrics)) if memchr::memmem::find(&metrics, b"vllm:nixl_").is_some() => Shown::Speaks {
            dialect: Dialect::Nixl,
            evidence: "/metrics".into(),
            port: None,
        },
        Ok(_) => Shown::Nothing,
        Err(Unreachable) if info.is_err() => Shown::Unreachable,
        Err(Unreachable) => Shown::Nothing,
    }
}

struct Unreachable;

/// Fetches a page of the worker's, if it has one of that name.
async fn page(link: &WorkerHandle, page: &PathAndQuery) -> Result<Option<bytes::Bytes>, Unreachable> {
    let outgoing = OutgoingRequest {
        method: &Method::GET,
        target: page,
        headers: &HeaderMap::new(),
        rank: None,
        reuse: ConnectionReuse::WithRetry,
        traceparent: None,
        body: &bytes::Bytes::new(),
    };
    let limits = SendTimeouts {
        connect: PATIENCE,
        first_byte: PATIENCE,
    };
    let read = async {
        let answer = link.upstream.query(outgoing, limits).await;
        let answer = answer.map_err(|_| Unreachable)?;
        let is_there = answer.status().is_success();
        let mut body = answer.into_body();
        let text = read_body(&mut body, LONGEST_PAGE, PATIENCE).await;
        let text = text.map_err(|_| Unreachable)?;
        link.upstream.checkin(body);
        Ok(is_there.then_some(text))
    };
    let read = tokio::time::timeout(2 * PATIENCE, read).await;
    read.unwrap_or(Err(Unreachable))
}
