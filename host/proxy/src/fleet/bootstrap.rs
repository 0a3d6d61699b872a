//! Bootstrap server of a prefill worker: the source of the engine ids that decode workers use.
//!
//! The ids change whenever the engine restarts (vLLM's `MooncakeConnector`: `GET /query`, an object by data-parallel
//! rank).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::uri::{PathAndQuery, Uri};
use observability::error_chain;
use routing::Dialect;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info};
use worker_client::{Authorization, ConnectionPool, PageError, SendTimeouts, UrlError};

use crate::fleet::bootstrap_port::BootstrapPort;

/// Oldest age of engine ids before they are queried again. While nothing fails, a restart may stay unnoticed for so
/// long.
const BOOTSTRAP_AGE: Duration = Duration::from_secs(1);
/// The same while there are none.
const UNKNOWN_AGE: Duration = Duration::from_millis(250);
/// Timeout for one answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest answer, in bytes: some ten thousand ranks.
const LONGEST_ANSWER: usize = 1 << 20;

const QUERY_PATH: &str = "/query";
const QUERY: PathAndQuery = PathAndQuery::from_static(QUERY_PATH);

/// Client of one bootstrap server.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    upstream: ConnectionPool,
    /// `http://host:port`.
    address: Box<str>,
    /// An IPv6 address in its brackets: engines put `:port` behind it.
    host: Box<str>,
    port: BootstrapPort,
    /// Set if the server is queried for engine ids at all.
    has_ids: AtomicBool,
    known: Mutex<KnownEngines>,
    /// Notified when an answer with engine ids has been received.
    answered: Notify,
}

#[derive(Debug, Default)]
struct KnownEngines {
    /// Engine ids by rank. Empty while unknown.
    engines: BTreeMap<u16, Arc<str>>,
    /// Number of failures that a restart of the engine would explain.
    doubts: u64,
    /// Number of these doubts that a later query has covered.
    settled: u64,
    /// Time of the last query.
    queried_at: Option<Instant>,
    /// Reason why the last query brought no engine id.
    trouble: Option<String>,
}

impl Bootstrap {
    pub(crate) fn new(url: &str, has_ids: bool) -> Result<Self, UrlError> {
        let upstream = ConnectionPool::plain(url)?;
        let uri: Uri = url.parse().map_err(|source| UrlError::Unreadable {
            url: url.into(),
            source,
        })?;
        Ok(Self {
            upstream,
            address: url.trim_end_matches('/').into(),
            host: uri.host().unwrap_or_default().into(),
            port: BootstrapPort::new(uri.port_u16()),
            has_ids: AtomicBool::new(has_ids),
            known: Mutex::default(),
            answered: Notify::new(),
        })
    }

    /// Returns `true` if this is the server at that address, and queried for the same.
    pub(crate) fn is(&self, url: &str, has_ids: bool) -> bool {
        self.is_at(url) && self.has_ids() == has_ids
    }

    /// Returns `true` if this is the server at that address.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        *self.address == *url.trim_end_matches('/')
    }

    fn has_ids(&self) -> bool {
        self.has_ids.load(Ordering::Relaxed)
    }

    /// Records the pool's detected dialect. Only mooncake's servers have engine ids. SGLang's legs need the port.
    pub(crate) fn speaks(&self, dialect: Option<Dialect>) {
        self.has_ids
            .store(dialect == Some(Dialect::Mooncake), Ordering::Relaxed);
        self.port.need(dialect == Some(Dialect::Sglang));
    }

    /// Returns `true` if the server answers as a Mooncake bootstrap server does.
    pub(crate) async fn answers(&self) -> bool {
        tokio::time::timeout(PATIENCE, self.query())
            .await
            .is_ok_and(|engines| engines.is_ok())
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> &BootstrapPort {
        &self.port
    }

    /// Returns the number of engines it reported, 0 while unknown. `None` where it is not queried, or was not yet.
    pub(crate) fn engines(&self) -> Option<usize> {
        if !self.has_ids() {
            return None;
        }
        let known = self.known();
        known.queried_at.is_some().then_some(known.engines.len())
    }

    /// Returns `true` if no leg can meet another there: it has no engine, or its port is unknown.
    pub(crate) fn is_unknown(&self) -> bool {
        self.engines() == Some(0) || self.port.is_unknown()
    }

    /// Returns the reason why no leg can meet another there.
    pub(crate) fn trouble(&self) -> String {
        if self.port.is_unknown() {
            return "the engine does not answer /server_info, which names the port of its bootstrap server"
                .to_owned();
        }
        let known = self.known();
        let trouble = known.trouble.as_deref().unwrap_or("it lists none");
        format!(
            "its bootstrap server {} reports no engine id: {trouble}",
            self.address
        )
    }

    /// Returns the time until the next query while no engine id is known. `None` where only the port is queried.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        if self.port.is_unknown() {
            return None;
        }
        let queried_at = self.known().queried_at;
        Some(queried_at.map_or(Duration::ZERO, |queried_at| {
            UNKNOWN_AGE.saturating_sub(queried_at.elapsed())
        }))
    }

    /// Counts a failure that a restart of the engine would explain.
    pub(crate) fn doubt(&self) {
        self.known().doubts += 1;
    }

    /// Returns a rank and its engine id: the pinned rank's, else of all ranks in turn. Waits for an answer for at most
    /// `patience` where they are unknown or in doubt.
    pub(crate) async fn engine(
        &self,
        pinned: Option<u16>,
        turn: u64,
        patience: Duration,
    ) -> Option<(u16, Arc<str>)> {
        // The first answer may belong to an earlier query.
        for _ in 0..2 {
            let answered = self.answered.notified();
            if let Some(engine) = self.known().engine(pinned, turn) {
                return Some(engine);
            }
            drop(tokio::time::timeout(patience, answered).await);
        }
        self.known().engine(pinned, turn)
    }

    /// Returns `true` if the next query is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let known = self.known();
        let age = if known.engines.is_empty() {
            UNKNOWN_AGE
        } else {
            BOOTSTRAP_AGE
        };
        let is_old = |queried_at: Instant| now.saturating_duration_since(queried_at) >= age;
        self.has_ids() && (known.is_in_doubt() || known.queried_at.is_none_or(is_old))
    }

    /// Resolves when that rank has another id.
    pub(crate) async fn replaced(&self, rank: u16, id: &str) {
        loop {
            tokio::time::sleep(UNKNOWN_AGE).await;
            let known = self.known();
            if known.engines.get(&rank).is_some_and(|known| **known != *id) {
                return;
            }
        }
    }

    /// Queries the server and stores the answer.
    pub(crate) async fn renew(&self) {
        let doubts = self.known().doubts;
        let queried = tokio::time::timeout(PATIENCE, self.query()).await;
        let fresh = queried.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")));
        let mut known = self.known();
        known.queried_at = Some(Instant::now());
        known.trouble = fresh.as_ref().err().cloned();
        match fresh {
            Ok(fresh) if fresh != known.engines => {
                info!(
                    bootstrap = &*self.address,
                    engines = fresh.len(),
                    "a bootstrap server reported engine ids"
                );
                known.engines = fresh;
            }
            Ok(_) => {}
            // An engine that comes back has another id.
            Err(_) if known.is_in_doubt() => known.engines.clear(),
            Err(_) => {}
        }
        // This answer does not settle a failure that occurred during the query.
        known.settled = doubts;
        drop(known);
        self.answered.notify_waiters();
    }

    /// Closes idle connections, as [`ConnectionPool::trim`].
    pub(crate) fn trim(&self, now: std::time::Instant) {
        self.upstream.trim(now);
    }

    /// Fetches the engine ids. Returns the reason if there are none.
    async fn query(&self) -> Result<BTreeMap<u16, Arc<str>>, String> {
        let limits = SendTimeouts {
            connect: PATIENCE,
            first_byte: PATIENCE,
        };
        let (headers, authorization) = (HeaderMap::new(), Authorization::Pass);
        let page = self
            .upstream
            .page(&QUERY, &headers, &authorization, limits, LONGEST_ANSWER)
            .await;
        let (status, text) = page.map_err(|error| {
            let chain = error_chain(&error);
            if matches!(error, PageError::Send(_)) {
                debug!(
                    bootstrap = &*self.address,
                    error = chain,
                    "a bootstrap server does not answer"
                );
            }
            chain
        })?;
        if !status.is_success() {
            return Err(format!("`GET {QUERY_PATH}` got {status}"));
        }
        inference_api::engine_ids(&text).ok_or_else(|| format!("`GET {QUERY_PATH}` is no list of engine ids"))
    }

    fn known(&self) -> MutexGuard<'_, KnownEngines> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownEngines {
    fn is_in_doubt(&self) -> bool {
        self.doubts != self.settled
    }

    fn engine(&self, pinned: Option<u16>, turn: u64) -> Option<(u16, Arc<str>)> {
        if self.is_in_doubt() || self.engines.is_empty() {
            return None;
        }
        let (rank, id) = match pinned {
            Some(rank) => self.engines.get_key_value(&rank)?,
            None => {
                let turn = usize::try_from(turn % self.engines.len() as u64).unwrap_or(0);
                self.engines.iter().nth(turn)?
            }
        };
        Some((*rank, Arc::clone(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, address: &str, host: &str, port: Option<u16>) {
        let server = Bootstrap::new(url, true).unwrap();
        assert_eq!(
            (server.address(), server.host(), server.port().get()),
            (address, host, port)
        );
        assert!(server.is(url, true) && server.is(address, true) && !server.is(url, false));
    }

    #[test]
    fn an_address_is_taken_apart_for_the_engines() {
        check(
            "http://10.0.0.1:8998",
            "http://10.0.0.1:8998",
            "10.0.0.1",
            Some(8998),
        );
        check("http://engine/", "http://engine", "engine", None);
        check("http://[::1]:9", "http://[::1]:9", "[::1]", Some(9));
        check("http://[fe80::7]", "http://[fe80::7]", "[fe80::7]", None);
        assert!(Bootstrap::new("https://a:1", true).is_err());
    }

    fn known(engines: &[(u16, &str)]) -> KnownEngines {
        KnownEngines {
            engines: engines.iter().map(|&(rank, id)| (rank, id.into())).collect(),
            ..KnownEngines::default()
        }
    }

    #[test]
    fn a_rank_has_its_own_engine_and_others_take_turns() {
        let known = known(&[(1, "a"), (4, "b")]);
        let engine = |pinned, turn| {
            known
                .engine(pinned, turn)
                .map(|(rank, id)| (rank, id.to_string()))
        };
        assert_eq!(engine(Some(4), 0), Some((4, "b".to_owned())));
        assert_eq!(engine(Some(0), 0), None);
        assert_eq!(engine(None, 2), Some((1, "a".to_owned())));
        assert_eq!(engine(None, u64::MAX), Some((4, "b".to_owned())));
    }

    #[test]
    fn nothing_is_known_in_doubt() {
        let mut known = known(&[(0, "a")]);
        known.doubts += 1;
        assert_eq!(known.engine(None, 0), None);
        known.settled = known.doubts;
        assert!(known.engine(None, 0).is_some());
        assert_eq!(KnownEngines::default().engine(None, 0), None);
    }
}
