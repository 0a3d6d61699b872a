//! The I/O thread, and how links are opened on it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use super::address::{Address, AddressError};
use super::budget::Budget;
use super::dial::{Wire, accept, dial};
use super::mailbox::{Bell, Link, Mailbox};
use super::stream::{LOOK_UPS, Listener, Resolver};
use crate::spec::Endpoint;
use crate::zmtp::{CurveKeys, FeedLimits, SocketRole};

/// Why a link cannot be opened.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The endpoint cannot be read.
    #[error("`{endpoint}` is not an endpoint of a publisher")]
    Address {
        /// As it was given.
        endpoint: String,
        /// Why.
        #[source]
        source: AddressError,
    },
    /// The endpoint cannot be bound.
    #[error("failed to bind `{endpoint}`")]
    Bind {
        /// As it was given.
        endpoint: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Opens links. Dropping it closes all of them.
pub(crate) struct Reader {
    runtime: Option<Runtime>,
    limits: FeedLimits,
    budget: Budget,
    bell: Arc<Bell>,
    resolver: Resolver,
    last_feed: AtomicU64,
}

impl Reader {
    /// Starts the I/O thread.
    ///
    /// # Errors
    /// Where the system has no more threads or file descriptors.
    pub(crate) fn start(limits: FeedLimits, bell: Arc<Bell>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(LOOK_UPS)
            .thread_name("kv-feed-io")
            .enable_all()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
            limits,
            budget: Budget::new(limits, Arc::clone(&bell)),
            bell,
            resolver: Resolver::new(),
            last_feed: AtomicU64::new(0),
        })
    }

    /// Returns a number for a feed, under which the bell rings for it.
    pub(crate) fn new_feed(&self) -> u64 {
        self.last_feed.fetch_add(1, Relaxed)
    }

    /// Returns how many bytes all messages hold between sockets and decoder.
    pub(crate) fn held_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Whether so little memory is left that messages that only wait should make room.
    pub(crate) fn is_scarce(&self) -> bool {
        self.budget.is_scarce()
    }

    /// Subscribes to a publisher that is connected to, or that connects to us. Returns before a connection stands.
    ///
    /// # Errors
    /// Where the endpoint cannot be read or bound.
    pub(crate) fn subscribe(
        &self,
        feed: u64,
        endpoint: &Endpoint,
        topic: &str,
        curve: Option<&CurveKeys>,
    ) -> Result<Link, LinkError> {
        let topic = topic.as_bytes().into();
        let wire = self.wire(feed, SocketRole::Subscriber { topic }, curve);
        let address = parse(endpoint.address())?;
        match endpoint {
            Endpoint::Connect(_) => {
                Ok(self.spawn(&wire.mailbox.clone(), dial(wire, address, self.resolver.clone())))
            }
            Endpoint::Bind(text) => {
                let listener = self.enter(|| Listener::bind(&address));
                let listener = listener.map_err(|source| LinkError::Bind {
                    endpoint: text.clone(),
                    source,
                })?;
                Ok(self.spawn(&wire.mailbox.clone(), accept(wire, listener)))
            }
        }
    }

    /// Asks for a replay from a number.
    ///
    /// # Errors
    /// Where the endpoint cannot be read.
    pub(crate) fn ask(
        &self,
        feed: u64,
        endpoint: &str,
        from: u64,
        curve: Option<&CurveKeys>,
    ) -> Result<Link, LinkError> {
        let wire = self.wire(feed, SocketRole::Requester { from }, curve);
        let address = parse(endpoint)?;
        Ok(self.spawn(&wire.mailbox.clone(), dial(wire, address, self.resolver.clone())))
    }

    fn wire(&self, feed: u64, role: SocketRole, curve: Option<&CurveKeys>) -> Wire {
        let allowance = self.budget.allowance(self.limits);
        Wire {
            role,
            limits: self.limits,
            curve: curve.cloned(),
            mailbox: Arc::new(Mailbox::new(feed, Arc::clone(&self.bell), allowance)),
        }
    }

    fn spawn(&self, mailbox: &Arc<Mailbox>, task: impl Future<Output = ()> + Send + 'static) -> Link {
        let task = self
            .runtime
            .as_ref()
            .map(|runtime| runtime.spawn(task).abort_handle());
        Link::new(Arc::clone(mailbox), task)
    }

    fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        act()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Whoever drops it may run on a runtime itself, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn parse(endpoint: &str) -> Result<Address, LinkError> {
    Address::parse(endpoint).map_err(|source| LinkError::Address {
        endpoint: endpoint.to_owned(),
        source,
    })
}
