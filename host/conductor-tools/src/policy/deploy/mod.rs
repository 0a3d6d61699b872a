//! `conductor policy deploy`: a policy on its way into service at a running router, step by step.
//!
//! `deploy` checks the component, puts it into the policy folder, which the router and this command share, waits
//! until the router has loaded these very bytes, and then has it tried out. No code goes over HTTP. What a router
//! would refuse is checked first. If a trial is refused nevertheless, the folder gets its former file back: that of a
//! canary decides.

mod loaded;
mod placed;
mod refusal;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use conductor_config::check_policy_name;
use observability::error_chain;
use operator_tools::admin::{AdminClient, RemoteError, RouterSet};
use operator_tools::args::RouterArgs;
use operator_tools::commands::policies::{PolicyChanged, begin_trial};
use policy_store::builtin;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::loaded::DeployedBytes;
use self::placed::PlacedFile;
use self::refusal::DeployError;
use super::check::check as check_policy;
use super::component::ComponentFile;
use super::settings::{self, GivenSettings, SettingsError};
use crate::args::{DeployArgs, SettingsArgs};
use crate::{Exit, UsageError, print};

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(200);
/// All sessions of a route, in hundredths of a percent.
const WHOLE: f64 = 10_000.0;

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
    let given = match settings::read(&settings, &name) {
        Err(SettingsError::NoSuchPolicy { config, .. }) => {
            return Err(UsageError::new(DeployError::NoFolderInFile { name, config }).into());
        }
        given => given.map_err(UsageError::new)?,
    };
    let named = named_routers(args, given.as_ref().ok());
    let report = check_policy(&subject, given, &args.gate)?;
    if !report.is_ok() {
        eprint!("{report}");
        return Ok(Exit::Failure);
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
        let folder = folder_of(args, &name, page)?;
        check_place(&name, page, args.policy_dir.is_none().then_some(&*folder))?;
        check_share(&name, page, args.trial.canary.unwrap_or(0.0))?;
        check_route(&name, page, args.route, args.trial.canary)?;
        folders.insert(folder);
    }
    for answer in routers.every(|client| client.get("/admin/me")) {
        check_key(&name, &answer.router, &answer.page?)?;
    }
    let mut placed = Vec::new();
    for folder in &folders {
        match PlacedFile::put(folder, &name, &subject.bytes) {
            Ok(file) => placed.push(file),
            Err(error) => {
                take_back(&name, &placed);
                return Err(error.into());
            }
        }
    }
    let begun = begin(args, &named, &routers, &subject, &pages);
    match &begun {
        Ok(begun) if !begun.is_refused => {}
        _ => take_back(&name, &placed),
    }
    Ok(begun?.exit)
}

/// Returns the routers that the arguments name, else the one of the configuration.
fn named_routers(args: &DeployArgs, given: Option<&GivenSettings>) -> RouterArgs {
    let mut named = args.router.clone();
    if named.admin.is_empty() {
        named.admin.extend(given.and_then(GivenSettings::admin_url));
    }
    named
}

/// Begins the trial once the routers have the bytes.
fn begin(
    args: &DeployArgs,
    named: &RouterArgs,
    routers: &RouterSet,
    subject: &ComponentFile,
    pages: &[Value],
) -> Result<PolicyChanged> {
    let name = &subject.name;
    for (client, page) in routers.clients().iter().zip(pages) {
        let deployed = DeployedBytes {
            name: name.clone(),
            sha256: subject.sha256(),
            file: folder_of(args, name, page)?.join(format!("{name}.wasm")),
        };
        let file = deployed.file.display();
        eprintln!("{name}: waiting until the router has loaded {file}");
        routers.wait(wait_for(client, &deployed))?;
    }
    let (action, mut body) = match args.trial.canary {
        Some(percent) => ("canary", json!({ "percent": percent })),
        None => ("shadow", json!({ "sample": args.sample })),
    };
    body["route"] = json!(args.route);
    begin_trial(named, name, action, &body)
}

/// Takes the files of a trial back that did not begin.
fn take_back(name: &str, placed: &[PlacedFile]) {
    // Two paths may lead to one folder: the first placed file keeps the earlier bytes.
    for file in placed.iter().rev() {
        let path = file.path().display();
        match file.take_back() {
            Ok(true) => eprintln!("{name}: no trial began, and {path} is as before"),
            Ok(false) => {
                eprintln!("{name}: no trial began, and {path} is left as it is: it has changed since")
            }
            Err(error) => eprintln!(
                "{name}: no trial began, and {path} keeps the new bytes: {}",
                error_chain(&error)
            ),
        }
    }
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

/// Returns the policy folder of a router, by its path on this machine.
fn folder_of(args: &DeployArgs, name: &str, page: &Value) -> Result<PathBuf, DeployError> {
    let configured = page["policy_dir"].as_str().map(PathBuf::from);
    let mut policies = page["policies"].as_array().into_iter().flatten();
    // A table of the file may name a file of any folder.
    let is_known = policies.any(|policy| policy["name"] == name);
    let given = args
        .policy_dir
        .clone()
        .filter(|_| configured.is_some() || is_known);
    given
        .or(configured)
        .ok_or_else(|| DeployError::NoFolder(name.to_owned()))
}

/// Checks that there is one such route, and that it can take a canary of this percentage.
fn check_route(
    name: &str,
    page: &Value,
    route: Option<usize>,
    canary: Option<f64>,
) -> Result<(), DeployError> {
    let owned = || name.to_owned();
    let routes = page["routes"].as_array().map_or(&[][..], Vec::as_slice);
    if route.is_none() && routes.len() > 1 {
        return Err(DeployError::WhichRoute {
            name: owned(),
            routes: routes.len(),
        });
    }
    let number = route.unwrap_or(1);
    let Some(route) = number.checked_sub(1).and_then(|at| routes.get(at)) else {
        return Err(DeployError::NoSuchRoute {
            name: owned(),
            route: number,
            routes: routes.len(),
        });
    };
    let Some(percent) = canary else {
        return Ok(());
    };
    if !(route["prefill_policy"].is_null() && route["decode_policy"].is_null()) {
        return Err(DeployError::ByPhase {
            name: owned(),
            route: number,
        });
    }
    let canaries = route["canaries"].as_object().into_iter().flatten();
    let others = canaries.filter(|(other, _)| other.as_str() != name);
    let others = others.filter_map(|(_, share)| share.as_f64());
    let parts = others.map(parts_of).sum::<f64>() + (percent * 100.0).round();
    if parts >= WHOLE {
        return Err(DeployError::Shares {
            name: owned(),
            route: number,
            percent: parts / 100.0,
        });
    }
    Ok(())
}

/// Returns a share in hundredths of a percent, as the router keeps it.
fn parts_of(share: f64) -> f64 {
    (share * WHOLE).round()
}

/// Checks the key by the page of the sender's rights, before anything is changed.
fn check_key(name: &str, router: &str, me: &Value) -> Result<(), DeployError> {
    let needs_key = me["key_configured"] == true && me["role"] == "reader";
    match needs_key {
        true => Err(DeployError::Key {
            name: name.to_owned(),
            router: router.to_owned(),
            key: if me["key"] == "none" { "missing" } else { "wrong" },
        }),
        false => Ok(()),
    }
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
        let parts = parts_of(route["canaries"][name].as_f64().unwrap_or(0.0));
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

/// Waits until the router has these bytes.
async fn wait_for(client: &AdminClient, deployed: &DeployedBytes) -> Result<()> {
    let began = Instant::now();
    loop {
        let page = client.get("/admin/policies").await?;
        if deployed.are_loaded(&page, began.elapsed())? {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Deployment {
        #[command(flatten)]
        args: DeployArgs,
    }

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
    fn a_route_that_does_not_exist_and_a_missing_key_are_refused() {
        let page = json!({ "routes": [{ "route": 1 }, { "route": 2 }] });
        assert!(check_route("mine", &page, Some(2), None).is_ok());
        for route in [0, 3] {
            let refused = check_route("mine", &page, Some(route), None);
            assert!(matches!(refused, Err(DeployError::NoSuchRoute { routes: 2, .. })));
        }
        let refused = check_route("mine", &json!({}), None, None);
        assert!(matches!(refused, Err(DeployError::NoSuchRoute { routes: 0, .. })));
        let key = |configured: bool, role: &str| {
            let me = json!({ "key_configured": configured, "role": role, "key": "none" });
            check_key("mine", "http://a:1", &me)
        };
        assert!(key(false, "reader").is_ok() && key(true, "admin").is_ok());
        assert!(key(true, "reader").is_err_and(|refused| refused.to_string().contains("is missing")));
    }

    #[test]
    fn one_of_several_routes_is_named() {
        let page = |routes: usize| json!({ "routes": vec![json!({}); routes] });
        for canary in [None, Some(5.0)] {
            assert!(check_route("mine", &page(1), None, canary).is_ok());
            let refused = check_route("mine", &page(2), None, canary);
            assert!(matches!(refused, Err(DeployError::WhichRoute { routes: 2, .. })));
        }
    }

    #[test]
    fn a_canary_that_the_route_cannot_take_is_refused_and_a_shadow_is_not() {
        let check = |route: &Value, name: &str, canary: Option<f64>| {
            check_route(name, &json!({ "routes": [route] }), None, canary)
        };
        let with = json!({ "canaries": { "mine": 0.1, "other": 0.405 }, "prefill_policy": null });
        assert!(check(&with, "mine", Some(59.49)).is_ok() && check(&with, "new", None).is_ok());
        for (name, percent, sum) in [
            ("mine", 59.5, "100"),
            ("mine", 100.0, "140.5"),
            ("new", 60.0, "110.5"),
        ] {
            let refused = check(&with, name, Some(percent)).map_err(|refused| refused.to_string());
            assert!(refused.is_err_and(|text| text.contains(&format!("would have {sum} percent"))));
        }
        assert!(matches!(
            check(&json!({}), "new", Some(100.0)),
            Err(DeployError::Shares { .. })
        ));
        for key in ["prefill_policy", "decode_policy"] {
            let by_phase = json!({ key: "random", "canaries": {} });
            assert!(check(&by_phase, "new", None).is_ok());
            assert!(matches!(
                check(&by_phase, "new", Some(5.0)),
                Err(DeployError::ByPhase { .. })
            ));
        }
    }

    #[test]
    fn a_router_without_a_policy_folder_is_refused_unless_it_has_a_table_of_that_name() {
        let args =
            |more: &[&str]| Deployment::parse_from([&["deploy", "mine.wasm", "--shadow"], more].concat());
        let (plain, given) = (args(&[]).args, args(&["--policy-dir", "/here"]).args);
        let without = json!({ "policies": [{ "name": "mine" }] });
        for (args, name) in [(&plain, "mine"), (&plain, "new"), (&given, "new")] {
            let refused = folder_of(args, name, &without);
            assert!(matches!(refused, Err(DeployError::NoFolder(_))), "{name}");
        }
        assert_eq!(folder_of(&given, "mine", &without).unwrap(), Path::new("/here"));
        assert_eq!(folder_of(&given, "new", &page()).unwrap(), Path::new("/here"));
        assert_eq!(folder_of(&plain, "new", &page()).unwrap(), Path::new("/p"));
    }

    #[test]
    fn names_of_builtins_and_names_that_no_policy_can_have_are_refused() {
        assert!(matches!(check_name("round-robin"), Err(DeployError::Builtin(_))));
        assert!(matches!(check_name("a b"), Err(DeployError::Name { .. })));
        assert!(check_name("mine").is_ok());
    }
}
