//! Deployment of a policy to a running router: deploy, promote, retract, and the state after a restart.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[cfg(feature = "nats")]
mod in_fleet;
mod refusing_router;

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{Fleet, ProgramRun, TestRouter, sends_to};
use serde_json::{Value, json};

/// Runs `conductor policy ARGS` beside the router, which lives in this process.
async fn policy(router: &TestRouter, args: &[&str]) -> ProgramRun {
    policy_at(router.admin.base(), args).await
}

async fn policy_at(admin: &str, args: &[&str]) -> ProgramRun {
    run_policy(&[args, &["--admin", admin]].concat()).await
}

async fn run_policy(args: &[&str]) -> ProgramRun {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.arg("policy").args(args);
    command.env_remove("ADMIN_API_KEY").env_remove("CONDUCTOR_ADMIN");
    ProgramRun::beside(command).await
}

async fn fleet() -> Fleet {
    let fleet = Fleet::start(2, |number, config| {
        config.seed = number as u64;
        config.time_scale = 100.0;
    });
    fleet.await.unwrap()
}

/// Returns a configuration of one route, with these lines.
fn config(fleet: &Fleet, server: &str, policies: &str, route: &str) -> String {
    format!(
        "{server}\n{policies}\n{}[[routes]]\npool = \"chat\"\n{route}\n",
        fleet.workers_toml()
    )
}

const ROUND_ROBIN: &str = "policy = \"round-robin\"";

/// Starts a router with one route, which `round-robin` decides.
async fn round_robin(fleet: &Fleet) -> TestRouter {
    let config = config(fleet, "", "", ROUND_ROBIN);
    TestRouter::start(&config).await.unwrap()
}

/// Returns the policy in the answer to a request.
async fn decided_by(router: &TestRouter) -> String {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({ "model": "mock", "messages": messages, "max_tokens": 1 });
    let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let policy = answer.header("x-conductor-policy").to_owned();
    policy.split('@').next().unwrap().to_owned()
}

async fn page(router: &TestRouter) -> Value {
    router.admin("/admin/policies").await.unwrap()
}

async fn change(router: &TestRouter, action: &str, body: &Value) -> (u16, Value) {
    let path = format!("/admin/policies/mine/{action}");
    let answer = router.admin.post(&path, body).await.unwrap();
    (answer.status.as_u16(), answer.json().unwrap())
}

/// Returns a component in a file of its own.
fn component(folder: &Path, version: usize) -> String {
    let file = folder.join("mine.wasm");
    fs::write(&file, sends_to(0, version).unwrap()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_policy_is_deployed_as_a_shadow_then_a_canary_then_promoted_and_retracted() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let router = round_robin(&fleet).await;
    let file = component(folder.path(), 1);

    let run = policy(&router, &["deploy", &file, "--shadow", "--sample", "1"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("shadow = [\"mine\"]"), "{run:?}");
    assert!(run.stdout.contains("policy-state"), "{run:?}");
    assert!(router.path("policies/mine.wasm").is_file());
    assert_eq!(page(&router).await["routes"][0]["shadows"], json!(["mine"]));
    assert_eq!(decided_by(&router).await, "round-robin");

    let run = policy(&router, &["deploy", &file, "--canary", "40.5"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(
        page(&router).await["routes"][0]["canaries"],
        json!({ "mine": 0.405 })
    );

    let run = policy(&router, &["promote", "mine"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("policy = \"mine\""), "{run:?}");
    let shown = page(&router).await;
    assert_eq!(
        (&shown["routes"][0]["policy"], &shown["overrides"][0]["toml"]),
        (&json!("mine"), &json!("policy = \"mine\""))
    );
    assert_eq!(decided_by(&router).await, "mine");

    // New bytes of what decides would decide at once.
    let run = policy(&router, &["deploy", &file, "--canary", "5"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("--name"), "{run:?}");

    let run = policy(&router, &["retract", "mine"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(page(&router).await["overrides"], json!([]));
    assert_eq!(decided_by(&router).await, "round-robin");
}

#[tokio::test]
async fn a_policy_that_fails_its_check_is_not_copied() {
    let fleet = fleet().await;
    let router = round_robin(&fleet).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.wasm");
    fs::write(&file, "no component").unwrap();
    let run = policy(&router, &["deploy", file.to_str().unwrap(), "--shadow"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(!router.path("policies/mine.wasm").exists());
    let good = component(folder.path(), 1);
    let run = policy(&router, &["deploy", &good, "--shadow", "--name", "random"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("builtin"), "{run:?}");
}

#[tokio::test]
async fn the_configuration_of_a_deployment_names_the_router() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let router = round_robin(&fleet).await;
    let file = component(folder.path(), 1);
    let admin = router.admin.base().strip_prefix("http://").unwrap();
    let server = format!("policy-dir = \".\"\n[server]\nadmin-listen = \"{admin}\"");
    let toml = folder.path().join("conductor.toml");
    fs::write(&toml, config(&fleet, &server, "", ROUND_ROBIN)).unwrap();
    let run = run_policy(&["deploy", &file, "--shadow", "--config", toml.to_str().unwrap()]).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(page(&router).await["routes"][0]["shadows"], json!(["mine"]));
}

#[tokio::test]
async fn a_configuration_without_a_policy_folder_takes_no_new_policy() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let file = component(folder.path(), 1);
    let toml = folder.path().join("conductor.toml");
    fs::write(&toml, config(&fleet, "", "", ROUND_ROBIN)).unwrap();
    let run = run_policy(&["deploy", &file, "--shadow", "--config", toml.to_str().unwrap()]).await;
    assert_eq!(run.code, 2, "{run:?}");
    let refused = format!("`{}` has no policy folder; set `policy-dir`", toml.display());
    assert!(run.stderr.contains(&refused), "{run:?}");
}

#[tokio::test]
async fn without_a_router_the_lines_for_the_file_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = component(folder.path(), 1);
    let admin = format!("http://{}", harness::refused_address().unwrap());
    let run = policy_at(&admin, &["deploy", &file, "--canary", "5"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("\"mine\" = 5"), "{run:?}");
    assert!(run.stderr.contains("--admin"), "{run:?}");
}

#[tokio::test]
async fn changes_that_cannot_be_are_refused_and_change_nothing() {
    let fleet = fleet().await;
    let router = round_robin(&fleet).await;
    let before = page(&router).await["routes"].clone();
    let codes = [
        ("canary", json!({ "percent": 5 }), 404, "policy_not_found"),
        ("canary", json!({ "percent": 500 }), 400, "percent_invalid"),
        ("shadow", json!({ "sample": 2 }), 400, "sample_invalid"),
        ("promote", json!({ "rute": 1 }), 400, "invalid_json"),
    ];
    for (action, body, status, code) in codes {
        let (found, answer) = change(&router, action, &body).await;
        assert_eq!(
            (found, &answer["error"]["code"]),
            (status, &json!(code)),
            "{answer}"
        );
    }
    router.save_policy("mine", b"no component").unwrap();
    let (status, answer) = change(&router, "canary", &json!({ "percent": 5 })).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (409, &json!("not_applicable")),
        "{answer}"
    );
    let shown = page(&router).await;
    assert_eq!((&shown["routes"], &shown["overrides"]), (&before, &json!([])));
    assert_eq!(decided_by(&router).await, "round-robin");
}

#[tokio::test]
async fn a_deployment_that_is_refused_leaves_the_bytes_of_the_canary() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let split = format!("{ROUND_ROBIN}\nsplit = {{ round-robin = 50, mine = 10, random = 40 }}");
    let router = round_robin(&fleet).await;
    let bytes = sends_to(0, 1).unwrap();
    router.save_policy("mine", &bytes).unwrap();
    router.save_config(&config(&fleet, "", "", &split)).unwrap();
    let before = router
        .admin_shows("/admin/policies", "the canary is there", |page| {
            page["routes"][0]["canaries"]["mine"] == 0.1
        })
        .await;
    let (file, none) = (component(folder.path(), 2), router.path("policies/new.wasm"));
    // The last two have shares that are too large together.
    let refused: [(&[&str], i32); 5] = [
        (&["--canary", "150"], 2),
        (&["--canary", "nan"], 2),
        (&["--canary", "10", "--route", "9"], 1),
        (&["--canary", "60"], 1),
        (&["--canary", "100"], 1),
    ];
    for (flags, code) in refused {
        for name in ["mine", "new"] {
            let mut args = vec!["deploy", file.as_str(), "--name", name];
            args.extend(flags);
            let run = policy(&router, &args).await;
            assert_eq!(run.code, code, "{run:?}");
            assert!(
                !run.stderr.contains("waiting until"),
                "it was never there: {run:?}"
            );
            let kept = fs::read(router.path("policies/mine.wasm")).unwrap();
            assert!(kept == bytes && !none.exists(), "{run:?}");
        }
    }
    assert_eq!(page(&router).await["routes"], before["routes"]);
}

#[tokio::test]
async fn without_the_admin_key_nothing_is_deployed() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let key = folder.path().join("key");
    fs::write(&key, "secret").unwrap();
    let server = format!("admin-api-key = {{ file = \"{}\" }}", key.display());
    let router = TestRouter::start(&config(&fleet, &server, "", ROUND_ROBIN))
        .await
        .unwrap();
    let file = component(folder.path(), 1);
    let run = policy(&router, &["deploy", &file, "--shadow"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("--admin-key-file"), "{run:?}");
    assert!(!router.path("policies/mine.wasm").exists());
    let key = key.to_str().unwrap();
    let run = policy(&router, &["deploy", &file, "--shadow", "--admin-key-file", key]).await;
    assert_eq!(run.code, 0, "{run:?}");
}

#[tokio::test]
async fn a_shadow_of_a_rolled_back_policy_runs_and_promotes_no_other_version() {
    let fleet = fleet().await;
    let router = round_robin(&fleet).await;
    let version = |page: &Value, name: &str| {
        let mut policies = page["policies"].as_array().unwrap().iter();
        policies
            .find(|policy| policy["name"] == name)
            .map(|policy| policy["version"].clone())
    };
    let mut seen = Vec::new();
    for number in [1, 2] {
        router.save_policy("mine", &sends_to(0, number).unwrap()).unwrap();
        let page = router
            .admin_shows("/admin/policies", "the version is active", |page| {
                let version = version(page, "mine").unwrap_or_default();
                version.is_string() && !seen.contains(&version)
            })
            .await;
        seen.push(version(&page, "mine").unwrap());
    }
    assert_eq!(change(&router, "shadow", &json!({})).await.0, 200);
    let shown = page(&router).await;
    assert_eq!(version(&shown, "mine (shadow)"), Some(seen[1].clone()));

    let run = policy(&router, &["rollback", "mine"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    let shown = page(&router).await;
    assert_eq!(version(&shown, "mine"), Some(seen[0].clone()));
    assert_eq!(version(&shown, "mine (shadow)"), Some(Value::Null));
    let trials = router.admin("/admin/trials").await.unwrap();
    assert_eq!(trials["shadows"], json!([]));
    let (status, answer) = change(&router, "promote", &json!({})).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (409, &json!("version_not_tried")),
        "{answer}"
    );

    let run = policy(&router, &["resume", "mine"]).await;
    assert_eq!(run.code, 0, "{run:?}");
    router
        .admin_shows("/admin/policies", "the shadow runs again", |page| {
            version(page, "mine (shadow)") == Some(seen[1].clone())
        })
        .await;
    assert_eq!(change(&router, "promote", &json!({})).await.0, 200);
    assert_eq!(decided_by(&router).await, "mine");
}

#[tokio::test]
async fn a_promotion_survives_a_restart_and_ends_where_the_file_changes_the_route() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let file = component(folder.path(), 1);
    let server = format!("policy-state = \"{}\"", folder.path().join("state").display());
    let table = format!("[policies.mine]\npath = \"{file}\"");
    let split = format!("{ROUND_ROBIN}\nsplit = {{ round-robin = 90, mine = 10 }}");
    let toml = config(&fleet, &server, &table, &split);
    let router = TestRouter::start(&toml).await.unwrap();
    let (status, answer) = change(&router, "promote", &json!({})).await;
    assert_eq!(
        (status, &answer["overrides"][0]["kept"]),
        (200, &json!(true)),
        "{answer}"
    );
    router.stop().await.unwrap();

    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(page(&router).await["routes"][0]["policy"], "mine");
    assert_eq!(page(&router).await["overrides"][0]["kept"], true);
    assert_eq!(decided_by(&router).await, "mine");

    // The same route, elsewhere in the file.
    router.save_config(&format!("# a line\n{toml}")).unwrap();
    router.admin.post("/admin/reload", &Value::Null).await.unwrap();
    assert_eq!(page(&router).await["routes"][0]["policy"], "mine");
    let other = config(&fleet, &server, &table, ROUND_ROBIN);
    router.save_config(&other).unwrap();
    router
        .admin_shows("/admin/policies", "the file counts again", |page| {
            page["routes"][0]["policy"] == "round-robin" && page["overrides"] == json!([])
        })
        .await;
    assert_eq!(decided_by(&router).await, "round-robin");
    router.stop().await.unwrap();
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(
        page(&router).await["routes"][0]["policy"],
        "round-robin",
        "it does not come back"
    );
}

/// Starts a router that promotes `mine`, then one with each of the files. Returns the policy that each has on its
/// route.
async fn policies_after_promotion(state: &Path, promoted: &str, files: &[&str]) -> Vec<Value> {
    let router = TestRouter::start(promoted).await.unwrap();
    let (status, answer) = change(&router, "promote", &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    router.stop().await.unwrap();
    assert!(state.join("routes.overrides").exists());
    let mut policies = Vec::new();
    for toml in files {
        let router = TestRouter::start(toml).await.unwrap();
        policies.push(page(&router).await["routes"][0]["policy"].clone());
        router.stop().await.unwrap();
    }
    policies
}

#[tokio::test]
async fn an_override_that_ends_at_a_start_does_not_come_back() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let (file, state) = (component(folder.path(), 1), folder.path().join("state"));
    let server = format!("policy-state = \"{}\"", state.display());
    let table = format!("[policies.mine]\npath = \"{file}\"");
    let split = format!("{ROUND_ROBIN}\nsplit = {{ round-robin = 90, mine = 10 }}");
    let toml = config(&fleet, &server, &table, &split);
    let edited = config(&fleet, &server, &table, "policy = \"random\"");
    let policies = policies_after_promotion(&state, &toml, &[&toml, &edited, &toml]).await;
    assert_eq!(policies, ["mine", "random", "round-robin"]);
}

#[tokio::test]
async fn an_override_whose_policy_is_unavailable_at_a_start_does_not_come_back() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let (file, state) = (component(folder.path(), 1), folder.path().join("state"));
    let server = format!("policy-state = \"{}\"", state.display());
    let table = format!("[policies.mine]\npath = \"{file}\"");
    let toml = config(&fleet, &server, &table, ROUND_ROBIN);
    let router = TestRouter::start(&toml).await.unwrap();
    let (status, answer) = change(&router, "shadow", &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    router.stop().await.unwrap();
    // The route is the same, and its policy is not there.
    let without = config(&fleet, &server, "", ROUND_ROBIN);
    let policies = policies_after_promotion(&state, &toml, &[&toml, &without, &toml]).await;
    assert_eq!(policies, ["mine", "round-robin", "round-robin"]);
}

#[tokio::test]
async fn an_invalid_file_of_overrides_is_put_aside_and_the_configuration_file_decides() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let file = component(folder.path(), 1);
    let state = folder.path().join("state");
    let server = format!("policy-state = \"{}\"", state.display());
    let table = format!("[policies.mine]\npath = \"{file}\"");
    let split = format!("{ROUND_ROBIN}\nsplit = {{ round-robin = 90, mine = 10 }}");
    let toml = config(&fleet, &server, &table, &split);
    let router = TestRouter::start(&toml).await.unwrap();
    let (status, answer) = change(&router, "canary", &json!({ "percent": 20 })).await;
    assert_eq!(status, 200, "{answer}");
    router.stop().await.unwrap();

    let saved = state.join("routes.overrides");
    let invalid = fs::read_to_string(&saved).unwrap().replace("2000", "4294967295");
    fs::write(&saved, &invalid).unwrap();
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(page(&router).await["overrides"], json!([]));
    let aside = fs::read_to_string(state.join("routes.overrides.damaged")).unwrap();
    assert!(aside == invalid && aside.contains("4294967295"), "{aside}");
    assert!(!saved.exists());
}

#[tokio::test]
async fn a_reload_without_the_folder_of_an_overridden_policy_is_refused_with_the_way_out() {
    let fleet = fleet().await;
    let router = round_robin(&fleet).await;
    router.save_policy("mine", &sends_to(0, 1).unwrap()).unwrap();
    let (status, answer) = change(&router, "shadow", &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let file = router.path("conductor.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("policy-dir = \"policies\"\n", "")).unwrap();
    let answer = router.admin.post("/admin/reload", &Value::Null).await.unwrap();
    let text = answer.text();
    assert!(
        text.contains("which a runtime override of route 1 names"),
        "{text}"
    );
    assert!(text.contains("conductor policy retract mine --route 1"), "{text}");

    let (status, answer) = change(&router, "retract", &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let answer = router.admin.post("/admin/reload", &Value::Null).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn a_rollback_survives_a_restart() {
    let (fleet, folder) = (fleet().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("mine.wasm");
    fs::write(&file, sends_to(0, 1).unwrap()).unwrap();
    let server = format!("policy-state = \"{}\"", folder.path().join("state").display());
    let table = format!("[policies.mine]\npath = \"{}\"", file.display());
    let toml = config(&fleet, &server, &table, "policy = \"mine\"");
    let router = TestRouter::start(&toml).await.unwrap();
    let mine = |page: &Value| {
        let policies = page["policies"].as_array().unwrap().iter();
        policies
            .clone()
            .find(|policy| policy["name"] == "mine")
            .unwrap()
            .clone()
    };
    let first = mine(&page(&router).await)["sha256"].clone();
    fs::write(&file, sends_to(1, 2).unwrap()).unwrap();
    let second = router
        .admin_shows("/admin/policies", "the new bytes decide", |page| {
            mine(page)["sha256"] != first
        })
        .await;
    let second = mine(&second)["sha256"].clone();
    let (status, answer) = change(&router, "rollback", &Value::Null).await;
    assert_eq!(
        (status, &answer["rollback_kept"]),
        (200, &json!(true)),
        "{answer}"
    );
    router.stop().await.unwrap();

    let router = TestRouter::start(&toml).await.unwrap();
    let shown = mine(&page(&router).await);
    assert_eq!(
        (&shown["sha256"], &shown["held_back"]),
        (&first, &json!([second])),
        "{shown}"
    );
    let (status, answer) = change(&router, "resume", &Value::Null).await;
    assert_eq!((status, &answer["sha256"]), (200, &second), "{answer}");
    router.stop().await.unwrap();
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(mine(&page(&router).await)["sha256"], second);
}
