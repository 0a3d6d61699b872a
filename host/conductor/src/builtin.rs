//! The policies every binary carries: the components under `policies/prebuilt`, embedded.

/// A component embedded in the binary.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// What `builtin = "..."` and routes call it.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// The component.
    pub bytes: &'static [u8],
}

/// All of them, in alphabetical order.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "cache-aware",
        about: "the least priced time to first token: cache and queue summed (the default)",
        bytes: include_bytes!("../../../policies/prebuilt/cache-aware.wasm"),
    },
    Builtin {
        name: "load-weighted",
        about: "the least loaded worker, by weight",
        bytes: include_bytes!("../../../policies/prebuilt/load-weighted.wasm"),
    },
    Builtin {
        name: "lora-affinity",
        about: "scorer: keeps the requests of a LoRA adapter on the workers that have it",
        bytes: include_bytes!("../../../policies/prebuilt/lora-affinity.wasm"),
    },
    Builtin {
        name: "pd-pairing",
        about: "the least priced pair of a prefill and a decode worker, or one worker for both",
        bytes: include_bytes!("../../../policies/prebuilt/pd-pairing.wasm"),
    },
    Builtin {
        name: "round-robin",
        about: "every eligible worker in turn",
        bytes: include_bytes!("../../../policies/prebuilt/round-robin.wasm"),
    },
    Builtin {
        name: "session-affinity",
        about: "the worker its session went to; new sessions to the least loaded",
        bytes: include_bytes!("../../../policies/prebuilt/session-affinity.wasm"),
    },
    Builtin {
        name: "tier-weight",
        about: "scorer: tokens of the prompt that a worker holds, by how fast their tier is",
        bytes: include_bytes!("../../../policies/prebuilt/tier-weight.wasm"),
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
