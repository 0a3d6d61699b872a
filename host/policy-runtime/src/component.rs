//! Bytes become a compiled component, or are told what they are instead.

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::load_error::LoadError;

/// Largest component, in bytes; componentised Python has 18 MB.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// What every binary of WebAssembly begins with.
const MAGIC: &[u8; 4] = b"\0asm";
/// The version and layer that follow it: of a core module ...
const CORE_MODULE: [u8; 4] = [1, 0, 0, 0];
/// ... and of a component.
const COMPONENT: [u8; 4] = [0x0d, 0, 1, 0];

/// Compiles a component that was recognised: milliseconds for a compiled language, seconds for an interpreter.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, LoadError> {
    Component::from_binary(engine, bytes).map_err(|error| LoadError::Malformed {
        bytes: bytes.len(),
        source: error.into(),
    })
}

/// Refuses what is not a component by its first bytes.
pub(crate) fn recognise(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.len() > MAX_BYTES {
        return Err(LoadError::TooLarge {
            bytes: bytes.len(),
            most: MAX_BYTES,
        });
    }
    // A foreign .cwasm is machine code that would run unchecked; ours come from the compiler in this process only.
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(LoadError::Precompiled);
    }
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(if bytes.trim_ascii_start().starts_with(b"(") {
            LoadError::Text
        } else {
            LoadError::NotWebAssembly { bytes: bytes.len() }
        });
    };
    match rest.first_chunk::<4>() {
        Some(&COMPONENT) => Ok(()),
        Some(&CORE_MODULE) => Err(LoadError::CoreModule),
        Some(&version) => Err(LoadError::UnknownLayer { version }),
        None => Err(LoadError::NotWebAssembly { bytes: bytes.len() }),
    }
}
