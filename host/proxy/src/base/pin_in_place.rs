//! Futures made where they lie on the heap.

use std::pin::Pin;

/// Returns a future on the heap. `Box::pin` makes it on the stack first, and copies its whole size, although a future
/// that was not polled yet is little more than its arguments. Here nothing can fail between both, so that the compiler
/// writes the arguments alone.
#[inline(always)]
pub(crate) fn pin_in_place<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let room = Box::<F>::new_uninit();
    Box::into_pin(Box::write(room, make()))
}
