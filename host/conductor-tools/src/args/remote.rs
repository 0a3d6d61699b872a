//! `conductor policy status`, `rollback` and `resume` as typed: what an operator asks of a running router.

use std::path::PathBuf;

use clap::Args;

use super::GateArgs;

/// Which router, and how its answer is printed.
#[derive(Debug, Args)]
pub struct RouterArgs {
    /// Its admin listener. Where an admin key is set, ADMIN_API_KEY must hold it.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub admin: String,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The policy, by its name in the configuration; all of them unless told.
    pub name: Option<String>,

    /// Which router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The request's id: its `x-request-id`, which every answer carries.
    #[arg(value_name = "REQUEST-ID")]
    pub request: String,

    /// Which router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy rollback` and `policy resume`.
#[derive(Debug, Args)]
pub struct ChangePolicyArgs {
    /// The policy, by its name in the configuration.
    pub name: String,

    /// Which router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy promote` and `policy retract`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// The policy, by its name in the configuration.
    pub name: String,

    /// The number of the route, from 1; needed only where it may be one of several.
    #[arg(long, value_name = "N")]
    pub route: Option<usize>,

    /// Which router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// How a policy is tried out.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TrialArgs {
    /// Ask it beside the route's policy; it decides nothing.
    #[arg(long)]
    pub shadow: bool,

    /// Let it decide so many percent of the sessions.
    #[arg(long, value_name = "PERCENT")]
    pub canary: Option<f64>,
}

/// Arguments of `policy deploy`.
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// The component.
    pub file: PathBuf,

    /// How it is tried out.
    #[command(flatten)]
    pub trial: TrialArgs,

    /// Share of the requests that a shadow is asked about, up to 1; the route's `shadow-sample` unless given.
    #[arg(long, value_name = "SHARE", requires = "shadow")]
    pub sample: Option<f64>,

    /// Its name at the router; the file's name unless given.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// The number of the route, from 1; needed only where there are several.
    #[arg(long, value_name = "N")]
    pub route: Option<usize>,

    /// The router's policy folder, where this machine has it elsewhere than the router says.
    #[arg(long, value_name = "FOLDER")]
    pub policy_dir: Option<PathBuf>,

    /// Take `params` and `limits` for the check from `[policies.NAME]` of this file.
    #[arg(long, value_name = "CONDUCTOR.TOML")]
    pub config: Option<PathBuf>,

    /// What it may do.
    #[command(flatten)]
    pub gate: GateArgs,

    /// Which router.
    #[command(flatten)]
    pub router: RouterArgs,
}
