//! Fetches of policies' bytes: one at a time, beside the task's other work, and again with backoff.

use std::fmt;

use agreement::{AgreedStore, ObjectRead, StoreError};
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::objects::{Attempts, ObjectState, ObjectTable};

/// Failed attempts after which the bytes count as failed. Attempts go on.
const QUIET_ATTEMPTS: u32 = 5;

/// Bytes as the store returned them.
type ReadBytes = Result<Option<Vec<u8>>, StoreError>;

/// Fetches of bytes that this router needs.
#[derive(Debug, Default)]
pub(super) struct ObjectFetches {
    /// Bytes that are not here yet.
    wanted: ObjectTable<Attempts>,
    running: Option<RunningRead>,
}

struct RunningRead {
    sha256: String,
    read: ObjectRead,
}

impl fmt::Debug for RunningRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningRead")
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

impl ObjectFetches {
    /// Adds bytes, which are due at once, and gives up those that are not wanted any more.
    pub(super) fn follow(&mut self, more: &[String], is_wanted: impl Fn(&str) -> bool) {
        self.wanted.retain(|sha256, _| is_wanted(sha256));
        for sha256 in more.iter().filter(|sha256| is_wanted(sha256)) {
            self.wanted.set(sha256, Attempts::new());
        }
    }

    /// Begins to read the first bytes that are due, unless others are being read.
    pub(super) fn begin<S: AgreedStore>(&mut self, store: &S) {
        if self.running.is_none() {
            let due = self.wanted.all_mut().find(|(_, attempts)| attempts.is_due());
            self.running = due.map(|(sha256, _)| RunningRead {
                sha256: sha256.to_owned(),
                read: store.object(sha256),
            });
        }
    }

    /// Waits until bytes are read; for ever if none are being read. Dropping the future loses nothing.
    pub(super) async fn finished(&mut self) -> (String, ReadBytes) {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let bytes = running.read.as_mut().await;
        let sha256 = std::mem::take(&mut running.sha256);
        self.running = None;
        (sha256, bytes)
    }

    /// Ends the running read, which begins again later: the store is away.
    pub(super) fn interrupt(&mut self) {
        self.running = None;
    }

    /// Takes the end of a read in. Returns the new state of the bytes; `None` if it stays.
    pub(super) fn take_in(&mut self, sha256: &str, bytes: ReadBytes) -> Option<ObjectState> {
        let why = match bytes {
            Ok(Some(bytes)) => {
                self.wanted.retain(|known, _| known != sha256);
                return Some(checked(sha256, bytes));
            }
            // The answer may be of a copy that lags.
            Ok(None) => "the store does not have its bytes".to_owned(),
            Err(error) => error.to_string(),
        };
        let attempts = self.wanted.get_mut(sha256)?;
        let failures = attempts.fail();
        if failures == 1 {
            warn!(
                sha256,
                why, "the bytes of an agreed policy are not read yet; they are read again"
            );
        }
        (failures == QUIET_ATTEMPTS).then_some(ObjectState::Failed(why))
    }
}

/// Returns bytes whose hash is checked.
fn checked(sha256: &str, bytes: Vec<u8>) -> ObjectState {
    let found = routing::hex(&Sha256::digest(&bytes));
    if found == sha256 {
        ObjectState::Ready(bytes.into())
    } else {
        ObjectState::Failed("the stored bytes have another SHA-256".to_owned())
    }
}
