//! The rules of overlays.

use conductor_config::{Config, Known};
use routing::Role;

use super::*;

mod shared;

const FILE: &str = r#"
[pools.pd]
pd = { dialect = "mooncake-connector" }
[[pools.pd.workers]]
name = "p0"
url = "http://p0:1"
role = "prefill"
bootstrap = "http://p0:8998"
[[pools.pd.workers]]
name = "d0"
url = "http://d0:1"
role = "decode"
weight = 2.0
[pools.plain]
[[pools.plain.workers]]
name = "m0"
url = "http://m0:1"
data-parallel = { ranks = 2 }
[[routes]]
match = { model = "a" }
pool = "plain"
[[routes]]
pool = "pd"
"#;

fn file(text: &str) -> Config {
    let known = Known {
        builtins: &["p"],
        former_builtins: &[],
        default_policy: "p",
        files: &[] as &[&str; 0],
        has_admin_key: false,
    };
    match Config::parse("test", text, &known) {
        Ok(parsed) => parsed.config,
        Err(mistakes) => panic!("{mistakes}"),
    }
}

fn add(url: &str, role: Role) -> Addition {
    Addition {
        url: format!("http://{url}:1"),
        name: None,
        role,
        pool: None,
        bootstrap: None,
    }
}

fn remove(url: &str) -> InstanceChange {
    InstanceChange::Remove(Removal {
        url: format!("http://{url}:1"),
        name: None,
        role: None,
        pool: None,
    })
}

/// Returns the overlays after these changes, each with its expected effect.
#[track_caller]
fn made(text: &str, changes: &[(InstanceChange, Changed)]) -> Overlays {
    let file = file(text);
    changes
        .iter()
        .fold(Overlays::default(), |overlays, (change, changed)| {
            let (overlays, done) = overlays.change(&file, change).unwrap();
            assert_eq!(done.changed, *changed, "{change:?}");
            overlays
        })
}

#[track_caller]
fn refused(overlays: &Overlays, change: &InstanceChange) -> ChangeError {
    overlays.change(&file(FILE), change).unwrap_err()
}

/// Returns `pool/name role` of every worker.
fn workers(config: &Config) -> Vec<String> {
    let of = |pool: &PoolConfig| {
        let line = |worker: &WorkerConfig| format!("{}/{} {}", pool.name, worker.name, worker.role.as_str());
        pool.workers.iter().map(line).collect::<Vec<_>>()
    };
    config.pools.iter().flat_map(of).collect()
}

fn kinds(overlays: &Overlays) -> Vec<(&'static str, String)> {
    let report = overlays.report().into_iter();
    report
        .map(|overlay| (overlay.kind.as_str(), overlay.name))
        .collect()
}

use InstanceChange::Add;

#[test]
fn an_added_instance_is_called_by_its_host_and_port_whatever_its_scheme() {
    let plain = add("a", Role::Mixed);
    let secured = Addition {
        url: "https://b:1".to_owned(),
        ..add("b", Role::Mixed)
    };
    let overlays = made(
        FILE,
        &[(Add(plain), Changed::Added), (Add(secured), Changed::Added)],
    );
    let names: Vec<_> = overlays
        .report()
        .into_iter()
        .map(|overlay| overlay.name)
        .collect();
    assert_eq!(names, ["a:1", "b:1"]);
}

#[test]
fn instances_come_go_and_change_their_role_over_the_file() {
    let overlays = made(
        FILE,
        &[
            (Add(add("d1", Role::Decode)), Changed::Added),
            (Add(add("d1", Role::Decode)), Changed::Nothing),
            (Add(add("d0", Role::Prefill)), Changed::Role),
            (remove("m0"), Changed::Removed),
        ],
    );
    assert_eq!(
        workers(&overlays.over(&file(FILE))),
        ["pd/p0 prefill", "pd/d0 prefill", "pd/d1:1 decode"]
    );
    assert_eq!(
        kinds(&overlays),
        [
            ("added", "d1:1".into()),
            ("role", "d0".into()),
            ("removed", "m0".into())
        ]
    );
    let over = overlays.over(&file(FILE));
    assert_eq!(over.pools[0].workers[1].weight, 2.0, "only the role is another");
}

#[test]
fn changes_that_restore_the_file_leave_no_overlay() {
    let overlays = made(
        FILE,
        &[
            (Add(add("d0", Role::Mixed)), Changed::Role),
            (Add(add("d0", Role::Decode)), Changed::Role),
            (remove("p0"), Changed::Removed),
            (Add(add("p0", Role::Prefill)), Changed::Added),
            (Add(add("x", Role::Mixed)), Changed::Added),
            (Add(add("x", Role::Decode)), Changed::Role),
            (remove("x"), Changed::Removed),
            (Add(add("p0", Role::Prefill)), Changed::Nothing),
        ],
    );
    assert_eq!(overlays, Overlays::default());
    assert_eq!(overlays.over(&file(FILE)), file(FILE));
}

#[test]
fn a_removed_instance_comes_back_with_its_entry_of_the_file() {
    let overlays = made(
        FILE,
        &[
            (Add(add("d0", Role::Mixed)), Changed::Role),
            (remove("d0"), Changed::Removed),
            (Add(add("d0", Role::Prefill)), Changed::Added),
        ],
    );
    let over = overlays.over(&file(FILE));
    assert_eq!(over.pools[0].workers[1].weight, 2.0);
    assert_eq!(kinds(&overlays), [("role", "d0".into())]);
}

#[test]
fn a_reload_without_a_change_of_an_instance_keeps_its_overlay() {
    let overlays = made(
        FILE,
        &[
            (Add(add("d1", Role::Decode)), Changed::Added),
            (Add(add("d0", Role::Mixed)), Changed::Role),
            (remove("m0"), Changed::Removed),
        ],
    );
    let edited = FILE.replace("p0:8998", "p0:9000") + "[server]\nattempts = 1\n";
    let (left, ended) = overlays.under(&file(&edited));
    assert_eq!((left, ended), (overlays, vec![]));
}

#[test]
fn a_file_that_differs_has_its_way() {
    #[track_caller]
    fn check(change: InstanceChange, from: &str, to: &str, why: &str) {
        assert!(FILE.contains(from), "{from}");
        let (overlays, _) = Overlays::default().change(&file(FILE), &change).unwrap();
        let edited = file(&FILE.replacen(from, to, 1));
        let (left, ended) = overlays.under(&edited);
        assert_eq!(left, Overlays::default(), "{change:?}");
        let whys: Vec<&str> = ended.iter().map(|ended| ended.why).collect();
        assert_eq!(whys, [why], "{change:?}");
        assert_eq!(left.over(&edited), edited);
    }
    let new = |url: &str| {
        format!("[[pools.plain.workers]]\nname = \"other\"\nurl = \"http://{url}:1\"\n[[routes]]\nmatch")
    };
    let d1 = Add(add("d1", Role::Decode));
    check(
        d1.clone(),
        "[[routes]]\nmatch",
        &new("d1"),
        "the file names it itself",
    );
    check(
        remove("d0"),
        "weight = 2.0",
        "weight = 3.0",
        "its entry in the file has changed",
    );
    check(
        Add(add("d0", Role::Mixed)),
        "role = \"decode\"",
        "",
        "its entry in the file has changed",
    );
    check(
        Add(add("d0", Role::Mixed)),
        "http://d0:1",
        "http://d2:1",
        "its entry in the file has changed",
    );
    let mut in_plain = add("x", Role::Mixed);
    in_plain.pool = Some("plain".into());
    let other_pool = Add(in_plain);
    let named = |name: &str| {
        let mut addition = add("x", Role::Mixed);
        addition.name = Some(name.into());
        Add(addition)
    };
    check(
        other_pool.clone(),
        "[pools.plain]\n[[pools.plain.workers]]\nname = \"m0\"\nurl = \"http://m0:1\"\ndata-parallel = { ranks = 2 }\n\
         [[routes]]\nmatch = { model = \"a\" }\npool = \"plain\"\n",
        "",
        "its pool is gone",
    );
    check(
        remove("m0"),
        "pools.plain.workers",
        "pools.pd.workers",
        "its entry in the file has changed",
    );
    let taken = "the file gives its name to another worker";
    check(named("m1"), "\"m0\"", "\"m1\"", taken);
    check(named("m0@2"), "ranks = 2", "ranks = 3", taken);
}

#[test]
fn a_pool_that_stops_splitting_takes_the_roles_with_it() {
    let text = "[pools.a]\npd = { dialect = \"nixl\" }\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
    let overlays = made(
        text,
        &[
            (Add(add("p", Role::Prefill)), Changed::Added),
            (Add(add("a", Role::Decode)), Changed::Role),
            (Add(add("m", Role::Mixed)), Changed::Added),
        ],
    );
    let (left, ended) = overlays.under(&file(&text.replace("pd = { dialect = \"nixl\" }", "")));
    assert_eq!(kinds(&left), [("added", "m:1".into())]);
    let report: Vec<EndedReport> = ended.iter().map(Ended::report).collect();
    assert_eq!(report.len(), 2);
    assert_eq!(report[0].why, "its pool splits no requests any more");
    assert_eq!(report[0].overlay.name, "p:1");
}

#[test]
fn the_pool_is_the_named_one_else_the_only_one_that_splits_else_the_only_one() {
    let one = "[pools.a]\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
    let two = format!(
        "{one}[[pools.b.workers]]\nurl = \"http://b:1\"\n[[routes]]\npool = \"a\"\n[[routes]]\nmatch = {{ model = \"x\" }}\npool = \"b\"\n"
    );
    let pool_of = |text: &str, named: Option<&str>| {
        let mut addition = add("x", Role::Mixed);
        addition.pool = named.map(str::to_owned);
        let made = Overlays::default().change(&file(text), &Add(addition));
        made.map(|(_, done)| done.pool)
    };
    assert_eq!(pool_of(one, None), Ok("a".into()));
    assert_eq!(pool_of(FILE, None), Ok("pd".into()));
    assert_eq!(pool_of(FILE, Some("plain")), Ok("plain".into()));
    let pools = "the pools are `a` (no pd), `b` (no pd)".to_owned();
    assert_eq!(pool_of(&two, None), Err(ChangeError::WhichPool { pools }));
    let error = pool_of(FILE, Some("x")).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no pool `x`: the pools are `pd` (pd: mooncake-connector), `plain` (no pd)"
    );
}

#[test]
fn an_invalid_instance_change_is_refused_with_its_reason() {
    let none = Overlays::default();
    let in_plain = |role| Addition {
        pool: Some("plain".into()),
        ..add("x", role)
    };
    assert!(matches!(
        refused(&none, &Add(in_plain(Role::Decode))),
        ChangeError::RoleNeedsPd { .. }
    ));
    assert!(matches!(
        refused(&none, &Add(add("m0", Role::Prefill))),
        ChangeError::RoleNeedsPd { .. }
    ));
    let bootstrap = Addition {
        bootstrap: Some("http://x:8998".into()),
        ..add("x", Role::Decode)
    };
    assert!(matches!(
        refused(&none, &Add(bootstrap)),
        ChangeError::NoBootstrap { .. }
    ));
    let moved = Addition {
        pool: Some("plain".into()),
        ..add("d0", Role::Decode)
    };
    assert!(matches!(
        refused(&none, &Add(moved)),
        ChangeError::OtherPool { .. }
    ));
    let renamed = Addition {
        name: Some("d9".into()),
        ..add("d0", Role::Decode)
    };
    assert!(matches!(
        refused(&none, &Add(renamed)),
        ChangeError::OtherName { .. }
    ));
    let not_there = |removed| ChangeError::NotThere {
        url: if removed { "http://d0:1" } else { "http://x:1" }.into(),
        removed,
    };
    assert_eq!(refused(&none, &remove("x")), not_there(false));
    let removed = made(FILE, &[(remove("d0"), Changed::Removed)]);
    assert_eq!(refused(&removed, &remove("d0")), not_there(true));
    let as_prefill = InstanceChange::Remove(Removal {
        url: "http://d0:1".into(),
        name: None,
        role: Some(Role::Prefill),
        pool: Some("pd".into()),
    });
    assert!(matches!(
        refused(&none, &as_prefill),
        ChangeError::OtherRole {
            role: Role::Decode,
            ..
        }
    ));
}

#[test]
fn names_stay_unique_those_of_ranks_and_of_removed_workers_too() {
    let overlays = made(
        FILE,
        &[
            (remove("d0"), Changed::Removed),
            (Add(add("x", Role::Mixed)), Changed::Added),
        ],
    );
    for name in ["p0", "d0", "m0", "m0@1", "x:1"] {
        let addition = Addition {
            name: Some(name.into()),
            ..add("y", Role::Mixed)
        };
        let taken = ChangeError::NameTaken { name: name.into() };
        assert_eq!(refused(&overlays, &Add(addition)), taken);
    }
}

#[test]
fn a_new_bootstrap_server_is_a_change_and_the_old_one_stays_without_one() {
    let elsewhere = Addition {
        bootstrap: Some("http://p0:9000".into()),
        ..add("p0", Role::Prefill)
    };
    let overlays = made(
        FILE,
        &[
            (Add(elsewhere), Changed::Role),
            (Add(add("p0", Role::Prefill)), Changed::Nothing),
        ],
    );
    let over = overlays.over(&file(FILE));
    assert_eq!(
        over.pools[0].workers[0].bootstrap.as_deref(),
        Some("http://p0:9000")
    );
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let file = file(FILE);
    let made = made(FILE, &[(Add(add("n", Role::Mixed)), Changed::Added)]);
    let numbered = |number| {
        let mut overlay = made.all[0].clone();
        let worker = overlay.now.as_mut().unwrap();
        worker.name = format!("n{number}:1");
        worker.url = format!("http://n{number}:1");
        overlay
    };
    let full = Overlays {
        all: (0..MOST_OVERLAYS).map(numbered).collect(),
        ..Overlays::default()
    };
    assert_eq!(
        refused(&full, &remove("d0")),
        ChangeError::TooMany { limit: MOST_OVERLAYS }
    );
    assert!(
        full.change(&file, &Add(add("n7", Role::Decode))).is_ok(),
        "one of them may change"
    );
    assert!(full.change(&file, &remove("n7")).is_ok());
}

fn drain(pool: &str, worker: &str, drains: bool) -> InstanceChange {
    InstanceChange::Drain(DrainChange {
        pool: pool.to_owned(),
        worker: worker.to_owned(),
        drains,
        reason: None,
    })
}

#[test]
fn a_drained_worker_stays_in_the_fleet_until_it_is_resumed() {
    let file = file(FILE);
    let (drained, done) = Overlays::default()
        .change(&file, &drain("pd", "d0", true))
        .unwrap();
    assert_eq!((done.changed, done.name.as_str()), (Changed::Drained, "d0"));
    let over = drained.over(&file);
    let worker = &over.pools[0].workers[1];
    assert!(worker.drain && worker.name == "d0" && worker.weight == 2.0);
    assert_eq!(drained.report()[0].kind, OverlayKind::Drain);
    let (_, again) = drained.change(&file, &drain("pd", "d0", true)).unwrap();
    assert_eq!(again.changed, Changed::Nothing);
    let (resumed, done) = drained.change(&file, &drain("pd", "d0", false)).unwrap();
    assert_eq!((done.changed, resumed), (Changed::Resumed, Overlays::default()));
}

#[test]
fn the_ranks_of_a_worker_drain_together_and_unknown_workers_are_refused() {
    let file = file(FILE);
    let rank = rank_name("m0", routing::DpRank(1));
    let (drained, done) = Overlays::default()
        .change(&file, &drain("plain", &rank, true))
        .unwrap();
    assert_eq!(done.name, "m0");
    assert!(drained.over(&file).pools[1].workers[0].drain);
    let refused = |pool, worker| {
        Overlays::default()
            .change(&file, &drain(pool, worker, true))
            .unwrap_err()
    };
    assert!(matches!(refused("plain", "d0"), ChangeError::NoSuchWorker { .. }));
    assert!(matches!(refused("x", "d0"), ChangeError::NoSuchPool { .. }));
}

#[test]
fn an_added_worker_can_be_drained_too() {
    let file = file(FILE);
    let added = Add(add("d9", Role::Decode));
    let (overlays, _) = Overlays::default().change(&file, &added).unwrap();
    let (drained, done) = overlays.change(&file, &drain("pd", "d9:1", true)).unwrap();
    assert_eq!(done.changed, Changed::Drained);
    assert_eq!(drained.report()[0].kind, OverlayKind::Added);
    let over = drained.over(&file);
    assert!(
        over.pools[0]
            .workers
            .iter()
            .any(|worker| worker.name == "d9:1" && worker.drain)
    );
}
