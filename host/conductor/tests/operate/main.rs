//! The commands that show and change running routers, against routers in this process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod drain;
mod watch;

use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use harness::{Fleet, ProgramRun, TestRouter, eventually, route_all, sends_to};
use serde_json::{Value, json};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(args);
    command.env_remove("ADMIN_API_KEY").env_remove("CONDUCTOR_ADMIN");
    command
}

/// Runs the binary beside the routers, which live in this process.
async fn run(command: Command) -> ProgramRun {
    ProgramRun::beside(command).await
}

/// Runs a command at a router.
async fn at(router: &TestRouter, args: &[&str]) -> ProgramRun {
    let mut command = command(args);
    command.args(["--admin", router.admin.base()]);
    run(command).await
}

async fn fleet() -> Fleet {
    let fleet = Fleet::start(2, |number, config| {
        config.seed = number as u64;
        config.time_scale = 100.0;
    });
    fleet.await.unwrap()
}

async fn router(fleet: &Fleet) -> TestRouter {
    let toml = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    TestRouter::start(&toml).await.unwrap()
}

/// Sends a request.
async fn send(router: &TestRouter) {
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let body = json!({ "model": "mock", "messages": messages, "max_tokens": 1 });
    let answer = router.client.post("/v1/chat/completions", &body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Waits until the router has recorded the end of so many requests.
async fn recorded(router: &TestRouter, count: usize) {
    router
        .admin_shows("/admin/requests", "the requests have ended", |page| {
            let requests = page["requests"].as_array().unwrap();
            requests
                .iter()
                .filter(|request| request["outcome"] == "complete")
                .count()
                == count
        })
        .await;
}

#[tokio::test]
async fn the_fleet_is_shown_as_tables_and_as_json() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let status = at(&router, &["status"]).await.good();
    for part in ["ready", "conductor.toml", "2/2", "round-robin"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    assert!(
        !status.contains('\u{1b}'),
        "no colours but on terminals: {status}"
    );
    assert!(!status.contains("(calm)"), "{status}");
    let page = at(&router, &["status", "--output", "json"]).await.good_json();
    assert_eq!(page["pools"][0]["workers"].as_array().unwrap().len(), 2);
    assert_eq!(page["ready"], true, "{page}");

    let workers = at(&router, &["workers"]).await.good();
    assert_eq!(workers.lines().count(), 3, "{workers}");
    let workers = at(&router, &["workers", "--pool", "none"]).await.good();
    assert_eq!(workers, "none\n");
    let feeds = at(&router, &["feeds"]).await.good();
    assert!(feeds.contains("tcp://"), "{feeds}");
    let trials = at(&router, &["trials"]).await.good();
    assert_eq!(trials, "canaries\nnone\n\nshadows\nnone\n");
}

#[tokio::test]
async fn a_canary_is_listed_with_its_route() {
    let fleet = fleet().await;
    let toml = format!(
        "{}[[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\nsplit = {{ round-robin = 90, random = 10 }}\n",
        fleet.workers_toml()
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let page = at(&router, &["trials", "--json"]).await.good_json();
    assert_eq!(page["trials"][0]["route_number"], 1, "{page}");
    let route = page["trials"][0]["route"].as_str().unwrap();
    let trials = at(&router, &["trials"]).await.good();
    let canary = trials.lines().find(|line| line.contains("random")).unwrap();
    assert!(canary.trim_start().starts_with(route), "{trials}");
    assert!(canary.contains("10 %"), "{trials}");
}

#[tokio::test]
async fn live_commands_show_it_again_until_a_count() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let watched = at(
        &router,
        &["status", "--watch", "--interval", "0.1", "--count", "2"],
    )
    .await;
    assert_eq!(watched.good().matches("generation").count(), 2);
    let top = at(&router, &["top", "--count", "2"]).await.good();
    assert!(
        top.contains("ready, generation 1") && top.contains("hit ratio"),
        "{top}"
    );
    let events = at(&router, &["top", "--count", "1", "--json"]).await.good_json();
    assert_eq!(events["full"], true, "{events}");
}

/// Lines of a running command.
type OutputLines = Lines<BufReader<ChildStdout>>;

/// Reads lines up to one with this part, beside the routers. Returns whether there was one.
async fn read_until(mut lines: OutputLines, part: &'static str) -> (OutputLines, bool) {
    let read = move || {
        let found = lines.any(|line| line.is_ok_and(|line| line.contains(part)));
        (lines, found)
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

#[tokio::test]
async fn live_commands_report_that_their_router_is_gone() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let admin = router.admin.base().to_owned();
    let mut top = command(&["top", "--admin", &admin]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let (lines, ready) = read_until(lines, "ready, generation 1").await;
    assert!(ready, "it began");
    router.stop().await.unwrap();
    let lost = read_until(lines, "lost the event stream");
    let lost = tokio::time::timeout(Duration::from_secs(20), lost).await;
    // The end of `top` ends its lines.
    top.kill().unwrap();
    top.wait().unwrap();
    assert!(lost.unwrap().1);

    let once = ["status", "--watch", "--count", "1", "--admin", &admin];
    let watched = run(command(&once)).await;
    assert_eq!(watched.code, 1, "{watched:?}");
    let json = run(command(&[&once[..], &["--json"]].concat())).await;
    assert_eq!((json.code, &*json.stdout), (1, ""), "{json:?}");
    assert!(json.stderr.contains(&admin), "{json:?}");
}

#[tokio::test]
async fn several_routers_are_one_table_and_one_that_is_away_is_named() {
    let fleet = fleet().await;
    let (one, other) = (router(&fleet).await, router(&fleet).await);
    let both = format!("{},{}", one.admin.base(), other.admin.base());
    let mut workers = command(&["workers"]);
    workers.env("CONDUCTOR_ADMIN", &both);
    let workers = run(workers).await.good();
    assert_eq!(workers.lines().count(), 5, "{workers}");
    for router in [&one, &other] {
        let address = router.admin.base().trim_start_matches("http://");
        assert_eq!(workers.matches(address).count(), 2, "{workers}");
    }

    let away = other.admin.base().to_owned();
    other.stop().await.unwrap();
    let shown = at(&one, &["status", "--json", "--admin", &away]).await;
    assert_eq!(shown.code, 1, "{shown:?}");
    for part in [&*away, "refused", "admin-listen", "CONDUCTOR_ADMIN"] {
        assert!(shown.stderr.contains(part), "{part}: {shown:?}");
    }
    let pages: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(pages.as_array().unwrap().len(), 2, "{pages}");
    let text = at(&one, &["status", "--admin", &away]).await;
    assert!(text.stdout.contains("2/2"), "{text:?}");
}

#[tokio::test]
async fn requests_are_listed_followed_and_the_last_is_explained() {
    let fleet = fleet().await;
    let toml = format!(
        "[record]\nexplain-sample = 1.0\n{}{}",
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    let none = at(&router, &["explain", "--last"]).await;
    assert_eq!(none.code, 1, "{none:?}");
    assert!(none.stderr.contains("[record]"), "{none:?}");
    for _ in 0..2 {
        send(&router).await;
    }
    recorded(&router, 2).await;
    let open = at(&router, &["requests", "--follow", "--outcome", "open"]).await;
    assert_eq!(
        (open.code, open.stderr.contains("--follow prints")),
        (2, true),
        "{open:?}"
    );
    let many = at(&router, &["requests", "-n", "500"]).await;
    assert_eq!(many.code, 2, "{many:?}");
    let list = at(&router, &["requests"]).await.good();
    assert_eq!(list.lines().count(), 3, "{list}");
    let list = at(&router, &["requests", "--outcome", "unreachable"])
        .await
        .good();
    assert_eq!(list, "none\n");
    let followed = followed(&router, &["-n", "2"]).await;
    assert_eq!(followed.matches("complete").count(), 2, "{followed}");
    let row = self::followed(&router, &["-n", "1", "--json"]).await;
    let row: Value = serde_json::from_str(&row).unwrap();
    assert_eq!(row["outcome"], "complete", "{row}");
    assert!(row["seq"].as_u64() > Some(2), "it ended after the start: {row}");
    let explained = at(&router, &["explain", "--last"]).await.good();
    assert!(explained.contains("round-robin"), "{explained}");
}

/// Follows the requests of a router, which gets some until the command ends.
async fn followed(router: &TestRouter, args: &[&str]) -> String {
    run_of_follower(router, args).await.good()
}

async fn run_of_follower(router: &TestRouter, args: &[&str]) -> ProgramRun {
    let mut command = command(&["requests", "--follow", "--admin", router.admin.base()]);
    command.args(args);
    let mut followed = Box::pin(run(command));
    loop {
        tokio::select! {
            run = &mut followed => return run,
            () = tokio::time::sleep(Duration::from_millis(50)) => send(router).await,
        }
    }
}

#[tokio::test]
async fn a_live_command_whose_reader_leaves_has_succeeded() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    for args in [
        &["status", "--watch", "--interval", "0.1"][..],
        &["top", "--json"],
        &["completions", "bash"],
    ] {
        let mut command = command(args);
        command.env("CONDUCTOR_ADMIN", router.admin.base());
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer);
        drop(reader);
        let ended = tokio::task::spawn_blocking(move || command.spawn().unwrap().wait_with_output().unwrap());
        assert_eq!(ended.await.unwrap().status.code(), Some(0), "{args:?}");
    }
}

#[tokio::test]
async fn a_reload_prints_changes_or_the_problems_of_the_file() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let same = at(&router, &["reload"]).await.good();
    assert!(same.contains("unchanged"), "{same}");
    let broken = format!("[server]\nlistne = 1\n{}", fleet.workers_toml());
    std::fs::write(router.path("conductor.toml"), broken).unwrap();
    let refused = at(&router, &["reload"]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stdout.contains("unknown-key") && refused.stdout.contains(":2:1: "),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_refused_policy_file_is_a_warning_of_status_and_reload() {
    let fleet = fleet().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.wasm");
    std::fs::write(&file, sends_to(0, 1).unwrap()).unwrap();
    let toml = format!(
        "{}[policies.mine]\npath = \"{}\"\n{}",
        fleet.workers_toml(),
        path(&file),
        route_all("mine")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    assert!(!at(&router, &["status"]).await.good().contains("policy mine"));
    std::fs::write(&file, b"no component").unwrap();
    for command in ["reload", "status"] {
        let shown = at(&router, &[command]).await.good();
        assert!(shown.contains("warning: policy mine: "), "{shown}");
    }
    let page = at(&router, &["status", "--json"]).await.good_json();
    assert_eq!(page["policy_problems"][0]["policy"], "mine", "{page}");
}

#[tokio::test]
async fn the_admin_key_is_read_from_a_file_or_the_environment() {
    let fleet = fleet().await;
    let toml = format!(
        "admin-api-key = {{ file = \"admin.key\" }}\n{}{}",
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("admin.key");
    std::fs::write(&key, "secret-secret\n").unwrap();
    let toml = toml.replace("admin.key", key.to_str().unwrap());
    let router = TestRouter::start(&toml).await.unwrap();
    let without = at(&router, &["reload"]).await;
    assert_eq!(without.code, 1, "{without:?}");
    assert!(without.stderr.contains("conductor: "), "{without:?}");
    assert!(without.stderr.contains("ADMIN_API_KEY"), "{without:?}");
    at(&router, &["reload", "--admin-key-file", path(&key)])
        .await
        .good();
    let mut by_variable = command(&["reload", "--admin", router.admin.base()]);
    by_variable.env("ADMIN_API_KEY", "secret-secret");
    run(by_variable).await.good();
    let verbose = at(&router, &["reload", "-v", "--admin-key-file", path(&key)]).await;
    assert!(verbose.stderr.contains("/admin/reload: 200"), "{verbose:?}");
    assert!(!verbose.stderr.contains("secret-secret"), "{verbose:?}");
}

/// Certificate that signs itself, for a listener or a client at this address, and its key as PEM.
fn certificate() -> (String, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

/// Secures the admin listener of a router, and returns its address with the file of its certificate. `client_ca` is a
/// line for the authority of client certificates.
async fn secured(router: &TestRouter, fleet: &Fleet, client_ca: &str) -> (String, PathBuf) {
    let (cert, key) = certificate();
    let authority = router.path("server.crt");
    std::fs::write(&authority, cert).unwrap();
    std::fs::write(router.path("server.key"), key).unwrap();
    let tls = format!("[server.admin-tls]\ncert = \"server.crt\"\nkey = \"server.key\"\n{client_ca}");
    let toml = format!("{tls}{}{}", fleet.workers_toml(), route_all("round-robin"));
    router.save_config(&toml).unwrap();
    let plain = router.admin.base();
    eventually("its admin listener speaks TLS", || async {
        at(router, &["status"]).await.code == 1
    })
    .await;
    (plain.replace("http://", "https://"), authority)
}

#[tokio::test]
async fn a_client_certificate_opens_an_admin_listener_with_an_authority_for_them() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let (cert, key) = certificate();
    std::fs::write(router.path("client.crt"), &cert).unwrap();
    let both = router.path("client.pem");
    std::fs::write(&both, cert + &key).unwrap();
    let (url, authority) = secured(&router, &fleet, "client-ca = \"client.crt\"\n").await;
    let status = |cert: Option<&str>| {
        let mut command = command(&["status", "--admin", &url, "--admin-ca", path(&authority)]);
        command.args(cert.map_or(vec![], |cert| vec!["--admin-cert", cert]));
        command
    };
    run(status(Some(path(&both)))).await.good();
    let without = run(status(None)).await;
    assert_eq!(without.code, 1, "{without:?}");
    let keyless = run(status(Some(path(&router.path("client.crt"))))).await;
    assert_eq!(keyless.code, 2, "{keyless:?}");
    let (cert, key) = certificate();
    std::fs::write(&both, cert + &key).unwrap();
    let stranger = run(status(Some(path(&both)))).await;
    assert_eq!(stranger.code, 1, "{stranger:?}");
}

#[tokio::test]
async fn a_secured_admin_listener_is_trusted_by_a_file_or_by_the_authorities_of_the_system() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let (url, authority) = secured(&router, &fleet, "").await;
    let status = |args: &[&str]| {
        let mut command = command(&["status", "--admin", &url]);
        command.args(args).env_remove("CONDUCTOR_ADMIN_CA");
        command
    };
    run(status(&["--admin-ca", path(&authority)])).await.good();
    let mut by_variable = status(&[]);
    by_variable.env("CONDUCTOR_ADMIN_CA", &authority);
    run(by_variable).await.good();
    let mut by_system = status(&[]);
    by_system.env("SSL_CERT_FILE", &authority);
    run(by_system).await.good();

    let unnamed = run(status(&["--admin-ca", "no.crt"])).await;
    assert_eq!(unnamed.code, 2, "{unnamed:?}");
    assert!(unnamed.stderr.contains("no.crt"), "{unnamed:?}");
    let unknown = {
        std::fs::write(router.path("other.crt"), certificate().0).unwrap();
        run(status(&["--admin-ca", path(&router.path("other.crt"))])).await
    };
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.stderr.contains("--admin-ca"), "{unknown:?}");
    let plain = at(&router, &["status"]).await;
    assert!(plain.stderr.contains("write https://"), "{plain:?}");
}

#[tokio::test]
async fn init_reaches_https_workers_by_the_authorities_of_the_system() {
    let fleet = fleet().await;
    let router = router(&fleet).await;
    let (url, authority) = secured(&router, &fleet, "").await;
    let file = router.path("made.toml");
    let mut init = command(&["init", "--worker", &url, "--file", path(&file)]);
    init.env("SSL_CERT_FILE", &authority);
    let run = run(init).await;
    // The admin listener stands for a worker, and has no models.
    assert!(run.stderr.contains("it has no /v1/models"), "{run:?}");
    let made = std::fs::read_to_string(&file).unwrap();
    assert!(!made.contains("not reached"), "{made}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
