//! An admin listener that a reload switches off: it stays open until the restart.

use http::{Method, StatusCode};

use observability::error_chain;

use super::*;

impl Scenario {
    /// Returns the status of an admin page for a request to this host.
    async fn status_at(&self, host: &str) -> StatusCode {
        let headers = [("host", host)];
        let page = self
            .admin
            .stream(Method::GET, "/status", &headers, bytes::Bytes::new());
        page.await.unwrap().whole().await.unwrap().status
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_admin_listener_that_is_off_until_the_restart_still_refuses_other_hosts() {
    let mut scenario = Scenario::begin().await;
    assert_eq!(scenario.status_at("evil.example").await, StatusCode::FORBIDDEN);
    for text in [
        before().replace("admin-listen = \"127.0.0.1:0\"", "admin-listen = \"off\""),
        before(),
    ] {
        fs::write(scenario.path("conductor.toml"), &text).unwrap();
        let (reloaded, outcome) = scenario.reload(None).await;
        scenario = reloaded;
        assert!(outcome.has_changes(), "{outcome:?}");
        assert_eq!(scenario.status_at("evil.example").await, StatusCode::FORBIDDEN);
        assert_eq!(scenario.status_at("localhost").await, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_address_in_use_is_reported_at_its_key() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let mut scenario = Scenario::begin().await;
    for (key, place) in [("\nlisten", (3, 10)), ("\nadmin-listen", (4, 16))] {
        let text = before().replace(
            &format!("{key} = \"127.0.0.1:0\""),
            &format!("{key} = \"{taken}\""),
        );
        fs::write(scenario.path("conductor.toml"), &text).unwrap();
        let (reloaded, outcome) = scenario.reload(None).await;
        scenario = reloaded;
        let ReloadOutcome::Refused { problems, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((problems[0].line, problems[0].column), place, "{problems:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_address_in_use_at_the_start_is_reported_at_its_key() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let scenario = Scenario::begin().await;
    let file = scenario.path("conductor.toml");
    let moved = |key: &str| {
        before().replace(
            &format!("{key} = \"127.0.0.1:0\""),
            &format!("{key} = \"{taken}\""),
        )
    };
    let indexer = format!("{}[indexer]\nlisten = \"{taken}\"\n", before());
    let last = indexer.lines().count();
    for (text, place) in [
        (moved("\nlisten"), "3:10".to_owned()),
        (moved("\nadmin-listen"), "4:16".to_owned()),
        (indexer, format!("{last}:10")),
    ] {
        fs::write(&file, text).unwrap();
        let error = App::build(ConfigSource::File(file.clone())).await.err().unwrap();
        let place = format!("{}:{place}: failed to listen on {taken}", file.display());
        assert!(error_chain(&error).contains(&place), "{}", error_chain(&error));
    }
}
