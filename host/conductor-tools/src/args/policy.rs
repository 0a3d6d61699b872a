//! `conductor policy ...` as typed: what the author of a policy does. It is acted on in `policy_tools`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use operator_tools::args::{ChangePolicyArgs, PromoteArgs, StatusArgs};

use super::gate::GateArgs;
use super::remote::DeployArgs;

/// Arguments of `policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The subcommands of `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Create a policy project: a folder with a small policy that builds.
    New(NewArgs),
    /// Build a component from a policy's folder or a core module, and check it. An existing component is replaced
    /// only if the check passes.
    Build(BuildArgs),
    /// Check a policy with built-in scenarios, ordinary and hostile. Exit codes: 0 if it passes, 1 if it fails one,
    /// rejects a request of an idle fleet or cannot be loaded, 2 if it cannot be read.
    Check(PolicyCheckArgs),
    /// Benchmark decisions by the number of candidates, compared with built-in policies and the native fallback.
    Bench(SubjectArgs),
    /// Show the imports, exports, toolchain and plan of a component.
    Inspect(InspectArgs),
    /// List the features that a policy can request, with unit, freshness and cost.
    Features(FeaturesArgs),
    /// List the built-in policies, or those of a folder.
    List(ListArgs),
    /// Replay a decision log with a policy. Its own decisions are compared bit for bit, with exit code 1 if one
    /// differs; its choice is compared with the decisions of other policies.
    Replay(ReplayArgs),
    /// Show the policies of a running router: versions, results, and the active version.
    Status(StatusArgs),
    /// Roll a policy of a running router back to its previous version. The current file is ignored until it changes
    /// or the policy is resumed; without `policy-state` and `[replicas]` also until the router restarts.
    Rollback(ChangePolicyArgs),
    /// Check a component, copy it into the policy folder of a running router, and run it as a shadow or a canary of a
    /// route.
    Deploy(Box<DeployArgs>),
    /// Promote a shadow or a canary of a running router to the policy of its route.
    Promote(PromoteArgs),
    /// Undo `deploy` and `promote` of a policy at a running router.
    Retract(PromoteArgs),
    /// Resume a policy of a running router: use its file after a rollback, and close the circuits of all its versions.
    Resume(ChangePolicyArgs),
}

/// Arguments of `policy new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Name of the policy, its folder and its component.
    pub name: String,

    /// Programming language.
    #[arg(long, value_enum)]
    pub lang: Language,

    /// Folder to create, which must not exist or be empty [default: NAME in the working directory].
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Languages with a project template.
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
    /// Folder of a policy with a build.sh or a Cargo.toml, or a built core module or component.
    #[arg(default_value = ".", value_name = "FOLDER|FILE")]
    pub path: PathBuf,

    /// Output file for the component of a core module [default: NAME.component.wasm beside it].
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Settings of the check after the build.
    #[command(flatten)]
    pub settings: SettingsArgs,

    /// Allowed verdicts.
    #[command(flatten)]
    pub gate: GateArgs,

    /// Allow build.sh to install its pinned compilers if they are missing (CONDUCTOR_INSTALL=1).
    #[arg(long)]
    pub install: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Parameters and limits of a policy.
#[derive(Debug, Default, Clone, Args)]
pub struct SettingsArgs {
    /// `params` of the policy, as a JSON object.
    #[arg(long, value_name = "JSON", conflicts_with = "config")]
    pub params: Option<String>,

    /// Take `params` and `limits` from `[policies.NAME]` of this file instead.
    #[arg(long, value_name = "CONDUCTOR.TOML")]
    pub config: Option<PathBuf>,

    /// CPU time limit of a decision (`limits.cpu`), in milliseconds [default: 1].
    #[arg(long, value_name = "MS", conflicts_with = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub cpu_ms: Option<u32>,

    /// Memory limit of an instance (`limits.memory`), in MiB [default: 16].
    #[arg(long, value_name = "MIB", conflicts_with = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    pub memory_mib: Option<u32>,

    /// Name of the policy in that file [default: the component's file name].
    #[arg(long, value_name = "NAME", requires = "config")]
    pub name: Option<String>,
}

/// Arguments of `policy check`.
#[derive(Debug, Args)]
pub struct PolicyCheckArgs {
    /// Policy.
    #[command(flatten)]
    pub subject: SubjectArgs,

    /// Allowed verdicts.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Policy to check or benchmark.
#[derive(Debug, Args)]
pub struct SubjectArgs {
    /// The component, or the name of a built-in policy.
    #[arg(value_name = "FILE|BUILTIN")]
    pub policy: PathBuf,

    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy replay`.
#[derive(Debug, Args)]
// `--log` takes all words that follow: the policy goes before it.
#[command(override_usage = "conductor policy replay <FILE|BUILTIN> --log <FILE>... [OPTIONS]")]
pub struct ReplayArgs {
    /// The component, or the name of a built-in policy.
    #[arg(value_name = "FILE|BUILTIN")]
    pub policy: PathBuf,

    /// Decision log; several files in the order of writing.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub log: Vec<PathBuf>,

    /// Settings [default: the parameters that the log has for this component].
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

    /// Settings for its plan.
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
    /// List the components of this folder instead, like a router with this `policy-dir`.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
