//! Why a component was not taken as a policy. Each message names the cause and the cure, because its reader has
//! just built the thing.

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
    /// The settings ask for more memory than the engine's slots have.
    #[error("give a policy {asked} bytes of memory: the most is {most}")]
    Memory {
        /// From the settings.
        asked: usize,
        /// From the engine's limits.
        most: usize,
    },
    /// Too many bytes to be compiled.
    #[error("load a component of {bytes} bytes: the most is {most}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// It would cost too much to compile.
    #[error("compile the component: {0}")]
    TooMuch(Excess),
    /// The process that compiles did not.
    #[error(transparent)]
    Compiler(ChildError),
    /// Not WebAssembly at all.
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
    /// WebAssembly of a version or layer this engine does not know.
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
    /// Damaged, cut off, or using proposals the engine does not have.
    #[error(
        "compile a component of {bytes} bytes: it is damaged, was still being written, or uses a feature of \
         WebAssembly that is not enabled here"
    )]
    Malformed {
        /// Its length.
        bytes: usize,
        /// As wasmtime has it.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A component for something else, or for another version of the contract.
    #[error("match a component to `conductor:policy` 0.1: {0}")]
    Contract(Mismatches),
    /// The right names with other types.
    #[error(
        "match the types of a component to `conductor:policy` 0.1: its names fit, its types do not; \
         rebuild it against this router's `wit/policy.wit`"
    )]
    Types(#[source] Box<dyn StdError + Send + Sync>),
    /// It died before it could be asked anything, or memory it needs at once is above its limit.
    #[error("instantiate the component with {memory_bytes} bytes of memory: {}", failure.detail)]
    Instantiate {
        /// From the settings.
        memory_bytes: usize,
        /// What it died of.
        failure: Failure,
    },
    /// It failed in `describe`.
    #[error("ask the policy who it is: {0}")]
    Describe(Failure),
    /// It failed in `parameters`.
    #[error("ask the policy for its parameters: {0}")]
    AskParameters(Failure),
    /// What it says of them cannot be.
    #[error("read what the policy says of its parameters")]
    Parameters(#[source] ParameterError),
    /// Its `params` are other than it says they are.
    #[error("configure the policy: {0}")]
    ParamsRefused(ParamFaults),
    /// It failed in `configure`.
    #[error("configure the policy: {0}")]
    Configure(Failure),
    /// It does not like its parameters.
    #[error("configure the policy: it refuses its `params`: {message}")]
    Params {
        /// The policy's own text, at most 1 KiB.
        message: String,
    },
    /// It wants a number nobody knows.
    #[error("lay out the policy's features (a name that ends in `?` may be unknown)")]
    Features(#[source] UnknownFeature),
    /// It failed in `subscribe`.
    #[error("ask the policy which events it wants: {0}")]
    AskEvents(Failure),
    /// It wants to be told what nobody tells.
    #[error("tell the policy of events (a name that ends in `?` may be unknown)")]
    Events(#[source] SubscribeError),
    /// It failed in `handle`.
    #[error("tell the policy of made-up events: {0}")]
    ProbeEvents(Failure),
    /// It failed in `tick`.
    #[error("have the policy tick: {0}")]
    ProbeTick(Failure),
    /// It wants more numbers than a call should carry.
    #[error("lay out {asked} features: the most is {most}")]
    TooManyFeatures {
        /// Of the request and of a candidate together.
        asked: usize,
        /// The limit.
        most: usize,
    },
    /// It scores workers one by one and wants to place pairs.
    #[error(
        "ask a scorer about pairs: it asks for `worker.role` and has no `schedule`; a scorer is asked once for each leg of a \
         request, and `request.phase` says for which"
    )]
    ScorerOfPairs,
    /// It started once and not again, or with another plan.
    #[error("start a second instance like the first: {}", .0.detail)]
    SecondInstance(Failure),
    /// It failed its trial.
    #[error("try the policy on {candidates} made-up candidates")]
    Probe {
        /// How many there were.
        candidates: usize,
        /// What happened.
        #[source]
        source: ProbeError,
    },
}

impl LoadError {
    /// Whether the parameters or limits are at fault, not the bytes.
    #[must_use]
    pub fn is_in_settings(&self) -> bool {
        matches!(
            self,
            Self::Params { .. } | Self::ParamsRefused(_) | Self::Memory { .. } | Self::Configure(_)
        )
    }

    /// What is wrong with which parameter, where the policy tells what its parameters are.
    #[must_use]
    pub fn param_faults(&self) -> Option<&ParamFaults> {
        match self {
            Self::ParamsRefused(faults) => Some(faults),
            _ => None,
        }
    }
}
