//! Values made where they lie on the heap.
//!
//! `Box::new` makes a value on the stack and copies it. The futures and states of a request are large, and a future
//! that was not polled yet is little more than its arguments. Here nothing can fail between the allocation and the
//! value, so the compiler writes the parts alone.

use std::pin::Pin;

/// Returns a value on the heap.
#[inline(always)]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// Returns a future on the heap.
#[inline(always)]
pub(crate) fn pinned<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}
