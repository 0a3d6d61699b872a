//! `conductor policy ...`: the tools of a policy's author.
//!
//! They run the very runtime of the router with its limits, so that what they accept is accepted by the router. Each
//! prints for people, or with `--json` for tools.

mod bench;
mod build;
mod check;
mod features;
mod finding;
mod inspect;
mod list;
mod parameters;
mod progress;
mod project;
mod replay;
mod settings;
pub(crate) mod subject;
pub(crate) mod table;
mod templates;

use std::fmt::Display;

use policy_runtime::{EngineError, EngineLimits, PolicyEngine};
use serde::Serialize;

pub(crate) use self::check::check as check_policy;
pub(crate) use self::replay::{Lines as LogLines, LogError};

pub(crate) use self::subject::{Subject, SubjectError};
use crate::cli::{PolicyArgs, PolicyCommand};
use crate::exit::Exit;
use crate::{policy_deploy, policy_remote, print};

/// Does what was asked.
///
/// # Errors
/// Where it could not be done at all; faults of a policy are told on the way, and by the exit code.
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
        PolicyCommand::Status(args) => policy_remote::status(args),
        PolicyCommand::Rollback(args) => policy_remote::roll_back(args),
        PolicyCommand::Resume(args) => policy_remote::resume(args),
        PolicyCommand::Deploy(args) => policy_deploy::deploy(args),
        PolicyCommand::Promote(args) => policy_deploy::promote(args),
        PolicyCommand::Retract(args) => policy_deploy::retract(args),
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
