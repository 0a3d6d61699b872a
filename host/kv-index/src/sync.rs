//! Synchronization primitives of `reader_preferring.rs`, replaced by loom's under `--cfg loom`.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use std::sync::{RwLock, RwLockReadGuard};

    pub(crate) const TURNS: u32 = 256;

    pub(crate) fn spin() {
        std::hint::spin_loop();
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{RwLock, RwLockReadGuard};

    pub(crate) const TURNS: u32 = 2;

    pub(crate) fn spin() {
        loom::thread::yield_now();
    }
}

pub(crate) use real::*;
