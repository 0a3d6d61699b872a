//! `policy check`: what a router would think of a policy.

use harness::ProgramRun;
use serde_json::Value;

use crate::binary::{findings, policy};
use crate::components::{Files, LEAST, LISTENER, REFUSES, component, deciding, module};

/// Checks the component of a case.
fn checked(case: &str) -> ProgramRun {
    let files = Files::new();
    let file = files.write("mine.wasm", component(case));
    policy(["check", file.to_str().unwrap(), "--json"])
}

/// Returns the result of a scenario.
#[track_caller]
fn scene(run: &ProgramRun, name: &str) -> Value {
    let report = run.json();
    let scenes = report["scenarios"].as_array().unwrap().iter();
    let found = scenes.into_iter().find(|scene| scene["scenario"] == name);
    found.unwrap_or_else(|| panic!("no scenario {name}")).clone()
}

#[test]
fn every_builtin_passes() {
    for name in [
        "cache-aware",
        "consistent-hash-bounded-load",
        "dualmap",
        "dynamo-kv-cost",
        "kairos",
        "least-request",
        "least-tokens",
        "lmetric",
        "load-weighted",
        "longest-match",
        "mooncake-alg1",
        "netkv",
        "pd-pairing",
        "power-of-two",
        "preble-e2",
        "predicted-latency",
        "prefix-hash",
        "priced-ttft",
        "random",
        "round-robin",
        "session-affinity",
        "sglang-cache-aware",
        "skywalker",
    ] {
        let run = policy(["check", name, "--json"]);
        assert_eq!(run.code, 0, "{name}: {run:?}");
        assert_eq!(findings(&run), [""; 0], "{name}");
        let report = run.json();
        assert_eq!(
            (&report["ok"], &report["name"]),
            (&Value::Bool(true), &Value::from(name))
        );
        for scene in report["scenarios"].as_array().unwrap() {
            assert_ne!(scene["outcome"], "fault", "{name}: {scene}");
        }
    }
}

#[test]
fn a_pairing_policy_is_called_for_pairs_and_another_one_is_not() {
    let pairs = policy(["check", "pd-pairing", "--json"]);
    let pair = scene(&pairs, "pair-not-alone");
    assert_eq!(pair["outcome"], "route");
    assert!(pair["prefill"].is_u64(), "{pair}");
    let single = policy(["check", "round-robin", "--json"]).json();
    let scenes = single["scenarios"].as_array().unwrap();
    assert!(scenes.iter().all(|scene| scene["scenario"] != "pair"));
}

#[test]
fn a_good_policy_of_ones_own_passes() {
    let run = checked(LEAST);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(findings(&run), [""; 0]);
    let one = scene(&run, "one");
    assert_eq!(
        (&one["outcome"], &one["row"]),
        (&Value::from("route"), &Value::from(0))
    );
    assert_eq!(scene(&run, "thousand")["candidates"], 1024);
    assert_eq!(run.json()["endurance"]["calls"], 2000);
}

/// Checks that the case fails scenario `sixteen` with that kind of fault, and the check with code 1.
#[track_caller]
fn check_fault(instructions: &str, fault: &str) {
    let run = checked(&deciding(instructions));
    assert_eq!(run.code, 1, "{run:?}");
    let sixteen = scene(&run, "sixteen");
    assert_eq!(
        (&sixteen["outcome"], &sixteen["fault"]),
        (&Value::from("fault"), &Value::from(fault))
    );
    assert!(findings(&run).contains(&"scenarios-failed".to_owned()), "{run:?}");
    assert!(findings(&run).contains(&"trial-failed".to_owned()), "{run:?}");
}

#[test]
fn a_fault_is_reported_for_each_scenario_by_its_kind() {
    check_fault("unreachable", "trap");
    check_fault("(loop $forever (br $forever)) unreachable", "deadline");
    check_fault(
        "(call $route (local.get $count) (f64.const 0))",
        "invalid-verdict",
    );
}

#[test]
fn a_fault_after_many_requests_is_found() {
    let case = format!(
        "(global $calls (mut i32) (i32.const 0)) {}",
        deciding(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.eq (global.get $calls) (i32.const 700)) (then unreachable))
             (call $route (i32.const 0) (f64.const 0))"
        )
    );
    let run = checked(&case);
    assert_eq!((run.code, findings(&run)), (1, vec!["fails-later".to_owned()]));
    assert_eq!(run.json()["endurance"]["failed-call"], 700);
}

/// Checks that the case works, with one warning.
#[track_caller]
fn check_warning(case: &str, code: &str) {
    let run = checked(case);
    assert_eq!((run.code, findings(&run)), (0, vec![code.to_owned()]), "{run:?}");
}

#[test]
fn answers_that_depend_on_an_instances_memory_are_warned_of() {
    let turn = deciding(
        "(global.set $turn (i32.add (global.get $turn) (i32.const 1)))
         (call $route (i32.rem_u (global.get $turn) (local.get $count)) (f64.const 0))",
    );
    check_warning(
        &format!("(global $turn (mut i32) (i32.const 0)) {turn}"),
        "keeps-memory",
    );
}

#[test]
fn memory_that_is_never_given_back_is_warned_of() {
    // The prelude's `$route` gives back what a call allocated; this answers without it.
    let leak = deciding(
        "(i64.store (i32.const 1024) (i64.const 0)) (i64.store (i32.const 1032) (i64.const 0)) (i32.const 1024)",
    );
    check_warning(&leak, "memory-grows");
}

#[test]
fn state_that_grows_with_the_sessions_is_warned_of() {
    let remember = deciding(
        "(i32.store8 (i32.const 600) (i32.add (i32.const 33) (i32.and (i32.wrap_i64 (local.get $seq)) (i32.const 63))))
         (i32.store8 (i32.const 601)
           (i32.add (i32.const 33) (i32.and (i32.shr_u (i32.wrap_i64 (local.get $seq)) (i32.const 6)) (i32.const 63))))
         (call $add (i32.const 600) (i32.const 2) (i64.const 1) (i32.const 512))
         (call $route (i32.const 0) (f64.const 0))",
    );
    let import = r#"(import "conductor:policy/state@0.1.0" "add" (func $add (param i32 i32 i64 i32)))"#;
    check_warning(&format!("{import} {remember}"), "state-grows");
}

#[test]
fn a_policy_that_needs_more_memory_gets_what_is_configured() {
    let greedy = format!(
        "(func $greedy (if (i32.eq (memory.grow (i32.const 400)) (i32.const -1)) (then unreachable))) (start $greedy) {LEAST}"
    );
    let files = Files::new();
    let file = files.write("mine.wasm", component(&greedy));
    let run = policy(["check", file.to_str().unwrap(), "--json"]);
    assert_eq!((run.code, findings(&run)), (1, vec!["not-loadable".to_owned()]));
    assert!(run.stdout.contains("--memory-mib"), "{run:?}");
    let run = policy(["check", file.to_str().unwrap(), "--memory-mib", "64"]);
    assert_eq!(run.code, 0, "{run:?}");
}

#[test]
fn a_core_module_is_refused_with_the_way_to_a_component() {
    let files = Files::new();
    let file = files.write("mine.wasm", module(LEAST));
    let run = policy(["check", file.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("conductor policy build"), "{run:?}");
}

#[test]
fn unreadable_policies_and_parameters_are_usage_errors() {
    let run = policy(["check", "no-such.wasm"]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("cache-aware") && run.stdout.is_empty(),
        "{run:?}"
    );
    assert_eq!(policy(["check", "round-robin", "--params", "[1]"]).code, 2);
    assert_eq!(policy(["check", "round-robin", "--params", "{"]).code, 2);
}

#[test]
fn parameters_that_are_refused_are_shown_where_the_configuration_has_them() {
    let files = Files::new();
    let file = files.write("mine.wasm", component(REFUSES));
    let config = files.write(
        "conductor.toml",
        "policy-dir = \".\"\n[policies.mine]\nparams = { weight = \"much\" }\n[[pools.main.workers]]\nurl = \"http://a:1\"\n\
         [[routes]]\npool = \"main\"\npolicy = \"mine\"\n",
    );
    let (file, config) = (file.to_str().unwrap(), config.to_str().unwrap());
    let run = policy(["check", file, "--config", config, "--json"]);
    assert_eq!(
        (run.code, findings(&run)),
        (1, vec!["settings-refused".to_owned()])
    );
    let finding = &run.json()["findings"][0];
    assert_eq!(
        (&finding["line"], &finding["column"]),
        (&Value::from(3), &Value::from(10))
    );
    assert!(
        finding["message"]
            .as_str()
            .unwrap()
            .contains("weight must be a number")
    );
    let text = policy(["check", file, "--config", config]);
    assert!(text.stdout.contains("conductor.toml:3:10: "), "{text:?}");
}

#[test]
fn a_component_may_be_checked_before_it_lies_in_the_policy_folder() {
    const POOL: &str = "policy-dir = \"policies.d\"\n[[pools.main.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"main\"\n";
    let files = Files::new();
    let file = files.write("built/mine.wasm", component(LEAST));
    let named = files.write("named.toml", format!("{POOL}policy = \"mine\"\n"));
    let silent = files.write("silent.toml", POOL);
    for config in [named, silent] {
        let run = policy([
            "check",
            file.to_str().unwrap(),
            "--config",
            config.to_str().unwrap(),
        ]);
        assert_eq!(run.code, 0, "{run:?}");
    }
}

#[test]
fn a_broken_configuration_is_reported_instead() {
    let files = Files::new();
    let file = files.write("mine.wasm", component(LEAST));
    let config = files.write(
        "conductor.toml",
        "[policies.mine]\npath = \"mine.wasm\"\nlimit = 1\n",
    );
    let args = [
        "check",
        file.to_str().unwrap(),
        "--config",
        config.to_str().unwrap(),
        "--json",
    ];
    let run = policy(args);
    assert_eq!(run.code, 1);
    assert!(findings(&run).contains(&"unknown-key".to_owned()), "{run:?}");
}

#[test]
fn events_and_ticks_are_tried_too_and_absurd_ones() {
    let good = checked(LISTENER);
    assert_eq!(good.code, 0, "{good:?}");
    assert_eq!(findings(&good), [""; 0]);
    let checks = good.json()["listener-checks"].as_array().unwrap().clone();
    assert_eq!(checks.len(), 4);
    assert!(checks.iter().all(|check| check["fault"].is_null()), "{checks:?}");
    // Bears no number that is not known.
    let trap = "(f64.eq (local.get $number) (f64.const 666))";
    let odd = checked(&LISTENER.replace(trap, "(f64.ne (local.get $number) (local.get $number))"));
    assert_eq!(
        (odd.code, findings(&odd)),
        (1, vec!["events-failed".to_owned()]),
        "{odd:?}"
    );
}

/// Instructions that answer with the verdict of that number, after which these store what belongs to it.
fn answering(verdict: u32, more: &str) -> String {
    deciding(&format!(
        "(drop (call $route (i32.const 0) (f64.const 0))) (i64.store (i32.const 1024) (i64.const {verdict})) {more} (i32.const 1024)"
    ))
}

/// Checks that the check fails with that finding, unless that verdict is allowed.
#[track_caller]
fn check_idle(case: &str, code: &str, allow: &str) {
    let files = Files::new();
    let file = files.write("mine.wasm", component(case));
    let file = file.to_str().unwrap();
    let run = policy(["check", file, "--json"]);
    assert_eq!((run.code, findings(&run)), (1, vec![code.to_owned()]), "{run:?}");
    assert!(run.stdout.contains("idle-one"), "{run:?}");
    let run = policy(["build", file]);
    assert_eq!(run.code, 1, "{run:?}");
    for command in ["check", "build"] {
        let run = policy([command, file, "--allow", allow]);
        assert_eq!(run.code, 0, "{run:?}");
    }
}

#[test]
fn a_policy_that_turns_requests_of_an_idle_fleet_away_fails_unless_that_is_allowed() {
    let reject = "(i32.store (i32.const 1032) (i32.const 429)) (i32.store (i32.const 1036) (i32.const 1500))
         (i32.store (i32.const 1040) (i32.const 16)) (i32.store (i32.const 1044) (i32.const 11))";
    check_idle(&answering(2, reject), "rejects-idle", "reject");
    check_idle(&answering(3, ""), "passes-idle", "pass");
}

#[test]
fn a_policy_that_holds_requests_of_an_idle_fleet_is_warned_of() {
    let hold = "(f64.store (i32.const 1032) (f64.const 1)) (i32.store (i32.const 1040) (i32.const 40))";
    check_warning(&answering(1, hold), "holds-idle");
}

#[test]
fn a_scorer_without_an_opinion_passes() {
    for name in ["tier-weight", "lora-affinity"] {
        let run = policy(["check", name, "--json"]);
        assert_eq!((run.code, findings(&run)), (0, vec![]), "{run:?}");
    }
}
