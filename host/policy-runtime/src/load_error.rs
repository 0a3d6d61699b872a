//! Errors of loading a policy. Each message names the cause and the fix, because its reader has just built the
//! component.

use std::error::Error as StdError;

use routing::UnknownFeature;
use thiserror::Error;

use crate::bounds::Excess;
use crate::child::ChildError;
use crate::contract::Mismatches;
use crate::fault::Failure;
use crate::parameters::{ParamFaults, ParameterError};
use crate::probe::ProbeError;
use crate::subscription::SubscribeError;

/// A component could not be loaded as a policy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The settings request more memory than the engine's slots have.
    #[error("give a policy {requested} bytes of memory: the maximum is {most}")]
    Memory {
        /// Memory of the settings.
        requested: usize,
        /// Maximum by the engine's limits.
        most: usize,
    },
    /// The component has too many bytes.
    #[error("load a component of {bytes} bytes: the maximum is {most}")]
    TooLarge {
        /// Length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The component would cost too much to compile.
    #[error("compile the component: {0}")]
    TooMuch(Excess),
    /// The compiler process failed.
    #[error(transparent)]
    Compiler(ChildError),
    /// Not WebAssembly.
    #[error("read {bytes} bytes as a component: they do not begin like WebAssembly; is it the right file?")]
    NotWebAssembly {
        /// Their length.
        bytes: usize,
    },
    /// The text format.
    #[error("read WebAssembly text: encode it with `wasm-tools parse` first")]
    Text,
    /// A core module.
    #[error("load a core module as a policy: it must be a component; run `conductor policy build` on it")]
    CoreModule,
    /// WebAssembly of a version or layer that this engine does not support.
    #[error("read WebAssembly of version {version:?}: rebuild it with a current toolchain")]
    UnknownLayer {
        /// The four bytes after the magic number.
        version: [u8; 4],
    },
    /// Machine code.
    #[error(
        "load a precompiled `.cwasm`: it is machine code that cannot be checked; \
         give the `.wasm` component it was made from"
    )]
    Precompiled,
    /// Damaged, truncated, or using unsupported proposals.
    #[error(
        "compile a component of {bytes} bytes: it is damaged, was still being written, or uses a feature of \
         WebAssembly that is not enabled here"
    )]
    Malformed {
        /// Length.
        bytes: usize,
        /// wasmtime's error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A component for another purpose, or for another version of the contract.
    #[error("match a component to `conductor:policy` 0.1: {0}")]
    Contract(Mismatches),
    /// The names match, the types do not.
    #[error(
        "match the types of a component to `conductor:policy` 0.1: its names fit, its types do not; \
         rebuild it against this router's `wit/policy.wit`"
    )]
    Types(#[source] Box<dyn StdError + Send + Sync>),
    /// The component failed before the first call, or needs more initial memory than its limit.
    #[error("instantiate the component with {memory_bytes} bytes of memory: {}", failure.detail)]
    Instantiate {
        /// Memory of the settings.
        memory_bytes: usize,
        /// The failure.
        failure: Failure,
    },
    /// The policy failed in `describe`.
    #[error("call `describe` of the policy: {0}")]
    Describe(Failure),
    /// The policy failed in `parameters`.
    #[error("call `parameters` of the policy: {0}")]
    AskParameters(Failure),
    /// The description of the parameters is invalid.
    #[error("read the policy's description of its parameters")]
    Parameters(#[source] ParameterError),
    /// The `params` do not match the description.
    #[error("configure the policy: {0}")]
    ParamsRefused(ParamFaults),
    /// The policy failed in `configure`.
    #[error("configure the policy: {0}")]
    Configure(Failure),
    /// The policy refuses its parameters.
    #[error("configure the policy: it refuses its `params`: {message}")]
    Params {
        /// The policy's own text, at most 1 KiB.
        message: String,
    },
    /// The policy requests an unknown feature.
    #[error("lay out the policy's features (a name that ends in `?` may be unknown)")]
    Features(#[source] UnknownFeature),
    /// The policy failed in `subscribe`.
    #[error("call `subscribe` of the policy: {0}")]
    AskEvents(Failure),
    /// The policy subscribes to an unknown event.
    #[error("subscribe the policy to its events (a name that ends in `?` may be unknown)")]
    Events(#[source] SubscribeError),
    /// The policy failed in `handle`.
    #[error("deliver synthetic events to the policy: {0}")]
    ProbeEvents(Failure),
    /// The policy failed in `tick`.
    #[error("call `tick` of the policy: {0}")]
    ProbeTick(Failure),
    /// The policy requests too many features.
    #[error("compute {requested} features: the maximum is {most}")]
    TooManyFeatures {
        /// Features of the request and of a candidate together.
        requested: usize,
        /// The limit.
        most: usize,
    },
    /// The policy scores workers singly, but requests pairs.
    #[error(
        "use a scorer for pairs: it requests `worker.role` and has no `schedule`; a scorer is called once for each leg of a \
         request, and `request.phase` says for which"
    )]
    ScorerOfPairs,
    /// The policy started once, but not again, or with another plan.
    #[error("start a second instance like the first: {}", .0.detail)]
    SecondInstance(Failure),
    /// The policy failed its trial.
    #[error("try the policy on {candidates} synthetic candidates{}", unknown_prompt(*.is_prompt_unknown))]
    Probe {
        /// Number of candidates.
        candidates: usize,
        /// `true` if the tokens of the trial's prompt are unknown, so that the policy sees no match of any worker.
        is_prompt_unknown: bool,
        /// The cause.
        #[source]
        source: ProbeError,
    },
}

fn unknown_prompt(is_unknown: bool) -> &'static str {
    if is_unknown {
        " and a prompt whose tokens are unknown (`index.matched` is empty)"
    } else {
        ""
    }
}

impl LoadError {
    /// Returns `true` if the compiler process failed.
    #[must_use]
    pub fn is_of_compiler(&self) -> bool {
        matches!(self, Self::Compiler(_))
    }

    /// Returns `true` if the machine may be at fault: the same component may load at another attempt.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Compiler(error) if error.is_transient())
    }

    /// Returns `true` if the parameters or limits are at fault, not the bytes.
    #[must_use]
    pub fn is_in_settings(&self) -> bool {
        matches!(
            self,
            Self::Params { .. } | Self::ParamsRefused(_) | Self::Memory { .. } | Self::Configure(_)
        )
    }

    /// Returns the faults of each parameter, if the policy describes its parameters.
    #[must_use]
    pub fn param_faults(&self) -> Option<&ParamFaults> {
        match self {
            Self::ParamsRefused(faults) => Some(faults),
            _ => None,
        }
    }
}
