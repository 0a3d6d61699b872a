//! Tests of `/tokenize`: forwarded for clients, and avoided while it fails.

use std::time::{Duration, Instant};

use futures_util::future::join;

use crate::client::{chat, post, send};
use crate::clock::StoppedClock;
use crate::policy::{Scripted, route};
use crate::router::router;
use crate::tokens::querying_worker;
use crate::worker::{BrokenOff, Leaving, Worker, json, tokenizing, writing};
use crate::{PATIENCE, eventually};

#[tokio::test]
async fn a_tokenize_request_goes_to_a_worker_of_the_models_pool() {
    let worker = tokenizing().await;
    let router = router().serving("a", &worker.url(), &["m"]).start().await;
    let body = r#"{"model":"m","prompt":"hi","return_token_strs":true}"#;
    let answer = send(router.address, post("/tokenize", body)).await;
    assert_eq!(answer.header("x-conductor-worker"), Some("a"));
    assert!(answer.text().await.contains("\"count\":9"));
    assert_eq!(worker.received()[0].body, body);
    let unknown = send(router.address, post("/tokenize", r#"{"model":"x"}"#)).await;
    assert_eq!(unknown.status, 404);
}

/// Checks whether a second request queries tokens after `/tokenize` has answered the first with a status and a text.
async fn check_queried_again(status: u16, text: &'static str, queried_again: bool) {
    let worker = Worker::start(move |request| async move {
        if request.uri.path() == "/tokenize" {
            json(status, text)
        } else {
            json(200, "a")
        }
    })
    .await;
    let policy = Scripted::first(&["request.prompt-tokens"], &[]);
    let router = router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(querying_worker)
        .start()
        .await;
    for _ in 0..2 {
        assert_eq!(send(router.address, chat()).await.text().await, "a");
    }
    let paths = worker.paths();
    let queries = paths.iter().filter(|path| *path == "/tokenize").count();
    assert_eq!(queries, 1 + usize::from(queried_again), "{status} {text}");
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 0.0);
}

#[tokio::test]
async fn a_tokenizer_that_is_out_is_left_alone_and_one_that_refuses_a_prompt_is_not() {
    check_queried_again(404, r#"{"detail":"Not Found"}"#, false).await;
    check_queried_again(405, "", false).await;
    check_queried_again(503, "", false).await;
    check_queried_again(200, "not tokens", false).await;
    check_queried_again(404, r#"{"message":"The model `m` does not exist."}"#, true).await;
    check_queried_again(400, "too long", true).await;
}

#[tokio::test]
async fn a_worker_without_a_render_endpoint_is_queried_at_its_tokenize_as_soon_as_that_is_configured() {
    let worker = Worker::start(|request| async move {
        match request.uri.path() {
            "/tokenize" => json(200, r#"{"tokens":[1,2,3]}"#),
            "/v1/chat/completions/render" => json(403, "{}"),
            _ => json(200, "a"),
        }
    })
    .await;
    let policy = Scripted::first(&["request.prompt-tokens"], &[]);
    let built = router().worker("a", &worker.url()).policy(policy.clone());
    let rendering = built.clone().with(|builder| {
        builder.tokens = proxy::TokenSource::Render {
            timeout: Duration::from_secs(10),
        };
    });
    let mut router = rendering.start().await;
    send(router.address, chat()).await.text().await;
    router.change(built.with(querying_worker));
    send(router.address, chat()).await.text().await;
    let shown = policy.shown();
    assert!(shown[0][0].is_nan(), "{shown:?}");
    assert_eq!(shown[1], [3.0]);
}

#[tokio::test]
async fn a_request_for_a_model_that_nobody_serves_is_no_failure_of_a_tokenizer() {
    let worker = tokenizing().await;
    let router = router()
        .serving("a", &worker.url(), &["m"])
        .policy(Scripted::first(&["request.prompt-tokens"], &[]))
        .with(querying_worker)
        .start()
        .await;
    let body = r#"{"model":"mm","messages":[{"role":"user","content":"hi"}]}"#;
    let answer = send(router.address, post("/v1/chat/completions", body)).await;
    assert_eq!(answer.status, 404);
    for outcome in ["failed", "timeout", "worker"] {
        let series = format!("conductor_tokenized_total{{pool=\"main\",outcome=\"{outcome}\"}}");
        assert_eq!(router.metric(&series), 0.0, "{outcome}");
    }
}

#[tokio::test]
async fn a_tokenizer_that_cannot_be_reached_is_passed_over() {
    let (gone, worker) = (Leaving::start().await, tokenizing().await);
    let policy = Scripted::seeing(&["request.prompt-tokens"], &[], |_| Ok(route(1)));
    let router = router()
        .worker("a", &gone.url)
        .worker("b", &worker.url())
        .policy(policy.clone())
        .with(querying_worker)
        .start()
        .await;
    gone.leave().await;
    for _ in 0..4 {
        send(router.address, chat()).await.text().await;
    }
    let known = policy.shown().iter().filter(|numbers| numbers[0] == 9.0).count();
    assert_eq!(known, 4, "another is queried within the same request");
}

#[tokio::test]
async fn a_tokenize_request_goes_to_another_worker_when_one_cannot_be_reached() {
    let worker = tokenizing().await;
    let router = router()
        .worker("a", &Worker::unreachable())
        .worker("b", &worker.url())
        .start()
        .await;
    for _ in 0..3 {
        let answer = send(
            router.address,
            post("/tokenize", r#"{"model":"m","prompt":"hi"}"#),
        )
        .await;
        assert_eq!(answer.header("x-conductor-worker"), Some("b"));
    }
}

#[tokio::test]
async fn a_tokenize_answer_that_breaks_off_is_reported_as_such() {
    let (worker, mut pens) = writing("application/json").await;
    let router = router().worker("a", &worker.url()).start().await;
    let queries = send(
        router.address,
        post("/tokenize", r#"{"model":"m","prompt":"hi"}"#),
    );
    let write = async {
        let pen = pens.recv().await.unwrap();
        pen.send(Ok("{\"half\":".into())).await.unwrap();
        pen.send(Err(BrokenOff)).await.unwrap();
    };
    let (answer, ()) = join(queries, write).await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().await.contains("\"code\":\"worker_broke_off\""));
}

/// Starts a router over a worker whose `/tokenize` hangs and one that answers.
async fn with_one_hung_tokenizer(
    policy: std::sync::Arc<Scripted>,
) -> (Worker, Worker, crate::router::Router) {
    let hung = Worker::start(|request| async move {
        if request.uri.path() == "/tokenize" {
            std::future::pending::<()>().await;
        }
        json(200, "a")
    })
    .await;
    let well = tokenizing().await;
    let router = router()
        .worker("a", &hung.url())
        .worker("b", &well.url())
        .policy(policy)
        .with(querying_worker)
        .start()
        .await;
    (hung, well, router)
}

#[tokio::test]
async fn a_hung_tokenizer_costs_no_prompt_its_tokens_and_puts_no_other_to_rest() {
    let policy = Scripted::seeing(&["request.prompt-tokens"], &[], |_| Ok(route(1)));
    let (hung, _well, router) = with_one_hung_tokenizer(policy.clone()).await;
    let clock = StoppedClock::stop();
    for _ in 0..12 {
        let before = hung.received().len();
        // The other is queried only after the time that one try has to itself.
        let hedged = async {
            eventually("it is queried", || hung.received().len() > before).await;
            clock.pass(Duration::from_secs(3)).await;
            std::future::pending::<()>().await;
        };
        let text = async { send(router.address, chat()).await.text().await };
        tokio::select! {
            text = text => assert_eq!(text, "a"),
            () = hedged => unreachable!("it never ends"),
        }
    }
    assert!(
        policy.shown().iter().all(|numbers| numbers[0] == 9.0),
        "{:?}",
        policy.shown()
    );
    let tries = |outcome| {
        router.metric(&format!(
            r#"conductor_tokenize_tries_total{{pool="main",outcome="{outcome}"}}"#
        ))
    };
    assert_eq!((tries("answered"), tries("unanswered")), (12.0, 3.0));
    assert_eq!(hung.received().len(), 3, "then it rests");
    let failed = router.metric(r#"conductor_tokenized_total{pool="main",outcome="timeout"}"#);
    assert_eq!(failed, 0.0);
    assert!(router.snapshot().report()[0].token_timeouts.is_none());
}

#[tokio::test]
async fn prompts_whose_tokens_stay_unknown_are_reported_until_the_tokenizer_answers_again() {
    let is_slow = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let flag = std::sync::Arc::clone(&is_slow);
    let worker = Worker::start(move |request| {
        let hangs = request.uri.path() == "/tokenize" && flag.load(std::sync::atomic::Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            json(200, r#"{"tokens":[1,2,3]}"#)
        }
    })
    .await;
    let policy = Scripted::first(&["request.prompt-tokens"], &[]);
    let router = router()
        .worker("a", &worker.url())
        .policy(policy)
        .with(|builder| {
            builder.tokens = proxy::TokenSource::Worker {
                timeout: Duration::from_millis(100),
            };
        })
        .start()
        .await;
    for _ in 0..2 {
        send(router.address, chat()).await.text().await;
    }
    let report = || router.snapshot().report().remove(0).token_timeouts;
    let streak = report().unwrap();
    assert_eq!((streak.failures, streak.total, &*streak.subject), (2, 2, "m"));
    assert!(
        streak.error.contains("gave no tokens within 100ms"),
        "{}",
        streak.error
    );
    is_slow.store(false, std::sync::atomic::Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while report().is_some() {
        assert!(Instant::now() < deadline, "never cured");
        send(router.address, chat()).await.text().await;
    }
}
