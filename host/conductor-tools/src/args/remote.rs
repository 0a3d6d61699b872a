//! Arguments of the commands that query and change a running router, such as `conductor policy status`.

use std::path::PathBuf;

use clap::Args;

use super::GateArgs;

/// Address of the router, and the output format.
#[derive(Debug, Args)]
pub struct RouterArgs {
    /// Admin listener of the router. If it needs an admin key, set ADMIN_API_KEY.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub admin: String,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `policy status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Name of the policy in the configuration [default: all].
    pub name: Option<String>,

    /// Router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Request id: the `x-request-id` header of the answer.
    #[arg(value_name = "REQUEST-ID")]
    pub request: String,

    /// Router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy rollback` and `policy resume`.
#[derive(Debug, Args)]
pub struct ChangePolicyArgs {
    /// Name of the policy in the configuration.
    pub name: String,

    /// Router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Arguments of `policy promote` and `policy retract`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// Name of the policy in the configuration.
    pub name: String,

    /// Number of the route, from 1; needed only if it is ambiguous.
    #[arg(long, value_name = "N")]
    pub route: Option<usize>,

    /// Router.
    #[command(flatten)]
    pub router: RouterArgs,
}

/// Kind of trial.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TrialArgs {
    /// Run the policy as a shadow: it is called but decides nothing.
    #[arg(long)]
    pub shadow: bool,

    /// Run the policy as a canary for this percentage of the sessions.
    #[arg(long, value_name = "PERCENT")]
    pub canary: Option<f64>,
}

/// Arguments of `policy deploy`.
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// Component file.
    pub file: PathBuf,

    /// Kind of trial.
    #[command(flatten)]
    pub trial: TrialArgs,

    /// Share of the requests for which a shadow is called, up to 1 [default: the route's `shadow-sample`].
    #[arg(long, value_name = "SHARE", requires = "shadow")]
    pub sample: Option<f64>,

    /// Name of the policy at the router [default: the file's name].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Number of the route, from 1; needed only if there are several.
    #[arg(long, value_name = "N")]
    pub route: Option<usize>,

    /// The router's policy folder, if its path on this machine differs from the router's.
    #[arg(long, value_name = "FOLDER")]
    pub policy_dir: Option<PathBuf>,

    /// Take `params` and `limits` for the check from `[policies.NAME]` of this file.
    #[arg(long, value_name = "CONDUCTOR.TOML")]
    pub config: Option<PathBuf>,

    /// Allowed verdicts.
    #[command(flatten)]
    pub gate: GateArgs,

    /// Router.
    #[command(flatten)]
    pub router: RouterArgs,
}
