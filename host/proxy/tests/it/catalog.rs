//! Tests of the model catalogue: lists of workers, refusals of models, and configured models.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use proxy::{AdapterSpec, ModelListSpec};
use routing::Dialect;

use crate::client::{Answer, get, post, send};
use crate::eventually;
use crate::pair::prefilled;
use crate::router::{Builder, Router, router};
use crate::worker::{Received, Worker, json, whole};

/// Models that a worker lists and serves; a test changes them.
#[derive(Clone, Default)]
struct Models {
    listed: Arc<Mutex<BTreeSet<&'static str>>>,
    served: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Models {
    fn set(&self, names: &[&'static str]) {
        self.list(names);
        *self.served.lock().unwrap() = names.iter().copied().collect();
    }

    /// Changes the list only.
    fn list(&self, names: &[&'static str]) {
        *self.listed.lock().unwrap() = names.iter().copied().collect();
    }

    /// Returns the list. The base model is `m`; all others are its adapters.
    fn page(&self) -> String {
        let model = |name: &&str| match *name {
            "m" => r#"{"id":"m","parent":null}"#.to_owned(),
            name => format!(r#"{{"id":"{name}","parent":"m"}}"#),
        };
        let listed = self.listed.lock().unwrap();
        let models: Vec<String> = listed.iter().map(model).collect();
        format!(r#"{{"object":"list","data":[{}]}}"#, models.join(","))
    }
}

/// Starts a worker that answers served models with its name, and others with 404, as vLLM does.
async fn serving(name: &'static str, names: &[&'static str]) -> (Worker, Models) {
    let models = Models::default();
    models.set(names);
    let of_worker = models.clone();
    let worker = Worker::start(move |request: Received| {
        let models = of_worker.clone();
        async move {
            if request.uri.path() == "/v1/models" {
                return json(200, models.page());
            }
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            let model = body["model"].as_str().unwrap_or("m").to_owned();
            if models.served.lock().unwrap().contains(&*model) {
                return json(200, name);
            }
            json(404, not_found(name, &model))
        }
    })
    .await;
    (worker, models)
}

fn not_found(worker: &str, model: &str) -> String {
    format!(
        r#"{{"error":{{"message":"{worker}: The model `{model}` does not exist.","type":"NotFoundError","param":"model","code":404}}}}"#
    )
}

fn chat(model: &str) -> Request<bytes::Bytes> {
    post(
        "/v1/chat/completions",
        format!(r#"{{"model":"{model}","messages":[]}}"#),
    )
}

/// Queries lists at the start, and later only on requests.
fn once(builder: Builder) -> Builder {
    listing(builder, Duration::from_secs(3_600))
}

fn listing(builder: Builder, interval: Duration) -> Builder {
    builder.with(|builder| {
        builder.model_list = Some(ModelListSpec {
            interval,
            timeout: Duration::from_secs(10),
            ..ModelListSpec::default()
        });
    })
}

fn refreshes(router: &Router, worker: &str, result: &str) -> f64 {
    let labels = format!(r#"worker="{worker}",result="{result}""#);
    router.metric(&format!("conductor_worker_model_refreshes_total{{{labels}}}"))
}

/// Waits until the lists of these workers are known and used.
async fn learned(router: &Router, workers: &[&str]) {
    eventually("the lists are learned", || {
        workers
            .iter()
            .all(|worker| refreshes(router, worker, "changed") > 0.0)
    })
    .await;
}

async fn status_and_text(router: &Router, model: &str) -> (StatusCode, String) {
    let answer = send(router.address, chat(model)).await;
    (answer.status, answer.text().await)
}

#[tokio::test]
async fn an_adapter_is_sent_to_workers_that_list_it_and_to_no_other() {
    let (a, _) = serving("a", &["m"]).await;
    let (b, _) = serving("b", &["m", "sql"]).await;
    let router = once(router().worker("a", &a.url()).worker("b", &b.url()))
        .start()
        .await;
    learned(&router, &["a", "b"]).await;
    for _ in 0..6 {
        assert_eq!(
            status_and_text(&router, "sql").await,
            (StatusCode::OK, "b".to_owned())
        );
        assert_eq!(status_and_text(&router, "m").await.0, StatusCode::OK);
    }
    let requests: Vec<_> = a.received();
    let of_a = |path: &str| {
        requests
            .iter()
            .filter(|request| request.uri.path() == path)
            .count()
    };
    assert_eq!(of_a("/v1/models"), 1);
    assert_eq!(of_a("/v1/chat/completions"), 6, "the base model only");
    assert_eq!(refreshes(&router, "a", "changed"), 1.0);
}

#[tokio::test]
async fn an_adapter_loaded_at_run_time_is_served_from_its_first_request_on() {
    let (a, _) = serving("a", &["m"]).await;
    let (b, models) = serving("b", &["m"]).await;
    let router = once(router().worker("a", &a.url()).worker("b", &b.url()))
        .start()
        .await;
    learned(&router, &["a", "b"]).await;
    models.set(&["m", "sql"]);
    assert_eq!(
        status_and_text(&router, "sql").await,
        (StatusCode::OK, "b".to_owned())
    );
    assert_eq!(refreshes(&router, "b", "changed"), 2.0);
}

#[tokio::test]
async fn lists_at_a_corrected_path_are_learned_at_once() {
    let a = Worker::start(|request: Received| async move {
        match request.uri.path() {
            "/v1/models" => json(200, r#"{"object":"list","data":[{"id":"m"}]}"#),
            _ => json(404, "{}"),
        }
    })
    .await;
    let built = once(router().worker("a", &a.url()));
    let mistaken = built.clone().with(|builder| {
        let list = builder.model_list.as_mut().unwrap();
        list.path = "/models".parse().unwrap();
    });
    let mut router = mistaken.start().await;
    eventually("it was queried", || refreshes(&router, "a", "no-page") > 0.0).await;
    router.change(built);
    learned(&router, &["a"]).await;
}

#[tokio::test]
async fn a_name_in_no_list_is_refused_after_one_look_and_costs_no_more() {
    let (a, _) = serving("a", &["m"]).await;
    let router = once(router().worker("a", &a.url())).start().await;
    learned(&router, &["a"]).await;
    let before = a.received().len();
    let answers = futures_util::future::join_all((0..20).map(|_| status_and_text(&router, "nothing"))).await;
    for (status, body) in answers {
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(body.contains("model_not_found"), "{body}");
    }
    let paths = a.paths().split_off(before);
    assert!(paths.iter().all(|path| path == "/v1/models"), "{paths:?}");
    assert!(paths.len() <= 2, "one look a second: {paths:?}");
    assert_eq!(status_and_text(&router, "m").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_404_is_news_another_worker_is_tried_and_no_worker_is_blamed() {
    let (a, models) = serving("a", &["m", "sql"]).await;
    let (b, _) = serving("b", &["m", "sql"]).await;
    let router = once(router().worker("a", &a.url()).worker("b", &b.url()))
        .with(|builder| {
            builder.health.failures = 1;
            builder.retries.share = 0.0;
            builder.retries.per_second = 0.0;
        })
        .start()
        .await;
    learned(&router, &["a", "b"]).await;
    models.set(&["m"]);
    assert_eq!(
        status_and_text(&router, "sql").await,
        (StatusCode::OK, "b".to_owned())
    );
    let free = r#"conductor_retries_total{pool="main",kind="free"}"#;
    assert_eq!(router.metric(free), 1.0, "there is no budget to pay from");
    eventually("its list is fetched again", || {
        refreshes(&router, "a", "changed") == 2.0
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = a.paths().len();
    assert_eq!(
        status_and_text(&router, "sql").await,
        (StatusCode::OK, "b".to_owned())
    );
    assert_eq!(a.paths().len(), before, "it is not queried again");
    assert_eq!(
        status_and_text(&router, "m").await,
        (StatusCode::OK, "a".to_owned()),
        "it is well"
    );
}

#[tokio::test]
async fn the_404_of_the_only_worker_is_relayed_as_it_is() {
    let (a, models) = serving("a", &["m", "sql"]).await;
    let router = once(router().worker("a", &a.url())).start().await;
    learned(&router, &["a"]).await;
    models.set(&["m"]);
    let answer = send(router.address, chat("sql")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.header("x-conductor-worker"), Some("a"));
    assert_eq!(answer.text().await, not_found("a", "sql"));
    // The worker was queried once, and its list is known by now.
    let (status, body) = status_and_text(&router, "sql").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains("model_not_found"), "{body}");
}

#[tokio::test]
async fn a_worker_that_lists_what_it_denies_is_tried_once_for_each_request() {
    let (a, models) = serving("a", &["m", "sql"]).await;
    let (b, of_b) = serving("b", &["m", "sql"]).await;
    let (c, of_c) = serving("c", &["m", "sql"]).await;
    for models in [&models, &of_b, &of_c] {
        models.set(&["m"]);
        models.list(&["m", "sql"]);
    }
    let workers = router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .worker("c", &c.url());
    let router = once(workers).start().await;
    learned(&router, &["a", "b", "c"]).await;
    assert_eq!(
        status_and_text(&router, "sql").await,
        (StatusCode::NOT_FOUND, not_found("a", "sql"))
    );
    let requests = [&a, &b, &c].map(|worker| {
        let paths = worker.paths();
        paths
            .iter()
            .filter(|path| *path == "/v1/chat/completions")
            .count()
    });
    assert_eq!(requests, [1, 1, 0]);
}

#[tokio::test]
async fn other_404s_are_relayed_untouched() {
    let worker = Worker::start(|request: Received| async move {
        if request.uri.path() == "/v1/models" {
            return json(200, r#"{"data":[{"id":"m"}]}"#);
        }
        let mut answer = whole(404, "application/json", r#"{"detail":"Not Found"}"#);
        answer.headers_mut().insert("x-engine", "kept".parse().unwrap());
        answer
    })
    .await;
    let router = once(
        router()
            .worker("a", &worker.url())
            .worker("b", &Worker::unreachable()),
    );
    let router = router.start().await;
    learned(&router, &["a"]).await;
    let answer = send(router.address, chat("m")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.header("x-engine"), Some("kept"));
    assert_eq!(answer.text().await, r#"{"detail":"Not Found"}"#);
}

#[tokio::test]
async fn configured_models_and_adapters_override_the_lists_of_workers() {
    let (a, _) = serving("a", &["m", "sql"]).await;
    let (b, _) = serving("b", &["m"]).await;
    let builder = router().serving("a", &a.url(), &["m"]).worker("b", &b.url());
    let builder = once(builder).with(|builder| {
        builder.adapters = vec![AdapterSpec {
            name: "resolved".into(),
            workers: vec!["b".into()],
        }];
    });
    let router = builder.start().await;
    learned(&router, &["a", "b"]).await;
    assert_eq!(status_and_text(&router, "sql").await.0, StatusCode::NOT_FOUND);
    // Served although it is not listed: the worker's response is relayed.
    assert_eq!(
        status_and_text(&router, "resolved").await,
        (StatusCode::NOT_FOUND, not_found("b", "resolved"))
    );
    let list = send(router.address, get("/v1/models")).await.text().await;
    assert!(!list.contains(r#""id":"sql""#), "{list}");
    assert!(list.contains(r#""id":"resolved""#), "{list}");
}

#[tokio::test]
async fn workers_whose_list_is_unknown_serve_anything_and_a_failure_forgets_nothing() {
    let silent = Worker::start(|request: Received| async move {
        match request.uri.path() {
            "/v1/models" => json(401, "{}"),
            _ => json(200, "silent"),
        }
    })
    .await;
    let often = Duration::from_millis(10);
    let builder = listing(router().worker("s", &silent.url()), often);
    let router = builder.start().await;
    eventually("it was queried", || refreshes(&router, "s", "failed") > 1.0).await;
    assert_eq!(
        status_and_text(&router, "anything").await,
        (StatusCode::OK, "silent".to_owned())
    );
    let report = router
        .snapshot()
        .report()
        .swap_remove(0)
        .workers
        .swap_remove(0)
        .models;
    assert!(report.failure.unwrap().contains("401"), "the reason is reported");

    let is_up = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let up = Arc::clone(&is_up);
    let failing = Worker::start(move |request: Received| {
        let up = up.load(std::sync::atomic::Ordering::SeqCst);
        async move {
            match request.uri.path() {
                "/v1/models" if up => json(200, r#"{"data":[{"id":"m"}]}"#),
                "/v1/models" => json(500, "{}"),
                _ => json(200, "failing"),
            }
        }
    })
    .await;
    let router = listing(crate::router::router().worker("f", &failing.url()), often)
        .start()
        .await;
    learned(&router, &["f"]).await;
    is_up.store(false, std::sync::atomic::Ordering::SeqCst);
    eventually("it fails", || refreshes(&router, "f", "failed") > 0.0).await;
    assert_eq!(status_and_text(&router, "m").await.0, StatusCode::OK);
    assert_eq!(status_and_text(&router, "other").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_request_without_a_model_goes_to_workers_of_any_list() {
    let (a, _) = serving("a", &["m"]).await;
    let router = once(router().worker("a", &a.url())).start().await;
    learned(&router, &["a"]).await;
    let answer = send(router.address, post("/v1/chat/completions", r#"{"messages":[]}"#)).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn an_adapter_is_found_by_its_base_models_name_and_its_own() {
    let (a, _) = serving("a", &["m"]).await;
    let sglang = Worker::start(|request: Received| async move {
        match request.uri.path() {
            "/v1/models" => json(200, r#"{"data":[{"id":"m"},{"id":"sql","parent":"m"}]}"#),
            _ => json(200, "sglang"),
        }
    })
    .await;
    let router = once(router().worker("a", &a.url()).worker("s", &sglang.url()))
        .start()
        .await;
    learned(&router, &["a", "s"]).await;
    assert_eq!(
        status_and_text(&router, "m:sql").await,
        (StatusCode::OK, "sglang".to_owned())
    );
    assert_eq!(status_and_text(&router, "x:sql").await.0, StatusCode::NOT_FOUND);
}

/// Sends a request for the adapter `sql` to a router that has learned the lists of these workers.
async fn split_adapter(prefill: [&Worker; 2], decode: [&Worker; 2]) -> (Router, Answer) {
    let builder = router()
        .prefill("p0", &prefill[0].url())
        .prefill("p1", &prefill[1].url())
        .decode("d0", &decode[0].url())
        .decode("d1", &decode[1].url())
        .pd(Dialect::Nixl);
    let router = once(builder).start().await;
    learned(&router, &["p0", "p1", "d0", "d1"]).await;
    let body = r#"{"model":"sql","prompt":"hello, world"}"#;
    let answer = send(router.address, post("/v1/completions", body)).await;
    (router, answer)
}

#[tokio::test]
async fn both_legs_go_to_workers_that_serve_the_adapter() {
    let prefill = async |lists: &'static str| {
        let worker = Worker::start(move |request: Received| async move {
            match request.uri.path() {
                "/v1/models" => json(200, lists),
                _ => prefilled(),
            }
        });
        worker.await
    };
    let base = r#"{"data":[{"id":"m"}]}"#;
    let both = r#"{"data":[{"id":"m"},{"id":"sql","parent":"m"}]}"#;
    let (without, with) = (prefill(base).await, prefill(both).await);
    let (d0, _) = serving("d0", &["m"]).await;
    let (d1, _) = serving("d1", &["m", "sql"]).await;
    let (_router, answer) = split_adapter([&without, &with], [&d0, &d1]).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("d1"));
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p1"));
    assert_eq!(
        (answer.status, answer.text().await),
        (StatusCode::OK, "d1".to_owned())
    );
}

#[tokio::test]
async fn a_leg_that_a_worker_does_not_serve_is_tried_on_another() {
    for denies in ["p0", "d0"] {
        let lists = r#"{"data":[{"id":"m"},{"id":"sql","parent":"m"}]}"#;
        let leg = async |name: &'static str| {
            Worker::start(move |request: Received| async move {
                match request.uri.path() {
                    "/v1/models" => json(200, lists),
                    _ if name == denies => json(404, not_found(name, "sql")),
                    _ if name.starts_with('p') => prefilled(),
                    _ => json(200, name),
                }
            })
            .await
        };
        let (p0, p1) = (leg("p0").await, leg("p1").await);
        let (d0, d1) = (leg("d0").await, leg("d1").await);
        let (_router, answer) = split_adapter([&p0, &p1], [&d0, &d1]).await;
        assert_eq!(answer.status, StatusCode::OK, "{denies}");
        let expected = if denies == "p0" {
            ("p1", "d0")
        } else {
            ("p0", "d1")
        };
        let header = |name| answer.header(name).unwrap();
        let found = (header("x-conductor-prefill-worker"), header("x-conductor-worker"));
        assert_eq!(found, expected);
    }
}
