//! Port of a prefill worker's bootstrap server, which both legs of an SGLang pair get.
//!
//! The usual port stands for an unconfigured one. Where the dialect is detected, the engine names the true port on
//! `/server_info`.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use routing::Dialect;
use tokio::sync::Notify;

/// Port, and whether the engine has named it.
#[derive(Debug)]
pub(crate) struct BootstrapPort {
    /// 0: none.
    number: AtomicU16,
    /// Set if the configured port is the usual one. Any other may be a mapped one, so it stays.
    is_usual: bool,
    /// Set while the pool's engines are SGLang's by detection.
    is_needed: AtomicBool,
    /// Set once the engine has answered the query.
    is_named: AtomicBool,
    queried_at: Mutex<Option<Instant>>,
    /// Notified at the end of each query.
    queried: Notify,
}

impl BootstrapPort {
    pub(super) fn new(configured: Option<u16>) -> Self {
        Self {
            number: AtomicU16::new(configured.unwrap_or(0)),
            is_usual: configured == Some(Dialect::USUAL_BOOTSTRAP_PORT),
            is_needed: AtomicBool::new(false),
            is_named: AtomicBool::new(false),
            queried_at: Mutex::default(),
            queried: Notify::new(),
        }
    }

    /// Returns the port as far as it is known. `None`: the configuration names none, and engines use their default.
    pub(crate) fn get(&self) -> Option<u16> {
        Some(self.number.load(Ordering::Relaxed)).filter(|port| *port > 0)
    }

    /// Sets whether the engine's own port is needed.
    pub(crate) fn need(&self, is_needed: bool) {
        self.is_needed.store(is_needed, Ordering::Relaxed);
    }

    /// Returns `true` if this state is valid in a pool with that need.
    pub(crate) fn is_valid_for(&self, is_needed: bool) -> bool {
        self.is_named.load(Ordering::Relaxed) || self.is_needed.load(Ordering::Relaxed) == is_needed
    }

    /// Records the engine's answer. Without a port in it, the present one stays.
    pub(crate) fn named(&self, port: Option<u16>) {
        if let Some(port) = port.filter(|_| self.is_usual) {
            self.number.store(port, Ordering::Relaxed);
        }
        self.is_named.store(true, Ordering::Release);
    }

    /// Records the end of a query, with or without an answer.
    pub(crate) fn queried(&self) {
        *self.queried_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.queried.notify_waiters();
    }

    /// Returns the end of the last query.
    pub(crate) fn queried_at(&self) -> Option<Instant> {
        *self.queried_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` while no leg can be sent, because the engine has not named its port.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_usual && self.is_needed.load(Ordering::Relaxed) && !self.is_named.load(Ordering::Acquire)
    }

    /// Returns `true` if the port is awaited and a query for it has failed.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_awaited() && self.queried_at().is_some()
    }

    /// Returns the port once it is not awaited any more. `None` if it still is after `patience`.
    pub(crate) async fn wait(&self, patience: Duration) -> Option<Option<u16>> {
        if self.is_awaited() {
            let named = async {
                loop {
                    let queried = self.queried.notified();
                    if !self.is_awaited() {
                        return;
                    }
                    queried.await;
                }
            };
            // On the heap: only the first legs wait.
            Box::pin(tokio::time::timeout(patience, named)).await.ok()?;
        }
        Some(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL_PORT: u16 = Dialect::USUAL_BOOTSTRAP_PORT;

    #[test]
    fn an_engines_port_replaces_the_usual_one_only() {
        let check = |configured, expected| {
            let port = BootstrapPort::new(configured);
            port.named(Some(8_997));
            assert_eq!(port.get(), expected);
        };
        check(Some(USUAL_PORT), Some(8_997));
        check(Some(9_000), Some(9_000));
        check(None, None);
        let restarted = BootstrapPort::new(Some(USUAL_PORT));
        for port in [Some(8_997), None, Some(8_996)] {
            restarted.named(port);
        }
        assert_eq!(restarted.get(), Some(8_996));
    }

    #[test]
    fn only_an_unnamed_port_that_is_needed_is_awaited_until_the_engine_answers() {
        let awaited = |configured, is_needed| {
            let port = BootstrapPort::new(configured);
            port.need(is_needed);
            port.is_awaited()
        };
        assert!(awaited(Some(USUAL_PORT), true));
        assert!(!awaited(Some(USUAL_PORT), false));
        assert!(!awaited(Some(9_000), true));
        assert!(!awaited(None, true));
        let port = BootstrapPort::new(Some(USUAL_PORT));
        port.need(true);
        assert!(!port.is_unknown(), "it was not queried yet");
        port.queried();
        assert!(port.is_unknown());
        port.named(None);
        port.queried();
        assert!(!port.is_unknown());
    }

    #[tokio::test]
    async fn a_leg_waits_for_the_answer_and_not_longer_than_it_may() {
        let port = BootstrapPort::new(Some(USUAL_PORT));
        assert_eq!(
            port.wait(Duration::ZERO).await,
            Some(Some(USUAL_PORT)),
            "not needed"
        );
        port.need(true);
        assert_eq!(port.wait(Duration::from_millis(1)).await, None);
        let named = async {
            port.queried();
            port.named(Some(7));
            port.queried();
        };
        let (waited, ()) = futures_util::join!(port.wait(Duration::from_secs(10)), named);
        assert_eq!(waited, Some(Some(7)));
    }
}
