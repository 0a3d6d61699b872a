//! Where a policy's warm instances wait, one for each thread that decides.
//!
//! A slot is a lock around an instance, held during the call. Each thread starts looking at a slot of its own,
//! so the lock is free and the instance warm in that core's cache; only with more threads than slots do two
//! meet, and then the second takes the next free slot. Against a map in thread-local storage this keeps the
//! number of instances bounded for the policy as a whole, and dropping the policy drops every one of them at
//! once; against a shared queue it moves nothing between cores.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::instance::Instance;
use crate::policy::WasmPolicy;

/// What a claimed slot holds: none until an instance is made, and again after a fault.
pub(crate) type Occupant = Option<Box<Instance>>;

/// The slots of one policy.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    turned_away: AtomicU64,
}

/// Two cache lines, so that neighbours never share one.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    occupant: Mutex<Occupant>,
    claims: AtomicU64,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count.max(1)).map(|_| Slot::default()).collect(),
            turned_away: AtomicU64::new(0),
        }
    }

    /// A free slot, this thread's own if possible; none while every one is in use.
    pub(crate) fn claim(&self) -> Option<MutexGuard<'_, Occupant>> {
        let home = home() % self.slots.len();
        let (before, from_home) = self.slots.split_at(home);
        let claimed = from_home.iter().chain(before).find_map(Slot::claim);
        if claimed.is_none() {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        claimed
    }

    /// How often a slot was asked for.
    pub(crate) fn asked(&self) -> u64 {
        let claims = self.slots.iter().map(|slot| slot.claims.load(Ordering::Relaxed));
        claims.sum::<u64>() + self.turned_away.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Empties every slot that is free.
    fn release(&self) {
        for slot in &self.slots {
            if let Ok(mut occupant) = slot.occupant.try_lock() {
                *occupant = None;
            }
        }
    }
}

impl WasmPolicy {
    /// Drops the instances that are not in a call: for a policy that is kept and not asked. The next call makes one again.
    pub fn release_instances(&self) {
        self.slots.release();
    }
}

impl Slot {
    fn claim(&self) -> Option<MutexGuard<'_, Occupant>> {
        let occupant = match self.occupant.try_lock() {
            Ok(occupant) => occupant,
            // A panic in the host during a call: what it left behind is not to be trusted.
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut occupant = poisoned.into_inner();
                *occupant = None;
                self.occupant.clear_poison();
                occupant
            }
            Err(TryLockError::WouldBlock) => return None,
        };
        self.claims.fetch_add(1, Ordering::Relaxed);
        Some(occupant)
    }
}

/// The number of the calling thread among those that ever decided.
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
    fn a_claimed_slot_is_nobody_elses_until_released() {
        let slots = Slots::new(2);
        let first = slots.claim().unwrap();
        let second = slots.claim().unwrap();
        assert!(slots.claim().is_none());
        drop(first);
        assert!(slots.claim().is_some());
        drop(second);
        assert_eq!(slots.asked(), 4);
    }

    #[test]
    fn a_slot_is_usable_again_after_a_panic_in_it() {
        let slots = Slots::new(1);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _slot = slots.claim();
                panic!("on purpose")
            });
            assert!(panicking.join().is_err());
        });
        assert!(slots.claim().is_some_and(|occupant| occupant.is_none()));
    }
}
