//! Services that every dispatch shares.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::task::TaskTracker;

use crate::dispatch::shadow::ShadowQueue;
use crate::dispatch::sources::DecisionSources;

/// Dispatcher of requests.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) sources: Arc<DecisionSources>,
    pub(crate) shadows: Arc<ShadowQueue>,
    /// Tasks that continue although no client waits for them.
    pub(crate) background: TaskTracker,
    pub(crate) transfers: TransferNames,
}

/// Source of names for transfers of KV cache. No other router makes up the same ones.
#[derive(Debug)]
pub(crate) struct TransferNames {
    random: RandomState,
    next: AtomicU64,
}

impl Dispatcher {
    /// Creates a dispatcher whose decisions read these sources.
    pub(crate) fn new(sources: DecisionSources) -> Self {
        Self {
            sources: Arc::new(sources),
            shadows: Arc::default(),
            background: TaskTracker::new(),
            transfers: TransferNames {
                random: RandomState::new(),
                next: AtomicU64::new(1),
            },
        }
    }

    /// Starts the shadow thread. The thread ends when the dispatcher is dropped.
    pub(crate) fn start_shadows(&self) -> io::Result<()> {
        self.shadows.start(Arc::downgrade(&self.sources))
    }
}

impl TransferNames {
    /// Makes a name for a transfer of KV cache.
    pub(crate) fn transfer_id(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("xfer-{:016x}-{number:x}", self.random.hash_one(0))
    }

    /// Returns a number under which two workers meet. The next few numbers are free as well.
    pub(crate) fn room(&self) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(number) >> 1
    }
}
