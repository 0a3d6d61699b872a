//! Keys that the modules of the dashboard read, held to the pages of a running router.
//!
//! Left out are the pages about several routers, and keys of maps, which a module looks up by a variable.

mod pages;
mod reads;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::reads::Reads;

/// Module of the dashboard.
struct Module {
    path: &'static str,
    /// Pages that it reads.
    pages: &'static [&'static str],
    /// Names of its own objects, and keys that only rare states of the router have.
    others: &'static [&'static str],
}

const fn module(
    path: &'static str,
    pages: &'static [&'static str],
    others: &'static [&'static str],
) -> Module {
    Module { path, pages, others }
}

const MODULES: &[Module] = &[
    module("live.js", &["stream", "history"], &["fleet", "history"]),
    module("rights.js", &["me"], &[]),
    module("shell.js", &["me", "stream"], &[]),
    module("pages/cache.js", &["index", "history"], &[]),
    module("pages/cache/funnel.js", &["index"], &[]),
    module("pages/cache/lookup.js", &["lookup", "status", "stream"], &[]),
    // Only resources such as tokenizers cause warnings.
    module("pages/configuration.js", &["config"], &["warnings"]),
    module(
        "pages/configuration/editor.js",
        &["file", "check", "refused-check", "applied"],
        &["check", "status"],
    ),
    module("pages/configuration/history.js", &["texts", "diff"], &[]),
    module("pages/configuration/problems.js", &["refused-check"], &[]),
    module("pages/fleet.js", &["stream", "history"], &[]),
    module("pages/fleet/changes.js", &["stream"], &[]),
    module("pages/fleet/charts.js", &["stream", "history"], &[]),
    module("pages/fleet/workers.js", &["stream", "history"], &["series"]),
    module("pages/policies.js", &["policies", "trials"], &[]),
    module("pages/policies/names.js", &["policies"], &[]),
    module(
        "pages/policies/policy.js",
        &["policies", "rolled-back"],
        &["compiling"],
    ),
    module("pages/policies/routes.js", &["policies", "canary"], &[]),
    // Of policies that predict.
    module(
        "pages/policies/shadows.js",
        &["trials"],
        &["active_ms", "shadow_ms"],
    ),
    module("pages/policies/trials.js", &["trials", "policies"], &[]),
    module(
        "pages/policies/upload.js",
        &["policies", "uploaded", "refused-upload"],
        &[],
    ),
    module("pages/request.js", &["explained"], &[]),
    module(
        "pages/requests.js",
        &["requests", "stream"],
        &["q", "slower_s", "tail"],
    ),
    // Of a policy that failed, and of a scorer that was left out.
    module("pages/requests/decision.js", &["explained"], &["kind", "parts"]),
    module(
        "pages/requests/replay.js",
        &["replay", "explained", "policies"],
        &[],
    ),
    module("pages/requests/shadow.js", &["trials"], &["pick"]),
    module("pages/requests/waterfall.js", &["explained"], &[]),
    module(
        "pages/simulator.js",
        &["simulations", "simulation", "policies"],
        &[],
    ),
    // Of a policy that failed.
    module("pages/simulator/result.js", &["simulation"], &["fault"]),
];

/// Modules that read no page here: a router alone has no others, and a difference is a text.
const WITHOUT_PAGES: [&str; 3] = [
    "pages/configuration/diff.js",
    "pages/routers.js",
    "pages/routers/decisions.js",
];

fn ui() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard/ui")
}

/// Appends the modules below a folder.
fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            let path = path.strip_prefix(ui()).unwrap().to_path_buf();
            found.insert(path.to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn every_module_of_a_page_is_in_the_list() {
    let mut modules = BTreeSet::new();
    collect(&ui().join("pages"), &mut modules);
    let listed = MODULES.iter().map(|module| module.path).chain(WITHOUT_PAGES);
    let listed: BTreeSet<String> = listed
        .filter(|path| path.starts_with("pages/"))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, modules);
}

/// Appends the keys of each object of a page. Objects of one list are one: some may lack keys.
fn keys_of<'v>(values: &[&'v Value], found: &mut Vec<BTreeSet<&'v str>>) {
    let items: Vec<&Value> = values
        .iter()
        .filter_map(|value| value.as_array())
        .flatten()
        .collect();
    if !items.is_empty() {
        keys_of(&items, found);
    }
    let objects = || values.iter().filter_map(|value| value.as_object());
    let keys: BTreeSet<&str> = objects()
        .flat_map(|object| object.keys().map(String::as_str))
        .collect();
    for key in &keys {
        let members: Vec<&Value> = objects().filter_map(|object| object.get(*key)).collect();
        keys_of(&members, found);
    }
    if !keys.is_empty() {
        found.push(keys);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_that_the_dashboard_reads_is_on_its_pages() {
    let pages = pages::recorded().await;
    let mut faults = Vec::new();
    for Module {
        path,
        pages: read,
        others,
    } in MODULES
    {
        let mut objects = Vec::new();
        for name in *read {
            let page = pages.get(name).unwrap_or_else(|| unreachable!("{name}"));
            keys_of(&[page], &mut objects);
        }
        let text = fs::read_to_string(ui().join(path)).unwrap();
        let reads = Reads::of(&text);
        for pattern in reads.patterns {
            let keys: BTreeSet<&str> = pattern
                .iter()
                .map(String::as_str)
                .filter(|key| !others.contains(key))
                .collect();
            if !objects.iter().any(|object| keys.is_subset(object)) {
                faults.push(format!("{path}: no object of {read:?} has {keys:?}"));
            }
        }
        for member in reads.members {
            let is_known =
                others.contains(&&*member) || objects.iter().any(|object| object.contains(&*member));
            if !is_known {
                faults.push(format!("{path}: no object of {read:?} has `{member}`"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
