//! Component compiler: recognises components by their first bytes and compiles them.

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::load_error::LoadError;

/// Largest component, in bytes; componentised Python has 18 MB.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// First bytes of every WebAssembly binary.
const MAGIC: &[u8; 4] = b"\0asm";
/// Version and layer after them: of a core module ...
const CORE_MODULE: [u8; 4] = [1, 0, 0, 0];
/// ... and of a component.
const COMPONENT: [u8; 4] = [0x0d, 0, 1, 0];

/// Compiles a recognised component: milliseconds for a compiled language, seconds for an interpreter.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Component, LoadError> {
    Component::from_binary(engine, bytes).map_err(|error| LoadError::Malformed {
        bytes: bytes.len(),
        source: error.into(),
    })
}

/// Refuses bytes that do not begin like a component.
pub(crate) fn recognise(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.len() > MAX_BYTES {
        return Err(LoadError::TooLarge {
            bytes: bytes.len(),
            most: MAX_BYTES,
        });
    }
    // A foreign .cwasm is machine code that would run unchecked; this process runs only its own compiler's.
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
