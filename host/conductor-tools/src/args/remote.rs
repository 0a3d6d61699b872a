//! Arguments of the commands that explain a request of a running router, or deploy a policy to it.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use conductor_config::share_parts;
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
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
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
    #[arg(long, value_name = "SHARE", requires = "shadow", conflicts_with = "canary", value_parser = share)]
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

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().map_err(|error| error.to_string())?;
    let bounds = "it must be at least 0.01 and at most 100, with at most two decimals";
    let parts = share_parts(percent).ok_or_else(|| bounds.to_owned());
    parts.map(|_| percent)
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_share = share > 0.0 && share <= 1.0;
    is_share
        .then_some(share)
        .ok_or_else(|| "it must be above 0 and at most 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Deploy {
        #[command(flatten)]
        args: DeployArgs,
    }

    fn parse(flags: &[&str]) -> Result<DeployArgs, clap::Error> {
        let words = ["deploy", "mine.wasm"].iter().chain(flags);
        Deploy::try_parse_from(words).map(|deploy| deploy.args)
    }

    #[test]
    fn a_percentage_or_a_share_that_a_router_refuses_is_a_mistake_of_the_command_line() {
        for percent in ["150", "0", "nan", "inf", "-5", "1.234", "five"] {
            let canary = format!("--canary={percent}");
            assert!(parse(&[&canary]).is_err(), "{percent}");
        }
        for sample in ["0", "2", "nan", "-1"] {
            let sample = format!("--sample={sample}");
            assert!(parse(&["--shadow", &sample]).is_err(), "{sample}");
        }
        assert!(parse(&["--canary", "5", "--sample", "0.5"]).is_err());
        assert_eq!(parse(&["--canary", "40.5"]).unwrap().trial.canary, Some(40.5));
        assert_eq!(parse(&["--shadow", "--sample", "1"]).unwrap().sample, Some(1.0));
    }
}
