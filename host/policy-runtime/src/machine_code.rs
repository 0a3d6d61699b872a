//! Machine code becomes a component again: the one file of the router with `unsafe`, since such code runs unchecked.
//!
//! It is sound by who made the code. There are two makers, and each is named by a [`Voucher`]:
//! - this router in another run, as the MAC of the cache's own key shows (`code_cache/`);
//! - a child process that runs this router's own program and was given the component (`child.rs`).
//!
//! The code is in memory by then: what vouched for it saw the bytes that run.

use wasmtime::Engine;
use wasmtime::component::Component;

/// Who says that code is from this router's compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voucher {
    /// Its MAC was verified with the cache's key, over the very bytes that are handed in.
    Mac,
    /// It came over the pipe of a child that runs this router's own program.
    Child,
}

/// Takes code that was compiled before.
///
/// # Errors
/// Where it is of another version or other settings of wasmtime, which its header says.
pub(crate) fn restore(engine: &Engine, code: &[u8], voucher: Voucher) -> wasmtime::Result<Component> {
    match voucher {
        Voucher::Mac | Voucher::Child => {}
    }
    #[expect(unsafe_code, reason = "the only way to run code that was compiled before")]
    // SAFETY: `code` is what `Component::serialize` or `Engine::precompile_component` gave, unchanged: the voucher says who checked
    // that, and how. Wasmtime refuses code of its other versions or settings by the header.
    unsafe {
        Component::deserialize(engine, code)
    }
}
