//! The binary as it is typed: what is checked, what is run, and with which exit code it ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use harness::Fleet;
use serde_json::Value;
use tempfile::TempDir;

/// Runs the binary in a folder, away from this process's environment variables that it reads.
fn conductor(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conductor"))
        .current_dir(folder)
        .env_remove("CONDUCTOR_CONFIG_PATH")
        .env_remove("ADMIN_API_KEY")
        .env("LANG", "C.UTF-8")
        .env_remove("LC_ALL")
        .args(args)
        .output()
        .unwrap()
}

/// Runs the command while this process serves.
async fn conductor_beside(folder: &TempDir, args: &[&str]) -> Output {
    let (folder, args) = (folder.path().to_owned(), args.join(" "));
    let run = move || conductor(&folder, &args.split(' ').collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder_with(config: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("conductor.toml"), config).unwrap();
    folder
}

#[test]
fn bare_conductor_uses_the_file_of_the_working_directory_and_logs_it() {
    let folder = folder_with(b"[server]\nlistne = 1\n");
    for args in [&[][..], &["serve"], &["--log-level", "debug"]] {
        let run = conductor(folder.path(), args);
        let printed = text(&run.stderr);
        assert!(printed.contains("serving `conductor.toml`"), "{printed}");
        assert!(printed.contains("unknown-key"), "{printed}");
        assert_eq!(run.status.code(), Some(1));
    }
}

#[test]
fn serve_without_anything_to_serve_is_a_mistake_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = conductor(folder.path(), &["serve"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("nothing to serve"), "{run:?}");
}

#[test]
fn bare_conductor_runs_the_demo_where_there_is_no_file_and_logs_it() {
    let folder = tempfile::tempdir().unwrap();
    // The demo ends before it listens: it finds no place for its files.
    let run = Command::new(env!("CARGO_BIN_EXE_conductor"))
        .current_dir(folder.path())
        .env_remove("CONDUCTOR_CONFIG_PATH")
        .env("TMPDIR", "/nowhere")
        .output()
        .unwrap();
    let printed = text(&run.stderr);
    assert!(
        printed.contains("running the demo") && printed.contains("no `conductor.toml`"),
        "{printed}"
    );
    assert!(printed.contains("make a folder for the demo"), "{printed}");
}

#[test]
fn a_check_ends_with_0_1_or_2() {
    let good = folder_with(b"[[pools.a.workers]]\nurl = \"http://a:1\"\n");
    assert_eq!(conductor(good.path(), &["check"]).status.code(), Some(0));
    let bad = folder_with(b"[server]\nlisten = \"\xff\"\n");
    let run = conductor(bad.path(), &["check", "conductor.toml"]);
    assert_eq!(run.status.code(), Some(1));
    let printed = text(&run.stdout);
    assert!(
        printed.contains("not-utf8") && printed.contains("conductor.toml:2:11"),
        "{printed}"
    );
    assert!(
        !printed.contains('\u{1b}'),
        "no colours but on terminals: {printed}"
    );
    let none = tempfile::tempdir().unwrap();
    assert_eq!(conductor(none.path(), &["check"]).status.code(), Some(2));
}

#[tokio::test]
async fn a_live_check_of_a_file_ends_with_0_while_workers_answer_and_with_1_when_one_does_not() {
    let fleet = Fleet::start(1, |_, config| config.publish_events = false)
        .await
        .unwrap();
    let url = fleet.engines[0].url();
    let folder = folder_with(format!("[[pools.chat.workers]]\nname = \"w0\"\nurl = \"{url}\"\n").as_bytes());
    let run = conductor_beside(&folder, &["check", "--live", "conductor.toml"]).await;
    let printed = text(&run.stdout);
    assert_eq!(run.status.code(), Some(0), "warnings are no failure: {printed}");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "conductor.toml: valid",
            "",
            "pool chat",
            "---------",
            &*format!("w0 {url} (mixed)")
        ]
    );
    for line in [
        "  √ models: serves `mock`",
        "  ‼ kv-events: publishes none: policies see no cached prefixes there",
        "  √ version: 0.32.0",
    ] {
        assert!(lines.contains(&line), "{line}\n{printed}");
    }
    fleet.engines[0].faults().refuse_connections().await.unwrap();
    let run = conductor_beside(&folder, &["check", "--live"]).await;
    let printed = text(&run.stdout);
    assert_eq!(run.status.code(), Some(1), "{printed}");
    assert!(printed.contains("  × reachable: "), "{printed}");
    assert!(
        printed.ends_with("some checks failed: 0 passed, 0 warned, 1 failed\n"),
        "{printed}"
    );
}

#[tokio::test]
async fn a_live_check_takes_quick_flags_and_prints_json() {
    let fleet = Fleet::start(1, |_, _| {}).await.unwrap();
    let (folder, url) = (tempfile::tempdir().unwrap(), fleet.engines[0].url());
    let run = conductor_beside(
        &folder,
        &["check", "--live", "--output", "json", "--worker", &url],
    )
    .await;
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["problems"], serde_json::json!([]));
    let live = &report["live"];
    assert_eq!(
        (&live["failed"], &live["warned"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    let checks = live["pools"][0]["workers"][0]["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["result"] == "pass"), "{report}");
}

#[test]
fn mistakes_of_flags_have_no_line_in_json_and_those_of_a_file_have_one() {
    let folder = folder_with(b"[[pools.a.workers]]\nurl = \"http://127.0.0.1:1\"\nweihgt = 2\n");
    let flags = ["--worker", "http://127.0.0.1:1", "--policy", "no-such-policy"];
    for (more, has_line) in [(&flags[..], false), (&["conductor.toml"], true)] {
        let args = [&["check", "--output", "json"], more].concat();
        let run = conductor(folder.path(), &args);
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        let problems: Value = serde_json::from_slice(&run.stdout).unwrap();
        let problem = &problems[0];
        assert!(
            problem["code"].is_string() && problem["message"].is_string(),
            "{problems}"
        );
        assert_eq!(problem["line"].is_u64(), has_line, "{problems}");
        assert_eq!(problem["column"].is_u64(), has_line, "{problems}");
    }
}

#[test]
fn a_file_with_errors_is_not_checked_live() {
    let folder = folder_with(b"[[pools.a.workers]]\nurl = \"http://127.0.0.1:1\"\nweihgt = 2\n");
    let run = conductor(folder.path(), &["check", "--live"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        text(&run.stdout).contains("the workers are not checked"),
        "{run:?}"
    );
}

#[tokio::test]
async fn init_writes_a_file_for_its_workers_that_the_check_accepts() {
    let fleet = Fleet::start(2, |_, _| {}).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (fleet.engines[0].url(), fleet.engines[1].url());
    let init = ["init", "--worker", &one, "--worker", &other];
    let run = conductor_beside(&folder, &init).await;
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let file = fs::read_to_string(folder.path().join("conductor.toml")).unwrap();
    assert!(file.contains("serves mock; KV events at tcp://"), "{file}");
    let checked = conductor_beside(&folder, &["check", "--live"]).await;
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let again = conductor_beside(&folder, &init).await;
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(text(&again.stderr).contains("--force"), "{again:?}");
    fleet.engines[1].faults().refuse_connections().await.unwrap();
    let forced = conductor_beside(&folder, &[&init[..], &["--force"]].concat()).await;
    assert_eq!(forced.status.code(), Some(1), "{forced:?}");
    assert!(text(&forced.stderr).contains("not reached"), "{forced:?}");
    assert!(
        fs::read_to_string(folder.path().join("conductor.toml"))
            .unwrap()
            .contains(&*other)
    );
}

/// Runs `conductor import` with words, and checks its output. Returns the TOML and the warnings.
#[track_caller]
fn imported(folder: &TempDir, words: &[&str]) -> (String, String) {
    let run = conductor(folder.path(), &[&["import", "--from"], words].concat());
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    fs::write(folder.path().join("imported.toml"), &run.stdout).unwrap();
    let checked = conductor(folder.path(), &["check", "imported.toml"]);
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{}\n{}",
        text(&checked.stdout),
        text(&run.stdout)
    );
    (text(&run.stdout), text(&run.stderr))
}

#[test]
fn command_lines_of_every_router_are_imported_and_pass_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let vllm =
        "vllm-router -- --worker-urls http://a:1 http://b:1 --policy cache_aware --cache-threshold 0.5";
    let (toml, notes) = imported(&folder, &vllm.split(' ').collect::<Vec<_>>());
    assert!(
        toml.contains("policy = \"ttft-queue\"") && notes.contains("--cache-threshold"),
        "{toml}{notes}"
    );
    for line in [
        "smg -- python -m sglang_router.launch_router --pd-disaggregation --prefill http://p:1 --decode http://d:1",
        "dynamo -- --http-port 8000 --router-mode kv",
        "production-stack -- --static-backends http://a:1,http://b:1 --static-models m,n --routing-logic session",
        "mooncake -- --prefiller_hosts p --prefiller_ports 1 --decoder_hosts d --decoder_ports 2",
    ] {
        let (toml, _) = imported(&folder, &line.split(' ').collect::<Vec<_>>());
        assert!(toml.contains("[[routes]]"), "{toml}");
    }
    let picker = "plugins:\n- type: prefix-cache-scorer\n- type: queue-scorer\n- type: kv-cache-utilization-scorer\n\
                  - type: lora-affinity-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n\
                  \x20 - pluginRef: prefix-cache-scorer\n    weight: 3\n  - pluginRef: queue-scorer\n\
                  \x20 - pluginRef: kv-cache-utilization-scorer\n  - pluginRef: lora-affinity-scorer\n";
    fs::write(folder.path().join("epp.yaml"), picker).unwrap();
    let (toml, notes) = imported(&folder, &["llm-d", "epp.yaml"]);
    assert!(
        toml.contains("tier-weight") && notes.contains("names no workers"),
        "{toml}{notes}"
    );
}

#[test]
fn a_value_that_is_out_of_range_is_printed_and_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let line = "import --from smg -- --worker-urls http://a:1 --max-concurrent-requests 0";
    let run = conductor(folder.path(), &line.split(' ').collect::<Vec<_>>());
    let (toml, errors) = (text(&run.stdout), text(&run.stderr));
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let place = toml.lines().position(|line| line == "requests = 0").unwrap() + 1;
    let error = format!("error: line {place} of the printed file: ");
    assert!(errors.contains(&error), "{errors}{toml}");
}

#[test]
fn flags_without_a_router_are_no_file_to_import() {
    let folder = tempfile::tempdir().unwrap();
    let run = conductor(folder.path(), &["import", "--", "--worker-urls", "http://a:1"]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(text(&run.stderr).contains("--from"), "{run:?}");
}

#[test]
fn the_reference_of_commands_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operation/command-reference.md");
    let written = conductor::cli::reference();
    if std::env::var_os("UPDATE_COMMANDS").is_some() {
        fs::write(&path, &written).unwrap();
    }
    let present = fs::read_to_string(&path).unwrap();
    assert!(
        present == written,
        "run with UPDATE_COMMANDS=1 to write {}",
        path.display()
    );
}

#[test]
fn the_program_prints_its_build_its_completions_and_its_manual() {
    let folder = tempfile::tempdir().unwrap();
    let version = conductor(folder.path(), &["version", "--verbose"]);
    let version = text(&version.stdout);
    for name in ["commit", "target", "features", "compiler  rustc "] {
        assert!(version.contains(name), "{name}: {version}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&conductor(folder.path(), &["completions", shell]).stdout);
        assert!(
            script.contains("requests") && script.contains("follow"),
            "{shell}"
        );
    }
    let run = conductor(folder.path(), &["man-pages", "man"]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    for page in ["conductor.1", "conductor-status.1", "conductor-policy-deploy.1"] {
        assert!(folder.path().join("man").join(page).is_file(), "{page}");
    }
}

#[test]
fn mistakes_of_flags_have_no_place_in_a_text_that_was_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--worker", "http://a:1", "--policy", "no-such-policy"];
    for command in [&["check"][..], &["serve"]] {
        let run = conductor(folder.path(), &[command, &flags[..]].concat());
        let printed = text(&run.stdout) + &text(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("error: ") && printed.contains("no-such-policy"),
            "{printed}"
        );
        assert!(!printed.contains("-->") && !printed.contains(":2:"), "{printed}");
    }
}

#[test]
fn a_short_output_without_a_reader_is_no_failure_and_one_without_room_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("written.toml");
    let file = file.to_str().unwrap();
    fs::write(folder.path().join("prompt"), "[1, 2, 3, 4]").unwrap();
    let run = |args: &[&str], output: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
        let prompt = fs::File::open(folder.path().join("prompt")).unwrap();
        command
            .args(args)
            .stdin(prompt)
            .stdout(output)
            .stderr(Stdio::piped());
        command.output().unwrap()
    };
    let hashes = ["block-hashes", "--scheme", "rfc1527", "--block-size", "1"];
    let init = [
        "init",
        "--worker",
        "http://127.0.0.1:1",
        "--force",
        "--file",
        file,
    ];
    // The worker of `init` is away, which is a failure after the file is written.
    for (args, expected) in [(&["client-key"][..], 0), (&hashes[..], 0), (&init[..], 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = run(args, writer.into());
        assert_eq!(closed.status.code(), Some(expected), "{args:?} {closed:?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let full = run(args, full.into());
        assert_eq!(full.status.code(), Some(1), "{args:?} {full:?}");
        assert!(text(&full.stderr).contains("No space left"), "{args:?} {full:?}");
    }
}
