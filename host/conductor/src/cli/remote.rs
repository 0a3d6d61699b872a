//! `conductor policy status`, `rollback` and `resume` as typed: what an operator asks of a running router.

use clap::Args;

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
