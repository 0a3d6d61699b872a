//! Definition of the command line. Parsing does no I/O; `main.rs` calls the module that acts.

mod help;
mod reference;

pub use self::help::{command, parse};
pub use self::reference::reference;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use conductor_tools::args::{BlockHashesArgs, ExplainArgs, PolicyArgs, SimulateArgs};
use mooncake_compat::fleet_flags::{FLEET_GROUP, FleetArgs};
use operator_tools::args::{
    DrainArgs, DrainWaitArgs, FleetStatusArgs, PageArgs, ReloadArgs, RequestsArgs, TopArgs, WorkersArgs,
};

/// A router for fleets of LLM inference servers whose scheduling policies are WebAssembly components.
///
/// Without arguments it serves the `conductor.toml` of the working directory. Without that file it runs `conductor
/// demo`: a router over four mock engines, with commands to try.
#[derive(Debug, Parser)]
#[command(
    name = "conductor",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// Subcommand [default: `serve` if there are arguments or a `conductor.toml`, otherwise `demo`].
    #[command(subcommand)]
    pub command: Option<Command>,

    /// `conductor --config FILE` is `conductor serve --config FILE`.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the router, configured by a file, by flags, or by the `conductor.toml` of the working directory.
    Serve(Box<ServeArgs>),
    /// Check a configuration offline; with --live, check its workers too.
    ///
    /// Exit codes: 0 if it is valid and no check failed (warnings do not count), 1 otherwise, 2 if it cannot be read.
    Check(Box<CheckArgs>),
    /// Write an annotated configuration for workers, after querying them for models, engine and KV events.
    ///
    /// Exit codes: 0 if every worker was reached, 1 if one was not (the file is written anyway), 2 if it cannot be
    /// written.
    Init(InitArgs),
    /// Translate a command line or a file of another router: prints the TOML, and on stderr what has no equivalent.
    ///
    /// `conductor import --from vllm-router -- --worker-urls http://a:8000 --policy cache_aware` translates a command
    /// line, and `conductor import --from llm-d FILE` the YAML of the endpoint picker. Without --from, FILE is the
    /// JSON of Mooncake's old conductor: CONDUCTOR_LOG_LEVEL and CONDUCTOR_BLOCK_SIZE have the meaning of the old
    /// conductor; CONDUCTOR_SEED and NONE_HASH are ignored. `conductor serve` without a configuration imports and
    /// runs the file in CONDUCTOR_CONFIG_PATH.
    ///
    /// Exit codes: 0 if the printed file is valid, 1 if it has mistakes (they are on stderr), 2 if the words are not
    /// of that router.
    Import(ImportArgs),
    /// Print the hash of each block of a prompt, to compare a hash profile with an engine's. The prompt is a JSON
    /// array of token ids on standard input.
    BlockHashes(BlockHashesArgs),
    /// Run the router over a fleet of mock engines in this process: no GPU, no files.
    Demo(DemoArgs),
    /// Create, build, check, benchmark and inspect scheduling policies.
    Policy(PolicyArgs),
    /// Explain a routing decision of a running router: the candidates with their numbers, the policy, and the outcome.
    ///
    /// Available for the last recorded requests and for requests with the header `x-conductor-explain: 1`.
    Explain(ExplainArgs),
    /// Show the fleet of running routers: pools, routes, rates, workers out of service, warnings.
    Status(FleetStatusArgs),
    /// Show pools, the busiest workers and the latest changes of running routers, live.
    Top(TopArgs),
    /// Show the workers of running routers with their state, load and KV cache.
    Workers(WorkersArgs),
    /// Show the KV event feeds of running routers.
    Feeds(PageArgs),
    /// Show the canaries and shadows of running routers, compared with the policies of their routes.
    Trials(PageArgs),
    /// List the recorded requests of running routers, or follow those that end.
    Requests(RequestsArgs),
    /// Make running routers read their configuration and policies again. Exit code 1 if one refuses.
    Reload(ReloadArgs),
    /// Give a worker of running routers no new requests. It finishes those that it has.
    Drain(DrainWaitArgs),
    /// Give a drained worker requests again.
    Resume(DrainArgs),
    /// Simulate policies on a trace of requests and a model of a cluster, and compare the results.
    Simulate(Box<SimulateArgs>),
    /// Generate an API key for a client: prints the key, and its hash for `key-sha256` of `[clients.NAME]`.
    ClientKey,
    /// Print the version; with --verbose, commit, target, features and compiler too.
    Version(VersionArgs),
    /// Print the script that completes commands and flags in a shell.
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands into a folder.
    ManPages(ManPagesArgs),
    /// The flags of Mooncake's older proxies. `conductor` and `conductor serve` take them too.
    #[command(hide = true)]
    Mooncake(Box<ServeArgs>),
    /// Compile a component from standard input to machine code on standard output, within limits. The router runs it
    /// as a child process.
    #[command(hide = true)]
    CompilePolicy(CompilePolicyArgs),
}

/// Arguments of `version`.
#[derive(Debug, Args)]
pub struct VersionArgs {
    /// Print commit, target, features and compiler too.
    #[arg(long, short)]
    pub verbose: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `man-pages`.
#[derive(Debug, Args)]
pub struct ManPagesArgs {
    /// Folder, which is created if it does not exist.
    pub folder: PathBuf,
}

/// Arguments of `compile-policy`.
#[derive(Debug, Args)]
pub struct CompilePolicyArgs {
    /// Address space, in bytes.
    pub memory: u64,

    /// Private writable memory (`RLIMIT_DATA`), in bytes.
    pub data: u64,

    /// CPU time, in seconds.
    pub cpu: u64,
}

/// Source of the configuration: a file, or a few flags that stand for one.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Configuration file, reloaded when it changes.
    #[arg(long, short, value_name = "FILE", conflicts_with = FLEET_GROUP)]
    pub config: Option<PathBuf>,

    /// Log level: off, error, warn, info, debug or trace, or TARGET=LEVEL pairs. Overrides `level` of [log], after
    /// reloads too.
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub log_level: Option<String>,

    /// Log level debug.
    #[arg(long, short, conflicts_with = "log_level")]
    pub verbose: bool,

    /// Print the configuration equivalent to the flags, and exit.
    #[arg(long)]
    pub print_config: bool,

    /// Fleet configured by flags.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

impl Cli {
    /// Checks that `--print-config` has flags to print.
    fn check(&self) -> Result<(), clap::Error> {
        let serve = match &self.command {
            Some(Command::Serve(args) | Command::Mooncake(args)) => args,
            _ => &self.serve,
        };
        if !serve.print_config || !serve.fleet.is_empty() {
            return Ok(());
        }
        let message = "--print-config prints the configuration that flags stand for: name the workers with --worker, or with --prefill and --decode, and no file";
        Err(command().error(ErrorKind::MissingRequiredArgument, message))
    }
}

impl ServeArgs {
    /// Returns the log level of the command line.
    #[must_use]
    pub fn level(&self) -> Option<&str> {
        self.log_level.as_deref().or(self.verbose.then_some("debug"))
    }

    /// Returns true if neither a file nor a worker is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.config.is_none() && self.fleet.is_empty()
    }
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// File to check [default: the `conductor.toml` of the working directory].
    #[arg(conflicts_with = FLEET_GROUP)]
    pub file: Option<PathBuf>,

    /// Check every worker too: models, tokenizer, KV events, prefill/decode connector, clock and version.
    #[arg(long)]
    pub live: bool,

    /// Output format.
    #[arg(long, short = 'o', visible_alias = "output", value_enum, default_value_t = CheckFormat::Text)]
    pub format: CheckFormat,

    /// Fleet configured by flags.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

/// Parses a log level.
fn log_level(text: &str) -> Result<String, String> {
    logging::check_level(text)?;
    Ok(text.to_owned())
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Worker for prefill and decode; may be given several times.
    #[arg(long, value_name = "URL", required_unless_present_any = ["prefill", "decode"])]
    pub worker: Vec<String>,

    /// Prefill worker; may be given several times.
    #[arg(long, value_name = "URL", requires = "decode")]
    pub prefill: Vec<String>,

    /// Decode worker; may be given several times.
    #[arg(long, value_name = "URL", requires = "prefill")]
    pub decode: Vec<String>,

    /// File to write.
    #[arg(long, value_name = "FILE", default_value = "conductor.toml")]
    pub file: PathBuf,

    /// Replace an existing file.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Router whose command line or file it is.
    #[arg(long, value_name = "ROUTER", value_enum)]
    pub from: Option<ImportFrom>,

    /// The file (usually `conductor_config.json`), or the command line after `--`.
    #[arg(
        value_name = "FILE | -- FLAGS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<String>,
}

/// Routers whose command lines or files are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFrom {
    /// Flags of vllm-router.
    VllmRouter,
    /// Flags of sglang-router, also named smg.
    #[value(alias = "smg")]
    SglangRouter,
    /// Flags of the frontend of NVIDIA Dynamo.
    Dynamo,
    /// Flags of the router of vLLM's production stack.
    ProductionStack,
    /// YAML file of llm-d's endpoint picker.
    LlmD,
    /// Flags of Mooncake's proxies, or the JSON file of its conductor.
    Mooncake,
}

/// Output format of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// Text with the lines concerned.
    Text,
    /// One JSON array.
    Json,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Address to listen on; the admin listener has the next port.
    #[arg(long, value_name = "ADDR", default_value_t = DemoArgs::default().listen)]
    pub listen: SocketAddr,

    /// Number of mock engines.
    #[arg(long, default_value_t = DemoArgs::default().workers, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,

    /// Compare round-robin, cache-aware and the default policy under one multi-turn workload, instead of serving.
    #[arg(long)]
    pub compare: bool,

    /// Check the simulator against the demo fleet: record it at 60 % and 90 % of its capacity into logs in this
    /// folder, simulate them, and compare the times to first token. The exit code is 1 if one differs by over 10 %.
    #[arg(long, value_name = "FOLDER", conflicts_with = "compare")]
    pub validate: Option<PathBuf>,

    /// Speed of the mock engines with --validate, from 0.1 to 1000. Slower ones depend less on the speed of the
    /// machine.
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = DemoArgs::default().time_scale,
        value_parser = time_scale,
        requires = "validate"
    )]
    pub time_scale: f64,

    /// Seed of the mock engines and of the workload.
    #[arg(long, default_value_t = DemoArgs::default().seed)]
    pub seed: u64,

    /// Send no requests: only yours are on the dashboard.
    #[arg(long)]
    pub no_traffic: bool,

    /// Log level: off, error, warn, info, debug or trace, or TARGET=LEVEL pairs.
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    pub log_level: Option<String>,
}

fn time_scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        // Slower requests would exceed timeouts of the router and of the client, which no factor scales.
        Ok(factor) if (0.1..=1_000.0).contains(&factor) => Ok(factor),
        _ => Err("give a factor from 0.1 to 1000".to_owned()),
    }
}

impl Default for DemoArgs {
    /// Returns the arguments of `conductor demo` without flags, and the defaults of its flags.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: 4,
            compare: false,
            validate: None,
            time_scale: 0.2,
            seed: 1,
            no_traffic: false,
            log_level: None,
        }
    }
}

#[cfg(test)]
mod tests;
