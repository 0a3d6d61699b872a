//! Arguments of the commands that explain a request of a running router, or deploy a policy to it.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use operator_tools::args::RouterArgs;

use super::gate::GateArgs;

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("explained").required(true)))]
pub struct ExplainArgs {
    /// Request id: the `x-request-id` header of the answer.
    #[arg(value_name = "REQUEST-ID", group = "explained")]
    pub request: Option<String>,

    /// Explain the newest recorded request.
    #[arg(long, group = "explained")]
    pub last: bool,

    /// Routers.
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

    /// Take `params` and `limits` for the check from `[policies.NAME]` of this file, and without --admin the router's
    /// `admin-listen`.
    #[arg(long, value_name = "CONDUCTOR.TOML")]
    pub config: Option<PathBuf>,

    /// Allowed verdicts.
    #[command(flatten)]
    pub gate: GateArgs,

    /// Routers.
    #[command(flatten)]
    pub router: RouterArgs,
}
