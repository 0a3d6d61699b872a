//! An admin listener that a reload switches off: it stays open until the restart.

use http::{Method, StatusCode};

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
