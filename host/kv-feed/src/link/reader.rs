//! I/O thread, and the opening of links.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use super::address::{AddressError, PublisherAddress};
use super::budget::MemoryBudget;
use super::dial::{LinkParts, accept, dial};
use super::mailbox::{FeedLink, FeedMailbox, FeedNotifier};
use super::stream::{LOOK_UPS, NameResolver, PublisherListener};
use crate::spec::Endpoint;
use crate::zmtp::{CurveKeys, FeedLimits, SocketRole};

/// Error of opening a link.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The endpoint is invalid.
    #[error("`{endpoint}` is not an endpoint of a publisher")]
    Address {
        /// The endpoint.
        endpoint: String,
        /// The cause.
        #[source]
        source: AddressError,
    },
    /// The endpoint cannot be bound.
    #[error("failed to bind `{endpoint}`")]
    Bind {
        /// The endpoint.
        endpoint: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Opens links. Dropping it closes all of them.
pub(crate) struct LinkReader {
    runtime: Option<Runtime>,
    limits: FeedLimits,
    budget: MemoryBudget,
    notifier: Arc<FeedNotifier>,
    resolver: NameResolver,
    last_feed: AtomicU64,
}

impl LinkReader {
    /// Starts the I/O thread.
    ///
    /// # Errors
    /// Returns an error if the system has no more threads or file descriptors.
    pub(crate) fn start(limits: FeedLimits, notifier: Arc<FeedNotifier>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(LOOK_UPS)
            .thread_name("kv-feed-io")
            .enable_all()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
            limits,
            budget: MemoryBudget::new(limits, Arc::clone(&notifier)),
            notifier,
            resolver: NameResolver::new(),
            last_feed: AtomicU64::new(0),
        })
    }

    /// Returns the number of a new feed, for the notifier.
    pub(crate) fn new_feed(&self) -> u64 {
        self.last_feed.fetch_add(1, Relaxed)
    }

    /// Returns the bytes of all messages between sockets and decoder.
    pub(crate) fn held_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Returns `true` if so little memory is left that queued messages should be dropped.
    pub(crate) fn is_scarce(&self) -> bool {
        self.budget.is_scarce()
    }

    /// Subscribes to a publisher, by connecting or by binding. Returns before the connection is established.
    ///
    /// # Errors
    /// Returns an error if the endpoint is invalid or cannot be bound.
    pub(crate) fn subscribe(
        &self,
        feed: u64,
        endpoint: &Endpoint,
        topic: &str,
        curve: Option<&CurveKeys>,
    ) -> Result<FeedLink, LinkError> {
        let topic = topic.as_bytes().into();
        let wire = self.wire(feed, SocketRole::Subscriber { topic }, curve);
        let address = parse(endpoint.address())?;
        match endpoint {
            Endpoint::Connect(_) => {
                Ok(self.spawn(&wire.mailbox.clone(), dial(wire, address, self.resolver.clone())))
            }
            Endpoint::Bind(text) => {
                let listener = self.enter(|| PublisherListener::bind(&address));
                let listener = listener.map_err(|source| LinkError::Bind {
                    endpoint: text.clone(),
                    source,
                })?;
                Ok(self.spawn(&wire.mailbox.clone(), accept(wire, listener)))
            }
        }
    }

    /// Requests a replay from a number.
    ///
    /// # Errors
    /// Returns an error if the endpoint is invalid.
    pub(crate) fn request_replay(
        &self,
        feed: u64,
        endpoint: &str,
        from: u64,
        curve: Option<&CurveKeys>,
    ) -> Result<FeedLink, LinkError> {
        let wire = self.wire(feed, SocketRole::Requester { from }, curve);
        let address = parse(endpoint)?;
        Ok(self.spawn(&wire.mailbox.clone(), dial(wire, address, self.resolver.clone())))
    }

    fn wire(&self, feed: u64, role: SocketRole, curve: Option<&CurveKeys>) -> LinkParts {
        let allowance = self.budget.allowance(self.limits);
        LinkParts {
            role,
            limits: self.limits,
            curve: curve.cloned(),
            mailbox: Arc::new(FeedMailbox::new(feed, Arc::clone(&self.notifier), allowance)),
        }
    }

    fn spawn(&self, mailbox: &Arc<FeedMailbox>, task: impl Future<Output = ()> + Send + 'static) -> FeedLink {
        let task = self
            .runtime
            .as_ref()
            .map(|runtime| runtime.spawn(task).abort_handle());
        FeedLink::new(Arc::clone(mailbox), task)
    }

    fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        act()
    }
}

impl Drop for LinkReader {
    fn drop(&mut self) {
        // The owner may drop it on a runtime, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for LinkReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn parse(endpoint: &str) -> Result<PublisherAddress, LinkError> {
    PublisherAddress::parse(endpoint).map_err(|source| LinkError::Address {
        endpoint: endpoint.to_owned(),
        source,
    })
}
