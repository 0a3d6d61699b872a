//! Between the generated bindings and [`Policy`]: what [`crate::export_policy!`] expands to calls these.

use std::sync::OnceLock;

use crate::bindings::conductor::policy as imports;
use crate::bindings::exports::conductor::policy as exports;
use crate::call::{self, WorkerId};
use crate::host::{About, Host, Level, Refusal, Role, Tier};
use crate::policy::{Configured, Policy};
use crate::verdict;

pub use exports::policy::{Guest as PolicyExport, Manifest, Plan};
pub use exports::schedule::{Candidates, Guest as ScheduleExport, Request, Verdict};
use imports::types::{Choice, Hold, Phase, Rejection};

/// Who the policy is.
#[must_use]
pub fn describe<P: Policy>() -> Manifest {
    Manifest {
        name: P::NAME.to_owned(),
        version: P::VERSION.to_owned(),
    }
}

/// The instance's policy, once `configure` has made it.
pub struct Instance<P>(OnceLock<Configured<P>>);

impl<P: Policy> Instance<P> {
    /// Not configured yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "made once, in a static")]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Configures this instance.
    ///
    /// # Errors
    /// Text for the operator; also where the instance is configured already.
    pub fn configure(&self, params: &str) -> Result<Plan, String> {
        let configured = Configured::<P>::new(params)?;
        let request = configured.plan().request_features().iter();
        let candidate = configured.plan().candidate_features().iter();
        let plan = Plan {
            request_features: request.map(|&name| name.to_owned()).collect(),
            candidate_features: candidate.map(|name| name.clone().into_owned()).collect(),
        };
        self.0
            .set(configured)
            .map_err(|_| "this instance is configured already".to_owned())?;
        Ok(plan)
    }

    /// Decides one request; passes where the instance is not configured.
    #[must_use]
    pub fn schedule(&self, request: &Request, candidates: &Candidates) -> Verdict {
        let Some(configured) = self.0.get() else {
            return Verdict::Pass;
        };
        let request = call::Request {
            seq: request.seq,
            session: request.session,
            phase: match request.phase {
                Phase::Mixed => call::Phase::Mixed,
                Phase::Prefill => call::Phase::Prefill,
                Phase::Decode => call::Phase::Decode,
            },
            attempt: request.attempt,
        };
        let verdict = configured.schedule(request, &candidates.ids, &candidates.numbers, &Imports);
        match verdict {
            verdict::Verdict::Route { row, score } => Verdict::Route(Choice {
                row: row as u32,
                prefill: None,
                score,
            }),
            verdict::Verdict::Pair { row, prefill, score } => Verdict::Route(Choice {
                row: row as u32,
                prefill: Some(prefill as u32),
                score,
            }),
            verdict::Verdict::Queue { order, ask_again_ms } => Verdict::Queue(Hold { order, ask_again_ms }),
            verdict::Verdict::Reject {
                status,
                retry_after_ms,
                reason,
            } => Verdict::Reject(Rejection {
                status,
                retry_after_ms,
                reason,
            }),
            verdict::Verdict::Pass => Verdict::Pass,
        }
    }
}

/// The host's functions, as imported.
struct Imports;

impl Host for Imports {
    fn describe(&self, id: WorkerId) -> Option<About> {
        let about = imports::workers::describe(id)?;
        Some(About {
            name: about.name,
            role: match about.role {
                imports::workers::Role::Mixed => Role::Mixed,
                imports::workers::Role::Prefill => Role::Prefill,
                imports::workers::Role::Decode => Role::Decode,
            },
            labels: about.labels,
        })
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        imports::index::matched(match tier {
            Tier::Device => imports::index::Tier::Device,
            Tier::Host => imports::index::Tier::Host,
            Tier::Disk => imports::index::Tier::Disk,
        })
    }

    fn holders(&self, tokens: u32) -> u32 {
        imports::index::holders(tokens)
    }

    fn header(&self, name: &str) -> Option<String> {
        imports::inspect::header(name)
    }

    fn model(&self) -> String {
        imports::inspect::model()
    }

    fn path(&self) -> String {
        imports::inspect::path()
    }

    fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Debug => imports::host::Level::Debug,
            Level::Info => imports::host::Level::Info,
            Level::Warn => imports::host::Level::Warn,
            Level::Error => imports::host::Level::Error,
        };
        imports::host::log(level, message);
    }

    fn now_us(&self) -> u64 {
        imports::host::now_us()
    }

    fn random(&self) -> u64 {
        imports::host::random()
    }

    fn state(&self, key: &str) -> Option<Vec<u8>> {
        imports::state::get(key)
    }

    fn set_state(&self, key: &str, value: &[u8]) -> Result<(), Refusal> {
        imports::state::set(key, value).map_err(refusal)
    }

    fn add_state(&self, key: &str, by: i64) -> Result<i64, Refusal> {
        imports::state::add(key, by).map_err(refusal)
    }

    fn delete_state(&self, key: &str) {
        imports::state::delete(key);
    }
}

fn refusal(refusal: imports::state::Refusal) -> Refusal {
    match refusal {
        imports::state::Refusal::KeyTooLong => Refusal::KeyTooLong,
        imports::state::Refusal::ValueTooLong => Refusal::ValueTooLong,
        imports::state::Refusal::Full => Refusal::Full,
        imports::state::Refusal::NotACounter => Refusal::NotACounter,
    }
}
