//! Restoring components from machine code: the only module of the router with `unsafe`, because such code runs
//! unchecked.
//!
//! Safety rests on the source of the code. There are two sources, each named by a [`Voucher`]:
//! - this router in another run, proven by a MAC with the cache's own key (`code_cache/`);
//! - a child process that runs this router's own program and received the component (`child/`).
//!
//! The code is in memory by then: the proof covers the very bytes that run.

use wasmtime::Engine;
use wasmtime::component::Component;

/// Proof that code is from this router's compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voucher {
    /// The MAC was verified with the cache's key, over the very bytes that are passed in.
    Mac,
    /// Received from the pipe of a child that runs this router's own program.
    Child,
}

/// Restores a component from compiled code.
///
/// # Errors
/// Returns an error if its header has another version or other settings of wasmtime.
pub(crate) fn restore(engine: &Engine, code: &[u8], voucher: Voucher) -> wasmtime::Result<Component> {
    match voucher {
        Voucher::Mac | Voucher::Child => {}
    }
    #[expect(unsafe_code, reason = "the only way to run code that was compiled before")]
    // SAFETY: `code` is what `Component::serialize` or `Engine::precompile_component` gave, unchanged: the voucher
    // names who checked that, and how. Wasmtime refuses code of its other versions or settings by the header.
    unsafe {
        Component::deserialize(engine, code)
    }
}
