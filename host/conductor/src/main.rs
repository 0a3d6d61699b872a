//! The `conductor` binary: picks the subcommand, and turns how it ended into an exit code.

use std::process::ExitCode;

use clap::error::ErrorKind;
use conductor::cli::{self, Command, CompilePolicyArgs, DemoArgs, ServeArgs};
use conductor::start::{CONFIG_FILE, Start};
use conductor::{about, demo, import, init, serve};
use conductor_tools::{Exit, block_hashes, client_key, explain, policy, simulate};
use observability::error_chain;
use operator_tools::commands;
use policy_runtime::child::CompileProcessLimits;

/// Allocator jemalloc, which returns unused memory to the system. The C library's keeps the memory of a policy's
/// compilation in each thread. A thread of jemalloc (the feature `background_threads`) returns it while the router is
/// idle.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = cli::parse();
    let ended = match cli.command {
        Some(Command::Check(args)) => {
            return match serve::check(&args) {
                Ok(exit) => exit.into(),
                Err(error) => failed(&error, Exit::Usage),
            };
        }
        Some(Command::Import(args)) => {
            return match import::run(&args) {
                Ok(exit) => exit.into(),
                Err(error) => failed(&error, Exit::Usage),
            };
        }
        Some(Command::Init(args)) => init::run(&args),
        Some(Command::BlockHashes(args)) => block_hashes::print(&args),
        Some(Command::Policy(args)) => policy::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Simulate(args)) => simulate::run(&args),
        Some(Command::Status(args)) => commands::status(&args),
        Some(Command::Top(args)) => commands::top(&args),
        Some(Command::Workers(args)) => commands::workers(&args),
        Some(Command::Feeds(args)) => commands::feeds(&args),
        Some(Command::Trials(args)) => commands::trials(&args),
        Some(Command::Requests(args)) => commands::requests(&args),
        Some(Command::Reload(args)) => commands::reload(&args),
        Some(Command::Drain(args)) => commands::drain(&args),
        Some(Command::Resume(args)) => commands::resume(&args),
        Some(Command::ClientKey) => client_key::print(),
        Some(Command::Version(args)) => about::version(args.verbose),
        Some(Command::CompilePolicy(args)) => return compiler(&args),
        Some(Command::Completions(args)) => about::completions(args.shell),
        Some(Command::ManPages(args)) => about::man_pages(&args.folder),
        Some(Command::Serve(args) | Command::Mooncake(args)) => router(*args),
        Some(Command::Demo(args)) => block_on(demo::run(&args)),
        None if cli.serve.is_empty() => bare(cli.serve),
        None => router(cli.serve),
    };
    ended.map_or_else(|error| failed(&error, Exit::of(&error)), Into::into)
}

/// Runs the child of a router: compiles a policy and ends.
fn compiler(args: &CompilePolicyArgs) -> ExitCode {
    match policy_runtime::child::serve(CompileProcessLimits {
        memory_bytes: args.memory,
        data_bytes: args.data,
        cpu_seconds: args.cpu,
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error_chain(&error));
            error.exit_code().into()
        }
    }
}

/// Runs `conductor` without a command, a file or a worker.
fn bare(args: ServeArgs) -> anyhow::Result<Exit> {
    let start = Start::choose();
    if start == Start::Demo {
        eprintln!("conductor: {}", start.reason());
        let args = DemoArgs {
            log_level: args.level().map(str::to_owned),
            ..DemoArgs::default()
        };
        return block_on(demo::run(&args));
    }
    router(args)
}

fn router(mut args: ServeArgs) -> anyhow::Result<Exit> {
    if args.is_empty() {
        let start = Start::choose();
        match &start {
            Start::File(file) => args.config = Some(file.clone()),
            Start::LegacyConfiguration => {}
            Start::Demo => {
                let missing = format!(
                    "nothing to serve: give --config FILE, or --worker URL and the like, or run it where there is a `{CONFIG_FILE}`"
                );
                cli::command()
                    .error(ErrorKind::MissingRequiredArgument, missing)
                    .exit();
            }
        }
        eprintln!("conductor: {}", start.reason());
    }
    block_on(serve::run(&args))
}

fn block_on(task: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(task);
    // After a second signal, no thread is waited for.
    runtime.shutdown_background();
    ended
}

fn failed(error: &anyhow::Error, exit: Exit) -> ExitCode {
    eprintln!("conductor: {error:#}");
    exit.into()
}
