//! Overrides over a file of two routes.

use conductor_config::{Known, RouteConfig};

use super::*;

const FILE: &str = r#"
policy-dir = "policies.d"
[[pools.main.workers]]
url = "http://a:1"
[[routes]]
match.model = "small"
pool = "main"
policy = "round-robin"
[[routes]]
pool = "main"
policy = "load-weighted"
split = { load-weighted = 90, tried = 10 }
"#;

fn read(text: &str) -> Config {
    let known = Known {
        builtins: &["round-robin", "load-weighted"],
        former_builtins: &[],
        default_policy: "round-robin",
        files: &["mine", "tried", "least"],
        has_admin_key: false,
    };
    Config::parse("conductor.toml", text, &known).unwrap().config
}

fn in_folder() -> Vec<String> {
    ["mine", "tried"].map(str::to_owned).to_vec()
}

fn requested(policy: &str, action: RouteAction, route: Option<usize>) -> RouteChange {
    RouteChange {
        policy: policy.to_owned(),
        action,
        route,
    }
}

#[track_caller]
fn changed(overrides: &RouteOverrides, change: &RouteChange) -> RouteOverrides {
    overrides.change(&read(FILE), &in_folder(), change).unwrap().0
}

fn refused(change: &RouteChange) -> RouteChangeError {
    let none = RouteOverrides::default();
    none.change(&read(FILE), &in_folder(), change).unwrap_err()
}

/// Returns the routes with the overrides applied.
fn routes(overrides: &RouteOverrides) -> Vec<RouteConfig> {
    let mut config = read(FILE);
    overrides.over(&mut config);
    config.routes
}

#[test]
fn a_canary_is_set_up_promoted_and_retracted() {
    let none = RouteOverrides::default();
    let canary = changed(&none, &requested("mine", RouteAction::Canary(500), Some(1)));
    let shares = |route: &RouteConfig| -> Vec<(String, u32)> {
        let canaries = route.trials.canaries.iter();
        canaries
            .map(|canary| (canary.policy.clone(), canary.share))
            .collect()
    };
    assert_eq!(shares(&routes(&canary)[0]), [("mine".to_owned(), 500)]);
    assert_eq!(routes(&canary)[1], read(FILE).routes[1]);

    let promoted = changed(&canary, &requested("mine", RouteAction::Promote, None));
    let route = routes(&promoted).remove(0);
    assert_eq!((&*route.policy, shares(&route).len()), ("mine", 0));
    let mut config = read(FILE);
    promoted.over(&mut config);
    let mine = config
        .policies
        .iter()
        .find(|policy| policy.name == "mine")
        .unwrap();
    assert_eq!(mine.source, PolicySource::Folder);

    let retracted = changed(&promoted, &requested("mine", RouteAction::Retract, None));
    assert!(retracted.is_empty());
}

#[test]
fn a_shadow_becomes_a_canary_and_leaves_what_the_file_tries_out_alone() {
    let none = RouteOverrides::default();
    let shadow = changed(&none, &requested("mine", RouteAction::Shadow(Some(0.5)), Some(2)));
    let route = routes(&shadow).remove(1);
    assert_eq!(
        (&*route.trials.shadows, route.trials.shadow_sample),
        (&["mine".to_owned()][..], 0.5)
    );
    let canary = changed(&shadow, &requested("mine", RouteAction::Canary(1_000), Some(2)));
    let route = routes(&canary).remove(1);
    assert_eq!((route.trials.shadows.len(), route.trials.canaries.len()), (0, 2));
    let left = changed(&canary, &requested("mine", RouteAction::Retract, None));
    assert_eq!(
        routes(&left)[1].trials.canaries,
        read(FILE).routes[1].trials.canaries
    );
}

#[test]
fn a_candidate_of_the_file_is_promoted_and_the_override_has_the_text_to_write() {
    let none = RouteOverrides::default();
    let promoted = changed(&none, &requested("tried", RouteAction::Promote, None));
    let report = promoted.report(&read(FILE), true);
    assert_eq!(
        (report.len(), report[0].route, &*report[0].toml),
        (1, 2, "policy = \"tried\"\nsplit = { \"tried\" = 100 }")
    );
    let canary = changed(&promoted, &requested("mine", RouteAction::Canary(525), Some(2)));
    let report = canary.report(&read(FILE), false);
    let lines = "policy = \"tried\"\nsplit = { \"tried\" = 94.75, \"mine\" = 5.25 }";
    assert_eq!((&*report[0].toml, report[0].kept), (lines, false));
    // The lines, in the file, are the override.
    let written = FILE.replace(
        "policy = \"load-weighted\"\nsplit = { load-weighted = 90, tried = 10 }",
        lines,
    );
    assert_eq!(read(&written).routes[1], routes(&canary)[1]);
    let (left, ended) = canary.under(&read(&written));
    assert!(left.is_empty());
    assert_eq!(ended, ["tried"]);
}

/// File of one route with two canaries and two shadows.
const TRIALS: &str = r#"
policy-dir = "policies.d"
[[pools.main.workers]]
url = "http://a:1"
[[routes]]
pool = "main"
policy = "load-weighted"
split = { load-weighted = 70, tried = 20, mine = 10 }
canary = { least = 100 }
shadow = ["round-robin", "least"]
shadow-sample = 0.5
"#;

/// Returns the overrides of [`TRIALS`] after these changes.
fn changed_trials(changes: &[(&str, RouteAction)]) -> RouteOverrides {
    let none = RouteOverrides::default();
    changes.iter().fold(none, |overrides, (policy, action)| {
        let change = requested(policy, *action, None);
        overrides
            .change(&read(TRIALS), &trial_folder(), &change)
            .unwrap()
            .0
    })
}

fn trial_folder() -> Vec<String> {
    ["mine", "tried", "least"].map(str::to_owned).to_vec()
}

#[test]
fn the_text_to_write_removes_trials_of_the_file_that_the_override_ended() {
    use RouteAction::{Canary, Promote, Retract};
    let own_shadows = changed_trials(&[("round-robin", Canary(100)), ("least", Promote)]);
    assert!(
        own_shadows.report(&read(TRIALS), true)[0]
            .toml
            .contains("shadow = []")
    );
    let all_promoted = [("tried", Promote), ("mine", Promote), ("round-robin", Promote)];
    for changes in [
        &[("tried", Promote)][..],
        &all_promoted,
        &[("round-robin", Promote), ("least", Promote)],
        &[
            ("mine", Canary(500)),
            ("mine", Promote),
            ("mine", Retract),
            ("tried", Promote),
        ],
    ] {
        let overrides = changed_trials(changes);
        let lines = overrides.report(&read(TRIALS), true).remove(0).toml;
        let is_replaced = |line: &&str| {
            let key = line.split(" = ").next().unwrap_or_default();
            !lines
                .lines()
                .any(|written| written.split(" = ").next() == Some(key))
        };
        let kept: Vec<&str> = TRIALS.lines().filter(is_replaced).collect();
        let written = read(&format!("{}\n{lines}\n", kept.join("\n")));
        let mut now = read(TRIALS);
        overrides.over(&mut now);
        assert_eq!(written.routes, now.routes, "{lines}");
        assert!(overrides.under(&written).0.is_empty(), "{lines}");
    }
}

#[test]
fn retracting_any_of_several_trials_of_the_file_restores_the_file() {
    use RouteAction::{Canary, Promote, Retract, Shadow};
    for policy in ["tried", "mine", "round-robin", "least"] {
        for action in [Promote, Canary(50), Shadow(Some(0.1))] {
            let changed = changed_trials(&[(policy, action)]);
            assert!(!changed.is_empty(), "{policy} {action:?}");
            let retracted = changed_trials(&[(policy, action), (policy, Retract)]);
            assert!(retracted.is_empty(), "{policy} {action:?}: {retracted:?}");
        }
    }
}

#[test]
fn a_changed_share_moves_no_other_canary() {
    let changed = changed_trials(&[("tried", RouteAction::Canary(500))]);
    let mut config = read(TRIALS);
    changed.over(&mut config);
    let canaries = config.routes[0].trials.canaries.iter();
    let shares: Vec<_> = canaries.map(|canary| (&*canary.policy, canary.share)).collect();
    assert_eq!(shares, [("tried", 500), ("mine", 1_000)]);
}

#[test]
fn an_override_stands_while_the_files_route_is_unchanged() {
    let none = RouteOverrides::default();
    let promoted = changed(&none, &requested("tried", RouteAction::Promote, None));
    let other_route = FILE.replace("policy = \"round-robin\"", "policy = \"mine\"");
    let (left, ended) = promoted.under(&read(&format!("# a line above\n{other_route}")));
    assert_eq!((left, ended.len()), (promoted.clone(), 0));
    let (left, ended) = promoted.under(&read(&FILE.replace("90, tried = 10", "80, tried = 20")));
    assert!(left.is_empty());
    assert_eq!(ended, ["tried"]);
}

#[test]
fn an_invalid_route_change_is_refused_with_its_reason() {
    use RouteAction::{Canary, Promote, Retract, Shadow};
    let canary = |policy, route| requested(policy, Canary(100), route);
    assert_eq!(
        refused(&canary("nowhere", None)),
        RouteChangeError::NoSuchPolicy("nowhere".to_owned())
    );
    assert_eq!(
        refused(&canary("mine", None)),
        RouteChangeError::WhichRoute(vec![1, 2])
    );
    for route in [0, 3] {
        let no_such = RouteChangeError::NoSuchRoute { route, routes: 2 };
        assert_eq!(refused(&canary("mine", Some(route))), no_such);
    }
    let decides = RouteChangeError::Decides {
        policy: "round-robin".to_owned(),
        route: 1,
    };
    assert_eq!(refused(&canary("round-robin", Some(1))), decides);
    assert_eq!(refused(&requested("round-robin", Shadow(None), Some(1))), decides);
    assert_eq!(
        refused(&requested("mine", Promote, None)),
        RouteChangeError::NotTried("mine".to_owned())
    );
    assert_eq!(
        refused(&requested("tried", Retract, None)),
        RouteChangeError::NothingToRetract("tried".to_owned())
    );
    let shares = RouteChangeError::Shares {
        route: 2,
        parts: 10_500,
    };
    assert_eq!(refused(&requested("mine", Canary(9_500), Some(2))), shares);
    let all = refused(&requested("mine", Canary(10_000), Some(1)));
    assert!(matches!(all, RouteChangeError::Shares { route: 1, .. }), "{all}");
}

#[test]
fn route_overrides_round_trip() {
    let none = RouteOverrides::default();
    let canary = changed(&none, &requested("mine", RouteAction::Canary(525), Some(2)));
    let both = changed(&canary, &requested("mine", RouteAction::Shadow(None), Some(1)));
    assert_eq!(RouteOverrides::decode(&both.encode()).unwrap(), both);
    assert!(RouteOverrides::decode(b"{}").is_err());
    let newer = String::from_utf8(both.encode())
        .unwrap()
        .replace("\"version\": 2", "\"version\": 3");
    let newer = RouteOverrides::decode(newer.as_bytes());
    assert!(matches!(newer, Err(SavedOverridesError::Version(3))), "{newer:?}");
}

/// Returns a saved override of the second route, with a shadow and a canary.
fn saved() -> String {
    let none = RouteOverrides::default();
    let canary = changed(&none, &requested("mine", RouteAction::Canary(525), Some(2)));
    let both = changed(
        &canary,
        &requested("ttft-queue", RouteAction::Shadow(None), Some(2)),
    );
    String::from_utf8(both.encode()).unwrap()
}

#[test]
fn a_saved_override_with_an_invalid_name_or_share_is_refused() {
    assert!(RouteOverrides::decode(saved().as_bytes()).is_ok());
    for (from, to) in [
        ("\"policy\": \"load-weighted\"", "\"policy\": \"../outside\""),
        ("\"mine\"", "\"../outside\""),
        ("\"ttft-queue\"", "\"../outside\""),
        ("\"ttft-queue\"", "\"\""),
        ("525", "4294967295"),
        ("525", "9000"),
        ("525", "0"),
        ("\"shadow-sample\": 0.1", "\"shadow-sample\": 7.0"),
        ("\"shadow-sample\": 0.1", "\"shadow-sample\": 0.0"),
    ] {
        let invalid = saved().replace(from, to);
        assert_ne!(invalid, saved(), "{from}");
        let refused = RouteOverrides::decode(invalid.as_bytes());
        assert!(
            matches!(refused, Err(SavedOverridesError::Content(_))),
            "{to}: {refused:?}"
        );
    }
}

#[test]
fn an_override_of_another_router_with_an_invalid_name_or_share_is_refused() {
    let share = |text: &str| serde_json::from_str::<SharedOverride>(text).map_err(|error| error.to_string());
    let text = r#"{ "route": "r", "policy": "mine", "canaries": [["tried", 500]], "shadows": [], "shadow-sample": 0.5 }"#;
    assert!(share(text).is_ok() && share("null").is_ok());
    let outside = share(&text.replace("\"mine\"", "\"../outside\"")).unwrap_err();
    assert!(outside.contains("../outside"), "{outside}");
    let whole = share(&text.replace("500", "4294967295")).unwrap_err();
    assert!(
        whole.contains("the canaries have 4294967295 of 10000 parts"),
        "{whole}"
    );
}

#[test]
fn a_former_name_of_a_built_in_policy_becomes_its_current_name() {
    let none = RouteOverrides::default();
    let former = changed(&none, &requested("conductor", RouteAction::Shadow(None), Some(1)));
    let current = changed(
        &none,
        &requested("ttft-queue", RouteAction::Shadow(None), Some(1)),
    );
    assert_eq!(former, current);

    let saved = String::from_utf8(current.encode()).unwrap();
    let before = saved
        .replace("\"version\": 2", "\"version\": 1")
        .replace("\"ttft-queue\"", "\"conductor\"");
    assert_eq!(RouteOverrides::decode(before.as_bytes()).unwrap(), current);
}
