//! Scheduling policies as WebAssembly components.
