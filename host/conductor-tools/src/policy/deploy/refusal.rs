//! Reasons for which a policy is not deployed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use local_files::ADMIN_API_KEY;
use thiserror::Error;

/// A policy is not deployed.
#[derive(Debug, Error)]
pub(super) enum DeployError {
    #[error("failed to deploy `{name}`: {why}; give it another name with --name")]
    Name { name: String, why: String },
    #[error(
        "failed to deploy `{0}`: it is a builtin, which a file does not replace; give it another name with --name"
    )]
    Builtin(String),
    #[error(
        "failed to deploy `{0}`: it decides already, and its new bytes would decide every request at once; give it another name with \
         --name"
    )]
    Decides(String),
    #[error(
        "failed to deploy `{name}`: it decides {percent} percent of the sessions of route {route} already, and its new bytes would \
         decide them at once; end that first with `conductor policy retract {name}`, or give it another name with --name"
    )]
    DecidesShare { name: String, percent: f64, route: u64 },
    #[error("failed to deploy `{name}`: the router takes it from {source_of}, not from its policy folder")]
    Elsewhere { name: String, source_of: String },
    #[error(
        "failed to deploy `{0}`: an operator rolled these bytes back; `conductor policy resume {0}` accepts them again"
    )]
    HeldBack(String),
    #[error(
        "failed to deploy `{0}`: the router has no policy folder; set `policy-dir` at the top of its configuration file"
    )]
    NoFolder(String),
    #[error(
        "failed to deploy `{name}`: `{config}` has no policy folder; set `policy-dir` at its top, and reload the router"
    )]
    NoFolderInFile { name: String, config: String },
    #[error("failed to deploy `{name}`: there is no route {route}: the router has {routes}, counted from 1")]
    NoSuchRoute {
        name: String,
        route: usize,
        routes: usize,
    },
    #[error(
        "failed to deploy `{name}`: the router has {routes} routes; choose one by its number with --route"
    )]
    WhichRoute { name: String, routes: usize },
    #[error(
        "failed to deploy `{name}`: route {route} has policies for prefill or decode workers, and takes no \
         canary; try it with --shadow"
    )]
    ByPhase { name: String, route: usize },
    #[error(
        "failed to deploy `{name}`: the canaries of route {route} would have {percent} percent of its sessions, and \
         its policy must keep some to be compared with"
    )]
    Shares {
        name: String,
        route: usize,
        percent: f64,
    },
    #[error(
        "failed to deploy `{name}`: the router at `{router}` requires an admin key for it, and the sent one is {key}; set \
         {ADMIN_API_KEY}, or name a file with --admin-key-file"
    )]
    Key {
        name: String,
        router: String,
        key: &'static str,
    },
    #[error("failed to write `{}`, or to read its present bytes", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the router did not load `{file}` within {within:?}, and no trial began{why}; is that the `policy-dir` of this router?"
    )]
    NotSeen {
        file: String,
        within: Duration,
        why: String,
    },
}
