//! `conductor policy ...` as typed: what the author of a policy does. It is acted on in `policy_tools`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ChangePolicyArgs, DeployArgs, PromoteArgs, StatusArgs};

/// Arguments of `policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The subcommands of `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Start a policy of your own: a folder with a small one that builds.
    New(NewArgs),
    /// Build a policy's folder into a component, or turn a core module into one, and check it. The component that is there is replaced
    /// only when the check passes.
    Build(BuildArgs),
    /// Have a policy decide built-in scenarios, everyday and hostile. Exits with 0 when it does, 1 when it fails one, turns a request
    /// of an idle fleet away or cannot be loaded, 2 when it cannot be read.
    Check(PolicyCheckArgs),
    /// Time decisions by the number of candidates, against built-in policies and the native fallback.
    Bench(SubjectArgs),
    /// Show what a component wants and offers, what made it, and what it asks for.
    Inspect(InspectArgs),
    /// List every number a policy can ask for, with its unit, freshness and cost.
    Features(FeaturesArgs),
    /// List the built-in policies, or those of a folder.
    List(ListArgs),
    /// Have a policy decide again what a router recorded. Its own decisions are repeated bit for bit, exit code 1 where one comes out
    /// otherwise; for those of other policies its choice is compared with theirs.
    Replay(ReplayArgs),
    /// Show the policies of a running router: their versions, what each did, and which decides.
    Status(StatusArgs),
    /// Have a running router put a policy's version before in force. The bytes that were are held back until other bytes come, they are
    /// resumed, or the router is started again.
    Rollback(ChangePolicyArgs),
    /// Check a component, put it into the policy folder of a running router and have it tried out beside a route's policy: asked only, or
    /// with a share of the sessions.
    Deploy(Box<DeployArgs>),
    /// Have a running router make a shadow or a canary the policy of its route.
    Promote(PromoteArgs),
    /// Have a running router end what `deploy` and `promote` did with a policy.
    Retract(PromoteArgs),
    /// Have a running router take what a policy's file holds again, rolled back or not, and ask every version of it again.
    Resume(ChangePolicyArgs),
}

/// Arguments of `policy new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Its name: of the policy, of its folder and of the component that it is built into.
    pub name: String,

    /// The language to write it in.
    #[arg(long, value_enum)]
    pub lang: Language,

    /// The folder to make; it must not exist or be empty. Its name here unless told.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Languages that there is a project for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
    /// C++.
    #[value(alias = "c++")]
    Cpp,
    /// Zig.
    Zig,
    /// Go.
    Go,
    /// JavaScript.
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    /// Python.
    #[value(alias = "py")]
    Python,
    /// AssemblyScript, a kind of TypeScript.
    #[value(name = "assemblyscript", aliases = ["as", "ts"])]
    AssemblyScript,
}

/// Arguments of `policy build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The folder of a policy, with a build.sh or a Cargo.toml; or a core module or component that was built already.
    #[arg(default_value = ".", value_name = "FOLDER|FILE")]
    pub path: PathBuf,

    /// Where to write the component that is made of a core module: NAME.component.wasm beside it unless told.
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// How it is checked once it is built.
    #[command(flatten)]
    pub settings: SettingsArgs,

    /// What it may do.
    #[command(flatten)]
    pub gate: GateArgs,

    /// Let build.sh install the compilers that it pins and that are not there: sets CONDUCTOR_INSTALL=1 for it.
    #[arg(long)]
    pub install: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Under which parameters and limits a policy is loaded.
#[derive(Debug, Default, Clone, Args)]
pub struct SettingsArgs {
    /// Its `params`, as a JSON object.
    #[arg(long, value_name = "JSON", conflicts_with = "config")]
    pub params: Option<String>,

    /// Take `params` and `limits` from `[policies.NAME]` of this file instead.
    #[arg(long, value_name = "CONDUCTOR.TOML")]
    pub config: Option<PathBuf>,

    /// CPU time that a decision may take, in milliseconds; 1 unless told, as `limits.cpu` is.
    #[arg(long, value_name = "MS", conflicts_with = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub cpu_ms: Option<u32>,

    /// Memory that an instance may have, in MiB; 16 unless told, as `limits.memory` is.
    #[arg(long, value_name = "MIB", conflicts_with = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub memory_mib: Option<u32>,

    /// Its name in that file; the component's file name unless told.
    #[arg(long, value_name = "NAME", requires = "config")]
    pub name: Option<String>,
}

/// Arguments of `policy check`.
#[derive(Debug, Args)]
pub struct PolicyCheckArgs {
    /// Which policy.
    #[command(flatten)]
    pub subject: SubjectArgs,

    /// What it may do.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Verdicts on an idle fleet that fail no check.
#[derive(Debug, Default, Clone, Args)]
pub struct GateArgs {
    /// Let it turn requests of an idle fleet away like this, which fails the check otherwise.
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    pub allow: Vec<IdleVerdict>,
}

/// Verdicts that no policy should have for an idle fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IdleVerdict {
    /// The fallback decides.
    Pass,
    /// The client is refused.
    Reject,
}

impl GateArgs {
    /// Returns whether this verdict fails no check.
    #[must_use]
    pub fn allows(&self, verdict: IdleVerdict) -> bool {
        self.allow.contains(&verdict)
    }
}

/// Which policy `policy check` and `policy bench` look at.
#[derive(Debug, Args)]
pub struct SubjectArgs {
    /// The component, or the name of a built-in policy.
    #[arg(value_name = "FILE|BUILTIN")]
    pub policy: PathBuf,

    /// Under which settings.
    #[command(flatten)]
    pub settings: SettingsArgs,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The component, or the name of a built-in policy.
    #[arg(value_name = "FILE|BUILTIN")]
    pub policy: PathBuf,

    /// The decision log; several files in the order in which they were written.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub log: Vec<PathBuf>,

    /// Under which settings; without any, the parameters that the log has for this component.
    #[command(flatten)]
    pub settings: SettingsArgs,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The component or core module, or the name of a built-in policy.
    #[arg(value_name = "FILE|BUILTIN")]
    pub policy: PathBuf,

    /// Under which settings its plan is asked for.
    #[command(flatten)]
    pub settings: SettingsArgs,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy features`.
#[derive(Debug, Args)]
pub struct FeaturesArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// List the components of this folder instead, as a router with it as its `policy-dir` sees them.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
