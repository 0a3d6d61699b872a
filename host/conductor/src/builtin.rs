//! The policies every binary carries: the components under `policies/prebuilt`, embedded.

/// A component embedded in the binary.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// What `builtin = "..."` and routes call it.
    pub name: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// All of them, in alphabetical order.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "cache-aware",
        bytes: include_bytes!("../../../policies/prebuilt/cache-aware.wasm"),
    },
    Builtin {
        name: "load-weighted",
        bytes: include_bytes!("../../../policies/prebuilt/load-weighted.wasm"),
    },
    Builtin {
        name: "pd-pairing",
        bytes: include_bytes!("../../../policies/prebuilt/pd-pairing.wasm"),
    },
    Builtin {
        name: "round-robin",
        bytes: include_bytes!("../../../policies/prebuilt/round-robin.wasm"),
    },
];

/// What decides where a route names no policy.
pub const DEFAULT: &str = "cache-aware";

/// Their names.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BUILTINS.iter().map(|builtin| builtin.name).collect()
}

/// One of them.
#[must_use]
pub fn find(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}
