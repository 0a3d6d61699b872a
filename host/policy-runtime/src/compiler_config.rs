//! Compiler settings of wasmtime, the same in the router and in the compiler process.

use wasmtime::Config;

/// Stack of a call, in bytes. It is part of the calling thread's stack (2 MiB), of which enough must remain.
const WASM_STACK: usize = 512 << 10;

/// Returns the settings that machine code depends on. Instance allocation is not among them.
pub(crate) fn compiler_config() -> Config {
    let mut config = Config::new();
    config
        // Loops and function entries check a counter, without measurable cost for a policy of this size. Fuel costs
        // the same, and counts instructions instead of time. See budget.rs for the handling of a tick.
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        // Deterministic on every machine, for replay: one bit pattern for NaN (`total_cmp` sees its sign, which x86
        // and ARM set differently), and one result for relaxed SIMD. Threads, the other source of nondeterminism, are
        // not compiled in.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    config
}
