//! Dialects of the KV-cache transfer from a prefill to a decode worker, as the router sees them.

/// Protocol between the workers of a disaggregated pool. The messages of each are in `inference-api/src/handshake/`;
/// the behaviour of each on failures is in `host/adr/0009-prefill-decode.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// vLLM's `NixlConnector`: the prefill answer's parameters go with the decode leg.
    Nixl,
    /// vLLM's `MooncakeConnector`: both legs at once, under a transfer id the router makes up.
    Mooncake,
    /// A store that both sides know (vLLM's `MooncakeStoreConnector`, `ExampleConnector`, `LMCache`): prefill, then the
    /// request as it is.
    Store,
    /// SGLang: both legs at once, with the same body and a bootstrap room.
    Sglang,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 4] = [Self::Nixl, Self::Mooncake, Self::Store, Self::Sglang];
    /// Default port of a prefill worker's bootstrap server, in Mooncake and in SGLang.
    pub const USUAL_BOOTSTRAP_PORT: u16 = 8998;

    /// Returns its name in the configuration and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nixl => "nixl",
            Self::Mooncake => "mooncake-connector",
            Self::Store => "store",
            Self::Sglang => "sglang",
        }
    }

    /// Returns whether both legs are sent at once; else the decode leg follows the prefill leg's answer.
    #[must_use]
    pub fn is_concurrent(self) -> bool {
        matches!(self, Self::Mooncake | Self::Sglang)
    }

    /// Returns whether a decode worker can answer a request without a prefill worker. SGLang's cannot: started as
    /// decode, it waits for a bootstrap.
    #[must_use]
    pub fn decodes_alone(self) -> bool {
        self != Self::Sglang
    }

    /// Returns whether its prefill workers have a bootstrap server whose address the decode worker receives.
    #[must_use]
    pub fn has_bootstrap(self) -> bool {
        matches!(self, Self::Mooncake | Self::Sglang)
    }
}
