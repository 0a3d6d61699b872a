//! Tests of concurrent legs that meet by an engine id: mooncake.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use routing::{Dialect, Role};

use crate::client::send;
use crate::clock::StoppedClock;
use crate::eventually;
use crate::pair::{
    BODY, header, parsed, prefill_answer, prefilled, prefilling, request, troubled, with_header,
};
use crate::router::{Builder, router, spec};
use crate::worker::{Leaving, Worker, answered_by_hand, json};

/// Response of a bootstrap server; `None` is an error.
pub(crate) type EngineName = Arc<Mutex<Option<&'static str>>>;

pub(crate) const E1: &str = r#"{"0":{"engine_id":"e1","worker_addr":{}}}"#;

pub(crate) async fn bootstrap(engine: &'static str) -> (Worker, EngineName) {
    let engine: EngineName = Arc::new(Mutex::new(Some(engine)));
    let current = Arc::clone(&engine);
    let worker = Worker::start(move |_| {
        let now = *current.lock().unwrap();
        async move { now.map_or_else(|| json(500, "down"), |ids| json(200, ids)) }
    })
    .await;
    (worker, engine)
}

pub(crate) fn prefill(builder: Builder, name: &str, url: &str, bootstrap: &str) -> Builder {
    let mut worker = spec(Role::Prefill, name, url);
    worker.bootstrap = Some(bootstrap.into());
    builder.specified(worker)
}

/// Builds a pool of `p` and `d`; decode workers take no whole requests.
pub(crate) fn one_pair(prefill_worker: &Worker, bootstrap: &Worker, decode: &Worker) -> Builder {
    let builder = router()
        .pd(Dialect::Mooncake)
        .with_pd(|pd| pd.alone = false)
        .decode("d", &decode.url());
    prefill(builder, "p", &prefill_worker.url(), &bootstrap.url())
}

#[tokio::test]
async fn both_legs_go_out_before_either_answers_and_name_the_same_transfer() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (decode, mut decodes) = answered_by_hand().await;
    let (bootstrap, _) = bootstrap(E1).await;
    let router = one_pair(&prefill, &bootstrap, &decode).start().await;
    let answered = async {
        let (p, d) = (prefills.recv().await.unwrap(), decodes.recv().await.unwrap());
        assert_eq!((router.in_flight("p"), router.in_flight("d")), (1, 1));
        // The decode worker's response waits for the result of the prefill worker.
        d.send(json(200, r#"{"cached_tokens":170}"#)).unwrap();
        p.send(prefilled()).unwrap();
    };
    let request = with_header(request(), "x-request-id", "mine");
    let request = with_header(request, "x-data-parallel-rank", "7");
    let (answer, ()) = futures_util::join!(send(router.address, request), answered);
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p"));
    assert_eq!(answer.text().await, r#"{"cached_tokens":64}"#);
    let (first, second) = (&prefill.received()[0], &decode.received()[0]);
    let (p, d) = (parsed(first), parsed(second));
    assert_eq!((&p["max_tokens"], &p["ignore_eos"]), (&1.into(), &true.into()));
    let (p, d) = (&p["kv_transfer_params"], &d["kv_transfer_params"]);
    assert!(p["transfer_id"].is_string());
    assert_eq!(p["transfer_id"], d["transfer_id"]);
    assert_eq!(d["remote_engine_id"], "e1");
    assert_eq!(d["remote_bootstrap_addr"], bootstrap.url());
    assert_eq!(header(first, "x-data-parallel-rank"), Some("0"));
    assert_eq!(
        header(second, "x-data-parallel-rank"),
        None,
        "not the client's to choose"
    );
    assert_eq!(header(first, "x-request-id"), Some("mine"));
    assert_eq!(header(second, "x-request-id"), Some("mine"));
    assert_eq!((router.in_flight("p"), router.in_flight("d")), (0, 0));
}

#[tokio::test]
async fn a_prefill_failure_drops_the_decode_leg_and_is_the_clients_answer() {
    for status in [400, 429, 500, 503] {
        let (prefill, (decode, mut decodes)) = (answered_by_hand().await, answered_by_hand().await);
        let (prefill, mut prefills) = prefill;
        let (bootstrap, _) = bootstrap(E1).await;
        let router = one_pair(&prefill, &bootstrap, &decode).start().await;
        let answered = async {
            let (p, d) = (prefills.recv().await.unwrap(), decodes.recv().await.unwrap());
            p.send(json(status, "prefill says no")).unwrap();
            d
        };
        let (answer, _never) = futures_util::join!(send(router.address, request()), answered);
        assert_eq!(answer.status, status);
        assert_eq!(answer.text().await, "prefill says no");
        eventually("the decode leg is closed", || decode.busy() == 0).await;
        assert_eq!((router.in_flight("p"), router.in_flight("d")), (0, 0));
    }
}

#[tokio::test]
async fn a_prompt_whose_token_ends_the_answer_is_not_waited_for() {
    let prefill = Worker::start(|_| async { prefill_answer("stop", "null") }).await;
    let (decode, mut decodes) = answered_by_hand().await;
    let (bootstrap, _) = bootstrap(E1).await;
    let router = one_pair(&prefill, &bootstrap, &decode)
        .with_pd(|pd| pd.alone = true)
        .start()
        .await;
    let answered = async {
        let _never = decodes.recv().await.unwrap();
        let alone = decodes.recv().await.unwrap();
        eventually("the first is dropped", || decode.busy() == 1).await;
        alone.send(json(200, "alone")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "alone");
    assert_eq!(decode.received()[1].body, BODY);
}

#[tokio::test]
async fn a_decode_worker_that_cannot_have_begun_gives_the_same_transfer_to_another() {
    let (busy, gone) = (troubled(503).await, Leaving::start().await);
    for (first, leaving) in [(busy.url(), None), (gone.url.clone(), Some(gone))] {
        let (p, second) = (prefilling().await, Worker::named("e").await);
        let (server, _) = bootstrap(E1).await;
        let builder = router()
            .pd(Dialect::Mooncake)
            .decode("d", &first)
            .decode("e", &second.url());
        let router = prefill(builder, "p", &p.url(), &server.url()).start().await;
        if let Some(leaving) = leaving {
            leaving.leave().await;
        }
        assert_eq!(send(router.address, request()).await.text().await, "e");
        let transfer = |leg| parsed(leg)["kv_transfer_params"]["transfer_id"].clone();
        assert_eq!(p.received().len(), 1);
        assert_eq!(transfer(&p.received()[0]), transfer(&second.received()[0]));
    }
}

#[tokio::test]
async fn a_prefill_leg_that_no_decode_worker_waits_for_is_closed() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (bootstrap, _) = bootstrap(E1).await;
    // The decode worker responds while the prefill leg is in progress.
    for (status, words) in [(503, "busy"), (404, "no such model")] {
        let (decode, mut decodes) = answered_by_hand().await;
        let router = one_pair(&prefill, &bootstrap, &decode).start().await;
        let answered = async {
            let never = prefills.recv().await.unwrap();
            decodes.recv().await.unwrap().send(json(status, words)).unwrap();
            never
        };
        let (answer, _never) = futures_util::join!(send(router.address, request()), answered);
        assert_eq!(answer.status, status);
        assert_eq!(answer.text().await, words);
        eventually("the prefill leg is closed", || prefill.busy() == 0).await;
        eventually("its lease is given back", || router.in_flight("p") == 0).await;
    }
}

#[tokio::test]
async fn when_the_client_leaves_decode_is_closed_and_the_prompt_is_computed_to_its_end() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (decode, mut decodes) = answered_by_hand().await;
    let (bootstrap, _) = bootstrap(E1).await;
    let router = one_pair(&prefill, &bootstrap, &decode).start().await;
    let both = async { (prefills.recv().await.unwrap(), decodes.recv().await.unwrap()) };
    let (response, _never) = tokio::select! {
        _ = send(router.address, request()) => unreachable!("no worker answers"),
        both = both => both,
    };
    eventually("the decode leg is closed", || decode.busy() == 0).await;
    eventually("its lease is given back", || router.in_flight("d") == 0).await;
    assert_eq!((prefill.busy(), router.in_flight("p")), (1, 1));
    response.send(prefilled()).unwrap();
    eventually("the prefill leg's lease is given back", || {
        router.in_flight("p") == 0
    })
    .await;
    assert_eq!(router.outcomes("client-left"), 1.0);
    send_again(&router, &mut prefills, &mut decodes).await;
    assert_eq!(
        prefill.connections(),
        1,
        "read to its end, its connection is kept"
    );
}

async fn send_again(
    router: &crate::router::Router,
    prefills: &mut tokio::sync::mpsc::Receiver<crate::worker::ResponseSender>,
    decodes: &mut tokio::sync::mpsc::Receiver<crate::worker::ResponseSender>,
) {
    let answered = async {
        prefills.recv().await.unwrap().send(prefilled()).unwrap();
        decodes.recv().await.unwrap().send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
}

#[tokio::test]
async fn a_prefill_leg_without_a_client_ends_at_the_prefill_timeout() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (decode, _decodes) = answered_by_hand().await;
    let (bootstrap, _) = bootstrap(E1).await;
    let router = one_pair(&prefill, &bootstrap, &decode)
        .with_pd(|pd| pd.prefill_timeout = Duration::from_millis(300))
        .start()
        .await;
    eventually("the engine id is known", || {
        router.metric(r#"conductor_pd_bootstrap_engines{worker="p"}"#) == 1.0
    })
    .await;
    let clock = StoppedClock::stop();
    let _never = tokio::select! {
        _ = send(router.address, request()) => unreachable!("no worker answers"),
        queried = prefills.recv() => queried.unwrap(),
    };
    eventually("the decode leg's lease is given back", || {
        router.in_flight("d") == 0
    })
    .await;
    assert_eq!((prefill.busy(), router.in_flight("p")), (1, 1));
    clock.go_on();
    eventually("the prefill leg is closed", || prefill.busy() == 0).await;
    eventually("its lease is given back", || router.in_flight("p") == 0).await;
}
