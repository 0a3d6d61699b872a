//! Dispatch of the commands of `conductor policy`.

use operator_tools::commands::policies;

use super::{bench, build, check, deploy, features, inspect, list, project, replay};
use crate::Exit;
use crate::args::{PolicyArgs, PolicyCommand};

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
        PolicyCommand::Status(args) => policies::status(args),
        PolicyCommand::Rollback(args) => policies::roll_back(args),
        PolicyCommand::Resume(args) => policies::resume(args),
        PolicyCommand::Deploy(args) => deploy::deploy(args),
        PolicyCommand::Promote(args) => policies::promote(args),
        PolicyCommand::Retract(args) => policies::retract(args),
    }
}
