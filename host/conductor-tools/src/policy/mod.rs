//! `conductor policy ...`: the tools of a policy's author.
//!
//! They run the very runtime of the router with its limits, so that what they accept is accepted by the router. Each
//! prints for people, or with `--json` for tools.

mod bench;
mod build;
mod check;
mod command;
pub(crate) mod component;
mod deploy;
mod diagnostic;
mod features;
mod inspect;
mod list;
mod parameters;
mod progress;
mod project;
mod replay;
mod sdk;
mod settings;
mod templates;
mod upload;

use std::fmt::Display;

use operator_tools::admin::printable_lines;
use policy_runtime::{EngineError, EngineLimits, PolicyEngine};
use serde::Serialize;

pub(crate) use self::replay::{Lines as LogLines, LogError};
pub use self::replay::{ReplayError, ReplayedCall, replay_call};

pub use self::command::run;
pub(crate) use self::component::ComponentFileError;
pub use self::upload::{ScenarioResult, UploadCheck, UploadProblem, UploadedComponent, check_upload};
use crate::print;

/// Returns an engine like the router's.
fn engine() -> Result<PolicyEngine, EngineError> {
    PolicyEngine::new(EngineLimits::default())
}

/// Prints a report. Its control characters are spelt out for people: components and recordings choose their texts.
fn print(report: &(impl Serialize + Display), json: bool) -> anyhow::Result<()> {
    print::print(report, printable_lines(&report.to_string()), json)
}
