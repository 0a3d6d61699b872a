//! Clients of a snapshot, found by their keys.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;

use super::key::{self, KeyHash};
use super::limit_clock::LimitClock;
use super::metrics::{ClientFamilies, Unknown};
use super::principal::{Ledger, Principal};
use super::reservation::RateLimitGuard;
use super::spec::ClientSpec;
use super::usage_share::ClientShare;
use crate::base::reply::Refusal;

/// Clients of a snapshot. If there are none, no key is required.
#[derive(Debug)]
pub(crate) struct Clients {
    by_key: HashMap<KeyHash, Arc<Principal>>,
    by_name: HashMap<Arc<str>, Arc<Principal>>,
    pub(super) unknown: Unknown,
    pub(super) clock: LimitClock,
}

/// Result of a request's authentication and rate limits.
pub(crate) struct AdmittedClient {
    /// Authenticated client. `None` for an unknown key, or if no key is required.
    pub(crate) client: Option<Arc<Principal>>,
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
            let client = Arc::new(Principal::new(spec, clock.clone(), ledger));
            let of_key = keys.into_iter().map(|key| (key, Arc::clone(&client)));
            clients.by_key.extend(of_key);
            clients.by_name.insert(Arc::clone(&client.name), client);
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
    pub(crate) fn enter(&self, headers: &mut HeaderMap) -> AdmittedClient {
        match self.identify(headers) {
            Ok(client) => AdmittedClient {
                reservation: client
                    .as_ref()
                    .map(Principal::enter)
                    .transpose()
                    .map_err(Refusal::Limited),
                client,
            },
            Err(refusal) => AdmittedClient {
                client: None,
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
        match (shown.client, shown.any) {
            (Some(client), _) => Ok(Some(Arc::clone(client))),
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

    /// Returns the handle of the clients.
    ///
    /// Clients without limits are in it too: their limits may come back, and their totals go on meanwhile.
    pub(crate) fn share(&self) -> ClientShare {
        ClientShare {
            clients: self.by_name.values().cloned().collect(),
            clock: self.clock.clone(),
        }
    }
}
