//! Who asks: the clients that have keys, what each of them may ask for, and how much.
//!
//! A key is hashed once and looked up by its hash; neither the file nor the memory holds a key. Comparing hashes takes as
//! long as it takes, which tells nothing: nobody can choose a key by the beginning of its SHA-256. It knows nothing of
//! where keys are read from.

mod caller;
mod key;
mod limits;
mod metrics;
mod rights;
mod told;
mod visit;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;

use self::caller::Ledger;
pub(crate) use self::caller::Principal;
pub use self::key::KeyHash;
pub(crate) use self::metrics::ClientFamilies;
use self::metrics::Unknown;
pub use self::rights::EngineFields;
pub(crate) use self::rights::FieldCheck;
pub(crate) use self::visit::{RateLimitGuard, UsageBound};
use crate::base::reply::Refusal;

/// A client as configured.
#[derive(Debug, Clone)]
pub struct ClientSpec {
    /// Unique.
    pub name: Arc<str>,
    /// The hashes of its keys; no other client has one of them.
    pub keys: Vec<KeyHash>,
    /// Globs (`*`, `?`), one of which the model must match; empty for any.
    pub models: Vec<String>,
    /// Whom its share of a pool is counted for.
    pub tenant: Arc<str>,
    /// The class of its requests; higher goes first.
    pub priority: i32,
    /// Its tenant's share beside others, above 0.
    pub weight: f64,
    /// Fields of engines that it may set.
    pub may_set: EngineFields,
    /// How much it may use.
    pub limits: ClientLimits,
}

/// How much a client may use; none: any amount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Requests a minute, above 0.
    pub requests: Option<std::num::NonZeroU32>,
    /// Tokens a minute, of prompts and answers.
    pub tokens: Option<std::num::NonZeroU32>,
    /// Requests at a time.
    pub concurrent: Option<std::num::NonZeroU32>,
}

/// The clients of a snapshot; none: nobody needs a key.
#[derive(Debug)]
pub(crate) struct Clients {
    by_key: HashMap<KeyHash, Arc<Principal>>,
    by_name: HashMap<Arc<str>, Arc<Principal>>,
    unknown: Unknown,
    /// Where the clock of the limits begins.
    epoch: Instant,
}

/// What a request's key comes to.
pub(crate) struct Entry {
    /// Whose it is; none where it is nobody's, or nobody needs one.
    pub(crate) caller: Option<Arc<Principal>>,
    /// Its stay, where clients are known; or why it must leave.
    pub(crate) visit: Result<Option<RateLimitGuard>, Refusal>,
}

impl Clients {
    /// The clients that follow `previous`: what one of the same name has used stays used.
    pub(crate) fn next(previous: Option<&Self>, specs: Vec<ClientSpec>, metrics: &ClientFamilies) -> Self {
        let epoch = previous.map_or_else(Instant::now, |previous| previous.epoch);
        let mut clients = Self {
            by_key: HashMap::new(),
            by_name: HashMap::with_capacity(specs.len()),
            unknown: metrics.unknown(),
            epoch,
        };
        for spec in specs {
            let before = previous.and_then(|previous| previous.by_name.get(&spec.name));
            let ledger = before.map(|before| before.ledger());
            let ledger = ledger.unwrap_or_else(|| Arc::new(Ledger::new(metrics.client(&spec.name))));
            let keys = spec.keys.clone();
            let caller = Arc::new(Principal::new(spec, epoch, ledger));
            let of_key = keys.into_iter().map(|key| (key, Arc::clone(&caller)));
            clients.by_key.extend(of_key);
            clients.by_name.insert(Arc::clone(&caller.name), caller);
        }
        clients
    }

    /// Whether there are any, who then must show a key.
    pub(crate) fn are_known(&self) -> bool {
        !self.by_name.is_empty()
    }

    /// Names of clients of `self` that `next` has not.
    pub(crate) fn gone<'a>(&'a self, next: &'a Self) -> impl Iterator<Item = &'a str> {
        let gone = self
            .by_name
            .keys()
            .filter(|name| !next.by_name.contains_key(*name));
        gone.map(|name| &**name)
    }

    /// Lets a request in. Its key is taken out of the headers, so that nobody after this sees it.
    pub(crate) fn enter(&self, headers: &mut HeaderMap) -> Entry {
        match self.identify(headers) {
            Ok(caller) => Entry {
                visit: caller
                    .as_ref()
                    .map(Principal::enter)
                    .transpose()
                    .map_err(Refusal::Limited),
                caller,
            },
            Err(refusal) => Entry {
                caller: None,
                visit: Err(refusal),
            },
        }
    }

    /// Whose key the headers have; none where nobody needs one. The key is taken out of them.
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
