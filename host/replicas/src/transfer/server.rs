//! Sending side of transfers: the contents that are kept while their parts are requested.

use std::sync::Arc;

use super::{PART_BYTES, TransferId, TransferPart, TransferRequest};
use crate::id::RouterId;

/// Most transfers at once. Each keeps the contents of one feed.
pub const MOST_TRANSFERS: usize = 4;
/// Time after which a transfer ends whose next part is not requested.
const IDLE_MS: u64 = 3_000;

/// Transfers under way.
#[derive(Debug, Default)]
pub struct TransferServer {
    kept: Vec<KeptContents>,
}

#[derive(Debug)]
struct KeptContents {
    to: RouterId,
    id: TransferId,
    bytes: Arc<[u8]>,
    used_ms: u64,
}

impl TransferServer {
    /// Ends transfers whose next part is overdue.
    pub fn expire(&mut self, now_ms: u64) {
        self.kept
            .retain(|kept| now_ms.saturating_sub(kept.used_ms) < IDLE_MS);
    }

    /// Returns whether a further transfer may begin.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.kept.len() < MOST_TRANSFERS
    }

    /// Keeps the contents of a transfer that begins.
    pub fn begin(&mut self, to: RouterId, id: TransferId, bytes: Vec<u8>, now_ms: u64) {
        if self.has_room() && !bytes.is_empty() {
            self.kept.push(KeptContents {
                to,
                id,
                bytes: bytes.into(),
                used_ms: now_ms,
            });
        }
    }

    /// Returns a requested part; `None` if the transfer is not under way. The last part ends it.
    pub fn part(&mut self, to: RouterId, request: &TransferRequest, now_ms: u64) -> Option<TransferPart> {
        let is_it = |kept: &KeptContents| kept.to == to && kept.id == request.id;
        let at = self.kept.iter().position(is_it)?;
        let kept = &mut self.kept[at];
        kept.used_ms = now_ms;
        let parts = kept.bytes.chunks(PART_BYTES);
        let count = u32::try_from(parts.len()).ok()?;
        let bytes = kept.bytes.chunks(PART_BYTES).nth(request.part as usize)?.to_vec();
        let part = TransferPart {
            id: request.id,
            part: request.part,
            parts: count,
            bytes,
        };
        if request.part + 1 == count {
            self.kept.swap_remove(at);
        }
        Some(part)
    }
}
