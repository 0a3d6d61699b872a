//! Memory that records may take in all, in the queue to the file and in the list of the explained.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that are shared out.
#[derive(Debug)]
pub(super) struct Room {
    left: AtomicUsize,
}

/// Some of them, given back when dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(super) fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(bytes),
        })
    }

    /// None where there is not as much left.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Taken> {
        self.left
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .ok()?;
        Some(Taken {
            room: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_nobody_elses_until_it_is_given_back() {
        let room = Room::of(10);
        let most = room.take(7).unwrap();
        assert!(room.take(4).is_none());
        drop(most);
        assert!(room.take(10).is_some());
    }
}
