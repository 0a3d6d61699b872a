//! Tests of policies that describe their parameters.

use harness::ProgramRun;
use serde_json::{Value, json};

use crate::binary::{findings, policy};
use crate::components::{Files, LEAST, PARAMETERS, component};

/// Runs the command on a policy with these definitions, and a configuration that gives it `params`, if any.
fn run_with(command: &str, definitions: &str, params: &str) -> ProgramRun {
    let files = Files::new();
    let file = files.write("mine.wasm", component(&format!("{LEAST}{definitions}")));
    let config = files.write(
        "conductor.toml",
        format!(
            "policy-dir = \".\"\n[policies.mine]\n{params}\n[[pools.main.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"main\"\n\
             policy = \"mine\"\n"
        ),
    );
    let (file, config) = (file.to_str().unwrap(), config.to_str().unwrap());
    policy([command, file, "--config", config, "--json"])
}

/// Returns line, column and message of each finding.
fn findings_of(run: &ProgramRun) -> Vec<(Value, Value, String)> {
    let findings = run.json()["findings"].as_array().cloned().unwrap();
    let findings_of = |finding: &Value| {
        let message = finding["message"].as_str().unwrap();
        (
            finding["line"].clone(),
            finding["column"].clone(),
            message.to_owned(),
        )
    };
    findings.iter().map(findings_of).collect()
}

#[test]
fn every_parameter_that_is_wrong_is_pointed_at_in_one_run() {
    let run = run_with("check", PARAMETERS, "params = { wieght = 1, weight = 11 }");
    assert_eq!(run.code, 1, "{run:?}");
    let at = |column: u32, message: &str| (json!(3), json!(column), format!("policy `mine`: {message}"));
    let expected = [
        at(10, "the parameter `zone` must be given: a text"),
        at(12, "unknown parameter `wieght`"),
        at(33, "`weight` must be a number from 0 to 10 (x), not 11"),
    ];
    assert_eq!(findings_of(&run), expected);
    let good = run_with("check", PARAMETERS, "params = { zone = \"a\", weight = 10.0 }");
    assert_eq!((good.code, findings(&good)), (0, vec![]), "{good:?}");
}

#[test]
fn parameters_are_shown_even_where_one_must_still_be_given() {
    let run = run_with("inspect", PARAMETERS, "");
    assert_eq!(findings(&run), ["refused-param"]);
    let expected = json!([
        {"name": "weight", "kind": "number", "default": 1.5, "unit": "x", "least": 0.0, "most": 10.0, "about": "What it is worth."},
        {"name": "zone", "kind": "text", "default": null, "about": "Where it is."},
    ]);
    assert_eq!(run.json()["parameters"], expected);
}

#[test]
fn the_parameters_of_a_builtin_are_a_table() {
    let run = policy(["inspect", "cache-aware"]);
    assert_eq!(run.code, 0, "{run:?}");
    let row = "request-tokens  number   128      tokens  0 to 1000000  Fixed cost of a request, besides its prompt.";
    assert!(run.stdout.lines().any(|line| line == row), "{}", run.stdout);
    assert!(
        policy(["inspect", "round-robin"])
            .stdout
            .contains("params     none")
    );
}

#[test]
fn a_policy_that_does_not_declare_its_parameters_takes_any() {
    let run = run_with("check", "", "params = { anything = [1] }");
    assert_eq!((run.code, findings(&run)), (0, vec![]), "{run:?}");
    assert!(run_with("inspect", "", "").json().get("parameters").is_none());
}

#[test]
fn unreadable_parameters_are_an_error_of_the_component() {
    for (definitions, message) in [
        (
            PARAMETERS.replace("1.5x", "1,5x"),
            "the default of `weight` is not JSON: `1,5`",
        ),
        (
            PARAMETERS.replace("1.5x", "115x"),
            "its own default does not fit: `weight` must be a number from 0 to 10 (x), not 115",
        ),
        (
            PARAMETERS.replace("(i32.const 448))", "unreachable)"),
            "failed to call `parameters` of the policy",
        ),
        (
            PARAMETERS.replace("(i32.const 448))", "(loop $l (br $l)) unreachable)"),
            "failed to call `parameters` of the policy",
        ),
    ] {
        let run = run_with("check", &definitions, "params = { zone = \"a\" }");
        assert_eq!(
            (run.code, findings(&run)),
            (1, vec!["not-loadable".to_owned()]),
            "{run:?}"
        );
        assert!(findings_of(&run)[0].2.contains(message), "{run:?}");
    }
}

#[test]
fn every_policy_that_ships_documents_its_parameters() {
    for name in conductor::builtin::names() {
        let run = policy(["inspect", name, "--json"]);
        let report = run.json();
        let parameters = report["parameters"]
            .as_array()
            .unwrap_or_else(|| panic!("{name}"));
        for parameter in parameters {
            let about = parameter["about"].as_str().unwrap();
            assert!(
                about.ends_with('.') && !parameter["default"].is_null(),
                "{name}: {parameter}"
            );
            let kind = parameter["kind"].as_str().unwrap();
            let is_number = matches!(kind, "number" | "integer");
            assert!(
                !is_number || parameter["least"].is_number(),
                "{name}: {parameter}"
            );
        }
    }
}
