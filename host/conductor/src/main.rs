//! The `conductor` binary: picks the subcommand, and turns how it ended into an exit code.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use conductor::cli::{CheckFormat, Cli, Command, DemoArgs, ServeArgs};
use conductor::import::OldEnvironment;
use conductor::{Exit, block_hashes, client_key, demo, explain, policy_tools, serve, simulate};

/// Gives memory back that it does not use any more; the C library's keeps what compiling a policy took, for each thread.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Some(Command::Check(args)) => {
            return match serve::check(&args.file, args.format == CheckFormat::Json) {
                Ok(exit) => exit.into(),
                Err(error) => failed(&error, Exit::Usage),
            };
        }
        Some(Command::Import(args)) => {
            return match serve::import(&args.file) {
                Ok(exit) => exit.into(),
                Err(error) => failed(&error, Exit::Usage),
            };
        }
        Some(Command::BlockHashes(args)) => block_hashes::print(&args),
        Some(Command::Policy(args)) => policy_tools::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Simulate(args)) => simulate::run(&args),
        Some(Command::ClientKey) => client_key::print(),
        Some(Command::Version) => {
            println!(
                "conductor {}, policy contract conductor:policy@0.1.0",
                env!("CARGO_PKG_VERSION")
            );
            Ok(Exit::Success)
        }
        Some(Command::Serve(args)) => router(&args),
        Some(Command::Demo(args)) => block_on(demo::run(&args)),
        None if cli.serve.is_empty() && !old_configuration() => block_on(demo::run(&DemoArgs::default())),
        None => router(&cli.serve),
    };
    ended.map_or_else(|error| failed(&error, Exit::of(&error)), Into::into)
}

fn router(args: &ServeArgs) -> anyhow::Result<Exit> {
    if args.is_empty() && !old_configuration() {
        let missing = "nothing to serve: give --config FILE, or --worker URL and the like";
        Cli::command()
            .error(ErrorKind::MissingRequiredArgument, missing)
            .exit();
    }
    block_on(serve::run(args))
}

/// Whether the environment names an old conductor's configuration.
fn old_configuration() -> bool {
    OldEnvironment::of_process().config_path.is_some()
}

fn block_on(task: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(task);
    // Whoever asked twice waits for no thread.
    runtime.shutdown_background();
    ended
}

fn failed(error: &anyhow::Error, exit: Exit) -> ExitCode {
    eprintln!("conductor: {error:#}");
    exit.into()
}
