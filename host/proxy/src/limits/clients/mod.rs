//! API clients: authentication by key, allowed models, and rate limits.
//!
//! A key is hashed once and looked up by its hash; neither the file nor the memory holds a key. The comparison of
//! hashes is not constant-time, which reveals nothing: a key cannot be chosen by the beginning of its SHA-256. This
//! module does not depend on the source of the keys.

mod caller;
mod key;
mod limit_clock;
mod limits;
mod metrics;
mod ratelimit_headers;
mod reservation;
mod rights;
mod usage_share;

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;

use self::caller::Ledger;
pub(crate) use self::caller::Principal;
pub use self::key::KeyHash;
use self::limit_clock::LimitClock;
pub use self::limits::BucketUse;
pub(crate) use self::metrics::ClientFamilies;
use self::metrics::Unknown;
pub(crate) use self::reservation::{RateLimitGuard, UsageBound};
pub use self::rights::EngineFields;
pub(crate) use self::rights::FieldCheck;
pub use self::usage_share::{ClientLimit, ClientShare};
use crate::base::reply::Refusal;

/// Configured client.
#[derive(Debug, Clone)]
pub struct ClientSpec {
    /// Unique name.
    pub name: Arc<str>,
    /// Hashes of its keys, unique among all clients.
    pub keys: Vec<KeyHash>,
    /// Globs (`*`, `?`) of allowed models; empty allows any.
    pub models: Vec<String>,
    /// Tenant for fair sharing of a pool.
    pub tenant: Arc<str>,
    /// Class of its requests; higher classes are served first.
    pub priority: i32,
    /// Weight of its tenant's share, above 0.
    pub weight: f64,
    /// Engine fields that it may set.
    pub may_set: EngineFields,
    /// Usage limits.
    pub limits: ClientLimits,
}

/// Usage limits of a client; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests per minute, above 0.
    pub requests: Option<std::num::NonZeroU32>,
    /// Tokens of prompts and responses per minute.
    pub tokens: Option<std::num::NonZeroU32>,
    /// Concurrent requests.
    pub concurrent: Option<std::num::NonZeroU32>,
}

/// Clients of a snapshot. If there are none, no key is required.
#[derive(Debug)]
pub(crate) struct Clients {
    by_key: HashMap<KeyHash, Arc<Principal>>,
    by_name: HashMap<Arc<str>, Arc<Principal>>,
    unknown: Unknown,
    clock: LimitClock,
}

/// Result of a request's authentication and rate limits.
pub(crate) struct Entry {
    /// Authenticated client. `None` for an unknown key, or if no key is required.
    pub(crate) caller: Option<Arc<Principal>>,
    /// Rate-limit guard if clients are configured, or the refusal.
    pub(crate) reservation: Result<Option<RateLimitGuard>, Refusal>,
}

impl Clients {
    /// Builds the clients after a reload. A client of the same name keeps its usage.
    pub(crate) fn next(previous: Option<&Self>, specs: Vec<ClientSpec>, metrics: &ClientFamilies) -> Self {
        let clock = previous.map_or_else(LimitClock::default, |previous| previous.clock.clone());
        let mut clients = Self {
            by_key: HashMap::new(),
            by_name: HashMap::with_capacity(specs.len()),
            unknown: metrics.unknown(),
            clock: clock.clone(),
        };
        for spec in specs {
            let before = previous.and_then(|previous| previous.by_name.get(&spec.name));
            let ledger = before.map(|before| before.ledger());
            let ledger = ledger.unwrap_or_else(|| Arc::new(Ledger::new(metrics.client(&spec.name))));
            let keys = spec.keys.clone();
            let caller = Arc::new(Principal::new(spec, clock.clone(), ledger));
            let of_key = keys.into_iter().map(|key| (key, Arc::clone(&caller)));
            clients.by_key.extend(of_key);
            clients.by_name.insert(Arc::clone(&caller.name), caller);
        }
        clients
    }

    /// Returns `true` if clients are configured, so that a key is required.
    pub(crate) fn are_known(&self) -> bool {
        !self.by_name.is_empty()
    }

    /// Returns the names of clients that `next` does not have.
    pub(crate) fn gone<'a>(&'a self, next: &'a Self) -> impl Iterator<Item = &'a str> {
        let gone = self
            .by_name
            .keys()
            .filter(|name| !next.by_name.contains_key(*name));
        gone.map(|name| &**name)
    }

    /// Authenticates and admits a request. Removes the key from the headers, so that no later stage sees it.
    pub(crate) fn enter(&self, headers: &mut HeaderMap) -> Entry {
        match self.identify(headers) {
            Ok(caller) => Entry {
                reservation: caller
                    .as_ref()
                    .map(Principal::enter)
                    .transpose()
                    .map_err(Refusal::Limited),
                caller,
            },
            Err(refusal) => Entry {
                caller: None,
                reservation: Err(refusal),
            },
        }
    }

    /// Authenticates a request. Returns `None` if no key is required. Removes the key from the headers.
    pub(crate) fn identify(&self, headers: &mut HeaderMap) -> Result<Option<Arc<Principal>>, Refusal> {
        if !self.are_known() {
            return Ok(None);
        }
        let shown = key::take(headers, |hash| self.by_key.get(hash));
        match (shown.caller, shown.any) {
            (Some(caller), _) => Ok(Some(Arc::clone(caller))),
            (None, true) => {
                self.unknown.wrong_key.inc();
                Err(Refusal::WrongKey)
            }
            (None, false) => {
                self.unknown.no_key.inc();
                Err(Refusal::NoKey)
            }
        }
    }
}

#[cfg(test)]
mod tests;
