//! Instance pool: one slot for a warm instance per deciding thread.
//!
//! A slot is a lock around an instance, held during the call. Each thread starts at a slot of its own, so the lock is
//! free and the instance warm in that core's cache. Only with more threads than slots do two meet; the second takes
//! the next free slot. Unlike thread-local storage, the pool bounds the instances of the whole policy, and dropping
//! the policy drops all of them at once. Unlike a shared queue, it moves nothing between cores.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::instance::Instance;
use crate::policy::WasmPolicy;

/// Content of a slot: `None` until an instance is created, and after a fault.
pub(crate) type PooledInstance = Option<Box<Instance>>;

/// Slots of one policy.
pub(crate) struct InstancePool {
    slots: Box<[PoolSlot]>,
    turned_away: AtomicU64,
}

/// Two cache lines, so that neighbours share none.
#[derive(Default)]
#[repr(align(128))]
struct PoolSlot {
    instance: Mutex<PooledInstance>,
    claims: AtomicU64,
}

impl InstancePool {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count.max(1)).map(|_| PoolSlot::default()).collect(),
            turned_away: AtomicU64::new(0),
        }
    }

    /// Returns a free slot, this thread's own if possible; `None` if all are in use.
    pub(crate) fn claim(&self) -> Option<MutexGuard<'_, PooledInstance>> {
        let home = home() % self.slots.len();
        let (before, from_home) = self.slots.split_at(home);
        let claimed = from_home.iter().chain(before).find_map(PoolSlot::claim);
        if claimed.is_none() {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        claimed
    }

    /// Returns the number of requests for a slot.
    pub(crate) fn requests(&self) -> u64 {
        let claims = self.slots.iter().map(|slot| slot.claims.load(Ordering::Relaxed));
        claims.sum::<u64>() + self.turned_away.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Empties every free slot.
    fn release(&self) {
        for slot in &self.slots {
            if let Ok(mut instance) = slot.instance.try_lock() {
                *instance = None;
            }
        }
    }
}

impl WasmPolicy {
    /// Drops the instances outside calls, for a policy that is kept but not used. The next call creates one again.
    pub fn release_instances(&self) {
        self.slots.release();
    }
}

impl PoolSlot {
    fn claim(&self) -> Option<MutexGuard<'_, PooledInstance>> {
        let instance = match self.instance.try_lock() {
            Ok(instance) => instance,
            // A panic in the host during a call: the instance may be inconsistent.
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut instance = poisoned.into_inner();
                *instance = None;
                self.instance.clear_poison();
                instance
            }
            Err(TryLockError::WouldBlock) => return None,
        };
        self.claims.fetch_add(1, Ordering::Relaxed);
        Some(instance)
    }
}

/// Returns the number of the calling thread among all deciding threads.
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    HOME.with(|home| *home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_slot_is_exclusive_until_released() {
        let slots = InstancePool::new(2);
        let first = slots.claim().unwrap();
        let second = slots.claim().unwrap();
        assert!(slots.claim().is_none());
        drop(first);
        assert!(slots.claim().is_some());
        drop(second);
        assert_eq!(slots.requests(), 4);
    }

    #[test]
    fn a_slot_is_usable_again_after_a_panic_in_it() {
        let slots = InstancePool::new(1);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _slot = slots.claim();
                panic!("on purpose")
            });
            assert!(panicking.join().is_err());
        });
        assert!(slots.claim().is_some_and(|instance| instance.is_none()));
    }
}
