//! `conductor policy deploy`: a policy on its way into service at a running router, step by step.
//!
//! `deploy` checks the component, puts it into the policy folder, which the router and this command share, waits until
//! the router has loaded these very bytes, and then has it tried out. No code goes over HTTP.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use conductor_config::check_policy_name;
use operator_tools::admin::{AdminClient, RemoteError, RouterSet};
use operator_tools::commands::policies::begin_trial;
use policy_store::builtin;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::sleep;

use super::check::check as check_policy;
use super::component::ComponentFile;
use super::settings::admin_url;
use crate::args::{DeployArgs, SettingsArgs};
use crate::{Exit, UsageError, print};

/// Maximum time for the router to load a file.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(200);

/// A policy is not deployed.
#[derive(Debug, Error)]
pub(crate) enum DeployError {
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
        "failed to find the policy folder: the router has no `policy-dir`; set it, or name the folder with --policy-dir"
    )]
    NoFolder,
    #[error("failed to write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the router did not load `{file}` within {PATIENCE:?}, and no trial began{why}; is that the `policy-dir` of this router?"
    )]
    NotSeen { file: String, why: String },
}

/// Deploys a component as a shadow or a canary.
pub(crate) fn deploy(args: &DeployArgs) -> Result<Exit> {
    let mut subject = ComponentFile::read(&args.file).map_err(UsageError::new)?;
    if let Some(name) = &args.name {
        subject.name.clone_from(name);
    }
    let name = subject.name.clone();
    check_name(&name)?;
    let settings = SettingsArgs {
        config: args.config.clone(),
        ..SettingsArgs::default()
    };
    let report = check_policy(&subject, &settings, &args.gate)?;
    if !report.is_ok() {
        eprint!("{report}");
        return Ok(Exit::Failure);
    }
    let mut named = args.router.clone();
    if let (true, Some(config)) = (named.admin.is_empty(), &args.config) {
        named
            .admin
            .extend(admin_url(config, &name).map_err(UsageError::new)?);
    }
    let routers = RouterSet::of(&named)?;
    let mut pages = Vec::new();
    for answer in routers.every(|client| client.get("/admin/policies")) {
        match answer.page {
            Ok(page) => pages.push(page),
            Err(error) if error.is_away() => return by_hand(args, &subject, &error),
            Err(error) => return Err(error.into()),
        }
    }
    // Routers of one machine may share a folder.
    let mut folders = BTreeSet::new();
    for page in &pages {
        let folder = folder_of(args, page)?;
        check_place(&name, page, args.policy_dir.is_none().then_some(&*folder))?;
        check_share(&name, page, args.trial.canary.unwrap_or(0.0))?;
        folders.insert(folder);
    }
    for folder in &folders {
        let file = put(folder, &name, &subject.bytes)?;
        eprintln!("{name}: waiting until the router has loaded {}", file.display());
    }
    for (client, page) in routers.clients().iter().zip(&pages) {
        let file = folder_of(args, page)?.join(format!("{name}.wasm"));
        routers.wait(wait_for(client, &name, &subject.sha256(), &file))?;
    }
    let (action, mut body) = match args.trial.canary {
        Some(percent) => ("canary", json!({ "percent": percent })),
        None => ("shadow", json!({ "sample": args.sample })),
    };
    body["route"] = json!(args.route);
    begin_trial(&named, &name, action, &body)
}

fn check_name(name: &str) -> Result<(), DeployError> {
    if builtin::find(name).is_some() {
        return Err(DeployError::Builtin(name.to_owned()));
    }
    check_policy_name(name).map_err(|why| DeployError::Name {
        name: name.to_owned(),
        why: why.to_string(),
    })
}

/// Returns the steps that are left to do by hand if no router can be reached.
fn by_hand(args: &DeployArgs, subject: &ComponentFile, error: &RemoteError) -> Result<Exit> {
    eprintln!("{error}");
    let name = &subject.name;
    let place = match &args.policy_dir {
        Some(folder) => folder.join(format!("{name}.wasm")).display().to_string(),
        None => format!("{name}.wasm in `policy-dir`"),
    };
    let mut text = format!(
        "# copy {} to {place}, and add to the route:\n",
        args.file.display()
    );
    match args.trial.canary {
        Some(percent) => writeln!(
            text,
            "split = {{ \"POLICY OF THE ROUTE\" = {}, \"{name}\" = {percent} }}",
            100.0 - percent
        )?,
        None => {
            writeln!(text, "shadow = [\"{name}\"]")?;
            if let Some(sample) = args.sample {
                writeln!(text, "shadow-sample = {sample}")?;
            }
        }
    }
    print::write(text)?;
    Ok(Exit::Failure)
}

fn folder_of(args: &DeployArgs, page: &Value) -> Result<PathBuf, DeployError> {
    let configured = || page["policy_dir"].as_str().map(PathBuf::from);
    let folder = args.policy_dir.clone().or_else(configured);
    folder.ok_or(DeployError::NoFolder)
}

/// Checks whether new bytes under that name would decide something at once, or not be loaded. `folder` is the policy
/// folder as the router names it.
fn check_place(name: &str, page: &Value, folder: Option<&Path>) -> Result<(), DeployError> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut routes = list(&page["routes"]).into_iter();
    let decides = |route: Value| {
        ["policy", "prefill_policy", "decode_policy"]
            .iter()
            .any(|key| route[*key] == name)
    };
    let policies = list(&page["policies"]);
    let mut scorers = policies
        .iter()
        .flat_map(|policy| list(&policy["pipeline"]["scorers"]));
    if routes.any(decides) || scorers.any(|scorer| scorer["policy"] == name) {
        return Err(DeployError::Decides(name.to_owned()));
    }
    let known = policies.iter().find(|policy| policy["name"] == name);
    let source = known.and_then(|policy| policy["source"].as_str());
    match (source, folder) {
        // A relative path is the router's, wherever that is.
        (Some(source), Some(folder))
            if Path::new(source).is_absolute()
                && Path::new(source) != folder.join(format!("{name}.wasm")) =>
        {
            Err(DeployError::Elsewhere {
                name: name.to_owned(),
                source_of: source.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// Checks that no route gives the name a larger share than this percentage, since new bytes would decide it at once; 0
/// for a shadow.
fn check_share(name: &str, page: &Value, percent: f64) -> Result<(), DeployError> {
    let routes = page["routes"].as_array().into_iter().flatten();
    for route in routes {
        // In hundredths of a percent, as shares are kept.
        let parts = (route["canaries"][name].as_f64().unwrap_or(0.0) * 1e4).round();
        if parts > (percent * 100.0).round() {
            return Err(DeployError::DecidesShare {
                name: name.to_owned(),
                percent: parts / 100.0,
                route: route["route"].as_u64().unwrap_or(0),
            });
        }
    }
    Ok(())
}

/// Puts a component into the folder, whole or not at all; a router may be watching it.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, DeployError> {
    let file = folder.join(format!("{name}.wasm"));
    let part = folder.join(format!(".{name}.wasm.part"));
    let written = File::create(&part).and_then(|mut part| {
        part.write_all(bytes)?;
        part.sync_data()
    });
    let written = written.and_then(|()| fs::rename(&part, &file));
    if written.is_err() {
        // Hidden files are no policies.
        let _ = fs::remove_file(&part);
    }
    written.map_err(|source| DeployError::Write {
        path: file.clone(),
        source,
    })?;
    Ok(file)
}

/// Waits until the router has these bytes under that name.
async fn wait_for(client: &AdminClient, name: &str, sha256: &str, file: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        let page = client.get("/admin/policies").await?;
        let policies = page["policies"].as_array().into_iter().flatten();
        let known = policies.clone().find(|policy| policy["name"] == name);
        let known = known.cloned().unwrap_or_default();
        if known["sha256"] == sha256 {
            return Ok(());
        }
        let mut held = known["held_back"].as_array().into_iter().flatten();
        if held.any(|held| held == sha256) {
            return Err(DeployError::HeldBack(name.to_owned()).into());
        }
        if began.elapsed() > PATIENCE {
            let why = known["problem"].as_str().map(|problem| format!(": {problem}"));
            return Err(DeployError::NotSeen {
                file: file.display().to_string(),
                why: why.unwrap_or_default(),
            }
            .into());
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Value {
        json!({
            "policy_dir": "/p", "routes": [{ "policy": "a", "prefill_policy": "b", "decode_policy": null }],
            "policies": [
                { "name": "mine", "source": "/p/mine.wasm" }, { "name": "far", "source": "/elsewhere/far.wasm" },
                { "name": "mixed", "source": "pipeline", "pipeline": { "scorers": [{ "policy": "part", "weight": 1 }] } },
            ],
        })
    }

    #[test]
    fn new_bytes_of_a_policy_that_decides_are_no_trial() {
        let folder = Some(Path::new("/p"));
        for name in ["a", "b", "part"] {
            let refused = check_place(name, &page(), folder);
            assert!(matches!(refused, Err(DeployError::Decides(_))), "{name}");
        }
        assert!(check_place("mine", &page(), folder).is_ok());
        assert!(check_place("new", &page(), folder).is_ok());
        let refused = check_place("far", &page(), folder);
        assert!(matches!(refused, Err(DeployError::Elsewhere { .. })));
    }

    #[test]
    fn new_bytes_of_a_canary_are_no_trial_of_a_smaller_share() {
        let page = json!({ "routes": [
            { "route": 1, "canaries": {} }, { "route": 2, "canaries": { "mine": 0.405 } },
        ] });
        for smaller in [0.0, 40.49] {
            let refused = check_share("mine", &page, smaller).map_err(|refused| refused.to_string());
            assert!(refused.is_err_and(|text| text.contains("40.5 percent of the sessions of route 2")));
        }
        assert!(check_share("mine", &page, 40.5).is_ok());
        assert!(check_share("other", &page, 0.0).is_ok());
    }

    #[test]
    fn a_component_is_put_in_place_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        for bytes in [b"one".as_slice(), b"two"] {
            let file = put(folder.path(), "mine", bytes).unwrap();
            assert_eq!(fs::read(file).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(put(&folder.path().join("none"), "mine", b"x").is_err());
    }

    #[test]
    fn names_of_builtins_and_names_that_no_policy_can_have_are_refused() {
        assert!(matches!(check_name("round-robin"), Err(DeployError::Builtin(_))));
        assert!(matches!(check_name("a b"), Err(DeployError::Name { .. })));
        assert!(check_name("mine").is_ok());
    }
}
