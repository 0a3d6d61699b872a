//! Definition of the command line. Parsing does no I/O; `main.rs` calls the module that acts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use conductor_tools::args::{BlockHashesArgs, ExplainArgs, PolicyArgs, SimulateArgs};
use mooncake_compat::fleet_flags::{FLEET_GROUP, FleetArgs};

/// A router for fleets of LLM inference servers whose scheduling policies are WebAssembly components.
///
/// Without arguments it serves the `conductor.toml` of the working directory. Where there is none it runs `conductor demo`: a router over
/// four mock engines, with things to try.
#[derive(Debug, Parser)]
#[command(
    name = "conductor",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// What to do; without it, `serve` where there are arguments or a `conductor.toml`, else `demo`.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// `conductor --config FILE` is `conductor serve --config FILE`.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the router: by a file, by flags, or by the `conductor.toml` of the working directory.
    Serve(Box<ServeArgs>),
    /// Check a configuration, offline; with --live, also the workers it names.
    ///
    /// Exits with 0 when it is valid and no check failed (warnings do not count), 1 otherwise, 2 when it cannot be read.
    Check(Box<CheckArgs>),
    /// Translate a configuration of Mooncake's old conductor: prints the TOML, and on stderr what it leaves out.
    ///
    /// CONDUCTOR_LOG_LEVEL and CONDUCTOR_BLOCK_SIZE are taken in as the old conductor did; CONDUCTOR_SEED and NONE_HASH mean
    /// nothing here. `conductor serve` without a configuration runs the file that CONDUCTOR_CONFIG_PATH names, imported so.
    Import(ImportArgs),
    /// Print the hash of each block of a prompt, as an engine or an indexer names it: to find out whether a hash profile is the
    /// engine's. The prompt is a JSON array of token ids on standard input.
    BlockHashes(BlockHashesArgs),
    /// Run the router over a fleet of mock engines in this process: no GPU, no files.
    Demo(DemoArgs),
    /// Write, build, check, time and look into scheduling policies.
    Policy(PolicyArgs),
    /// Ask a running router why a request went where it went: each candidate with its numbers, who decided, and how it ended.
    ///
    /// It knows the latest requests that it recorded, and those that came with the header `x-conductor-explain: 1`.
    Explain(ExplainArgs),
    /// Have policies place a trace of requests on a model of a cluster, and compare what became of them.
    Simulate(Box<SimulateArgs>),
    /// Make a key for a client: prints it, and its hash for `key-sha256` of `[clients.NAME]`.
    ClientKey,
    /// Print the version and what it was built with.
    Version,
    /// Compile a component from standard input to machine code on standard output, within limits: the router runs this itself.
    #[command(hide = true)]
    CompilePolicy(CompilePolicyArgs),
}

/// Arguments of `compile-policy`.
#[derive(Debug, Args)]
pub struct CompilePolicyArgs {
    /// Address space, in bytes.
    pub memory: u64,

    /// CPU time, in seconds.
    pub cpu: u64,
}

/// Source of the configuration: a file, or a few flags that stand for one.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// The configuration file, watched while running.
    #[arg(long, short, value_name = "FILE", conflicts_with = FLEET_GROUP)]
    pub config: Option<PathBuf>,

    /// What to log: off, error, warn, info, debug or trace, or TARGET=LEVEL pairs. Overrides `level` of [log], reloads included.
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub log_level: Option<String>,

    /// Print the configuration that the flags mean and exit.
    #[arg(long, requires = FLEET_GROUP)]
    pub print_config: bool,

    /// A fleet without a file.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

impl ServeArgs {
    /// Returns true if neither a file nor a worker is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.config.is_none() && self.fleet.is_empty()
    }
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The file to check; the `conductor.toml` of the working directory unless given.
    #[arg(conflicts_with = FLEET_GROUP)]
    pub file: Option<PathBuf>,

    /// Also reach every worker: models, tokenizer, KV events, prefill/decode connector, clock and version.
    #[arg(long)]
    pub live: bool,

    /// How to print what was found.
    #[arg(long, short = 'o', visible_alias = "output", value_enum, default_value_t = CheckFormat::Text)]
    pub format: CheckFormat,

    /// A fleet without a file.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

/// A log level, or why it is none.
fn log_level(text: &str) -> Result<String, String> {
    crate::telemetry::check_level(text)?;
    Ok(text.to_owned())
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The old file, usually `conductor_config.json`.
    pub file: PathBuf,
}

/// Output format of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// With the lines concerned, for people.
    Text,
    /// One JSON array, for tools.
    Json,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Where to listen; the admin pages are on the next port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// How many mock engines.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,

    /// Instead of serving: run one multi-turn workload against round-robin, cache-aware and the default policy and compare them.
    #[arg(long)]
    pub compare: bool,

    /// Seed of the mock engines and of the workload.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// What to log: off, error, warn, info, debug or trace, or TARGET=LEVEL pairs.
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub log_level: Option<String>,
}

impl Default for DemoArgs {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: 4,
            compare: false,
            seed: 1,
            log_level: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parse(args: &[&str]) -> Cli {
        Cli::try_parse_from(std::iter::once(&"conductor").chain(args)).unwrap()
    }

    #[test]
    fn no_arguments_mean_no_command_and_nothing_to_serve() {
        let cli = parse(&[]);
        assert!(cli.command.is_none() && cli.serve.is_empty());
    }

    #[test]
    fn serve_may_be_left_out() {
        assert_eq!(parse(&["--config", "a.toml"]).serve.config, Some("a.toml".into()));
        let Some(Command::Serve(args)) = parse(&["serve", "--config", "a.toml"]).command else {
            panic!()
        };
        assert_eq!(args.config, Some("a.toml".into()));
    }

    #[test]
    fn a_file_and_fleet_flags_exclude_each_other() {
        assert!(Cli::try_parse_from(["conductor", "--config", "a", "--worker", "http://b"]).is_err());
        assert!(Cli::try_parse_from(["conductor", "--config", "a", "--port", "1"]).is_err());
        assert!(Cli::try_parse_from(["conductor", "--policy", "round-robin"]).is_err());
        assert!(Cli::try_parse_from(["conductor", "--port", "1"]).is_err());
    }

    #[test]
    fn a_log_level_is_taken_with_or_without_a_command_and_a_bad_one_is_a_mistake_of_the_command_line() {
        let cli = parse(&["--log-level", "warn,proxy=debug"]);
        assert_eq!(cli.serve.log_level.as_deref(), Some("warn,proxy=debug"));
        assert!(cli.serve.is_empty(), "it names nothing to serve");
        let Some(Command::Demo(demo)) = parse(&["demo", "--log-level", "debug"]).command else {
            panic!()
        };
        assert_eq!(demo.log_level.as_deref(), Some("debug"));
        for args in [&["--log-level", "inof"][..], &["demo", "--log-level", "inof"]] {
            let refused = Cli::try_parse_from(std::iter::once(&"conductor").chain(args)).unwrap_err();
            let says = refused.to_string();
            assert!(
                says.contains("--log-level") && says.contains("did you mean `info`?"),
                "{says}"
            );
            assert_eq!(refused.exit_code(), 2);
        }
    }

    #[test]
    fn a_check_takes_a_file_or_flags() {
        let Some(Command::Check(check)) = parse(&["check", "a.toml", "--live", "--output", "json"]).command
        else {
            panic!()
        };
        assert_eq!(check.file, Some("a.toml".into()));
        assert!(check.live && check.format == CheckFormat::Json);
        assert!(matches!(
            parse(&["check", "--worker", "http://b:1"]).command,
            Some(Command::Check(_))
        ));
        assert!(Cli::try_parse_from(["conductor", "check", "a", "--worker", "http://b:1"]).is_err());
    }

    #[test]
    fn the_command_that_compiles_is_called_as_the_runtime_calls_it() {
        let Some(Command::CompilePolicy(args)) =
            parse(&[policy_runtime::child::COMMAND, "1024", "3"]).command
        else {
            panic!()
        };
        assert_eq!((args.memory, args.cpu), (1024, 3));
    }

    #[test]
    fn the_definitions_are_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
