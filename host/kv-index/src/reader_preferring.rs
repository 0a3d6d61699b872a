//! Read-write lock that prefers readers over busy writers.
//!
//! With a plain lock a reader sleeps in the kernel while a busy writer takes the lock again and again, and waking up
//! costs more than the wait itself. Here a blocked reader announces itself and spins briefly. A writer takes the lock
//! only if no reader is announced, or after a short wait. Longer waits sleep as usual.

use std::sync::{PoisonError, TryLockError};

use crate::sync::{AtomicU32, Ordering, RwLock, RwLockReadGuard, spin};

/// Spins before a thread sleeps: about ten microseconds.
const TURNS: u32 = crate::sync::TURNS;

#[derive(Debug)]
pub(crate) struct ReaderPreferringLock<T> {
    inner: RwLock<T>,
    waiting: AtomicU32,
}

impl<T> ReaderPreferringLock<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner: RwLock::new(inner),
            waiting: AtomicU32::new(0),
        }
    }

    pub(crate) fn read<R>(&self, with: impl FnOnce(&T) -> R) -> R {
        if let Some(inner) = self.try_read() {
            return with(&inner);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        for _ in 0..TURNS {
            if let Some(inner) = self.try_read() {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                return with(&inner);
            }
            spin();
        }
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        with(&inner)
    }

    /// Ignores poisoning. A panic under the lock would be a bug of this crate and may leave a change half made: one
    /// worker's answers may be wrong until its cache is cleared. Serving continues.
    fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.inner.try_read() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(inner)) => Some(inner.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn write<R>(&self, with: impl FnOnce(&mut T) -> R) -> R {
        for _ in 0..TURNS {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            spin();
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        with(&mut inner)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Explores every interleaving of two writers and one reader.
    #[test]
    fn a_reader_sees_each_change_whole_and_everyone_gets_their_turn() {
        loom::model(|| {
            let lock = Arc::new(ReaderPreferringLock::new((0, 0)));
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let lock = Arc::clone(&lock);
                    loom::thread::spawn(move || {
                        lock.write(|pair| {
                            pair.0 += 1;
                            pair.1 += 1;
                        });
                    })
                })
                .collect();
            lock.read(|pair| assert_eq!(pair.0, pair.1));
            for writer in writers {
                writer.join().unwrap();
            }
            lock.read(|pair| assert_eq!(*pair, (2, 2)));
            assert_eq!(
                lock.waiting.load(Ordering::Relaxed),
                0,
                "no reader is announced any more"
            );
        });
    }
}
