//! `conductor policy ...`: the tools of a policy's author.
//!
//! They run the very runtime of the router with its limits, so that what they accept is accepted by the router. Each
//! prints for people, or with `--json` for tools.

mod bench;
mod build;
mod check;
pub(crate) mod component;
mod diagnostic;
mod features;
mod inspect;
mod list;
mod parameters;
mod progress;
mod project;
mod replay;
mod settings;
pub(crate) mod table;
mod templates;

use std::fmt::Display;

use policy_runtime::{EngineError, EngineLimits, PolicyEngine};
use serde::Serialize;

pub(crate) use self::check::check as check_policy;
pub(crate) use self::replay::{Lines as LogLines, LogError};

pub(crate) use self::component::{ComponentFile, ComponentFileError};
use crate::Exit;
use crate::args::{PolicyArgs, PolicyCommand};
use crate::remote::deploy;
use crate::{print, remote};

/// Runs a command of `conductor policy`.
///
/// # Errors
/// If the command cannot run. Faults of a policy are printed, and set the exit code.
pub fn run(args: &PolicyArgs) -> anyhow::Result<Exit> {
    match &args.command {
        PolicyCommand::New(args) => project::run(args),
        PolicyCommand::Build(args) => build::run(args),
        PolicyCommand::Check(args) => check::run(args),
        PolicyCommand::Bench(args) => bench::run(args),
        PolicyCommand::Inspect(args) => inspect::run(args),
        PolicyCommand::Features(args) => features::run(args),
        PolicyCommand::List(args) => list::run(args),
        PolicyCommand::Replay(args) => replay::run(args),
        PolicyCommand::Status(args) => remote::status(args),
        PolicyCommand::Rollback(args) => remote::roll_back(args),
        PolicyCommand::Resume(args) => remote::resume(args),
        PolicyCommand::Deploy(args) => deploy::deploy(args),
        PolicyCommand::Promote(args) => deploy::promote(args),
        PolicyCommand::Retract(args) => deploy::retract(args),
    }
}

/// An engine like the router's.
fn engine() -> Result<PolicyEngine, EngineError> {
    PolicyEngine::new(EngineLimits::default())
}

/// Prints a report.
fn print(report: &(impl Serialize + Display), json: bool) -> anyhow::Result<()> {
    print::print(report, report, json)
}
