//! Tests of engine ids: from bootstrap servers, outdated after a restart, and unknown while a server is down.

use std::time::Duration;

use http::StatusCode;
use routing::{Dialect, DpRank, Role};

use crate::client::send;
use crate::clock::StoppedClock;
use crate::eventually;
use crate::pair::concurrent::{E1, bootstrap, one_pair, prefill};
use crate::pair::{BODY, header, parsed, prefilled, prefilling, request, troubled, with_header};
use crate::router::{router, spec};
use crate::worker::{Worker, answered_by_hand, json};

pub(crate) const E2: &str = r#"{"0":{"engine_id":"e2","worker_addr":{}}}"#;

#[tokio::test]
async fn a_pinned_rank_meets_its_own_engine() {
    let (p, d) = (prefilling().await, Worker::named("d").await);
    let (server, _) = bootstrap(r#"{"0":{"engine_id":"e-0"},"1":{"engine_id":"e-1"}}"#).await;
    let mut pinned = spec(Role::Prefill, "p@1", &p.url());
    pinned.rank = Some(DpRank(1));
    pinned.bootstrap = Some(server.url().into());
    let mut decode = spec(Role::Decode, "d@3", &d.url());
    decode.rank = Some(DpRank(3));
    let router = router()
        .pd(Dialect::Mooncake)
        .specified(pinned)
        .specified(decode)
        .start()
        .await;
    for _ in 0..2 {
        send(router.address, request()).await.text().await;
    }
    for (prefill, decode) in p.received().iter().zip(&d.received()) {
        assert_eq!(header(prefill, "x-data-parallel-rank"), Some("1"));
        assert_eq!(header(decode, "x-data-parallel-rank"), Some("3"));
        assert_eq!(parsed(decode)["kv_transfer_params"]["remote_engine_id"], "e-1");
    }
}

#[tokio::test]
async fn ranks_that_no_request_pins_take_turns() {
    let (p, d) = (prefilling().await, Worker::named("d").await);
    let (server, _) = bootstrap(r#"{"0":{"engine_id":"e-0"},"1":{"engine_id":"e-1"}}"#).await;
    let router = one_pair(&p, &server, &d).start().await;
    for _ in 0..2 {
        send(router.address, request()).await.text().await;
    }
    let mut legs: Vec<_> = std::iter::zip(p.received(), d.received())
        .map(|(prefill, decode)| {
            let id = parsed(&decode)["kv_transfer_params"]["remote_engine_id"].clone();
            let rank = header(&prefill, "x-data-parallel-rank").map(str::to_owned);
            (rank.unwrap(), id.as_str().unwrap().to_owned())
        })
        .collect();
    legs.sort();
    let expected = [("0", "e-0"), ("1", "e-1")];
    assert_eq!(legs, expected.map(|(rank, id)| (rank.to_owned(), id.to_owned())));
}

#[tokio::test]
async fn a_decode_leg_with_an_engine_that_is_no_more_is_sent_the_new_one() {
    let prefill = prefilling().await;
    let (bootstrap, engine) = bootstrap(E1).await;
    let (decode, mut decodes) = answered_by_hand().await;
    let router = one_pair(&prefill, &bootstrap, &decode).start().await;
    let answered = async {
        let first = decodes.recv().await.unwrap();
        *engine.lock().unwrap() = Some(E2);
        first.send(json(500, "no such engine")).unwrap();
        let again = decodes.recv().await.unwrap();
        again.send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
    assert_eq!(prefill.received().len(), 2, "what the old engine had is gone");
    let legs = decode.received();
    let of = |leg, member: &str| parsed(leg)["kv_transfer_params"][member].clone();
    assert_eq!(of(&legs[0], "remote_engine_id"), "e1");
    assert_eq!(of(&legs[1], "remote_engine_id"), "e2");
    assert_ne!(of(&legs[0], "transfer_id"), of(&legs[1], "transfer_id"));
}

#[tokio::test]
async fn a_decode_leg_whose_prompt_went_with_its_engine_is_not_waited_for() {
    let prefill = prefilling().await;
    let (bootstrap, engine) = bootstrap(E1).await;
    let (decode, mut decodes) = answered_by_hand().await;
    let router = one_pair(&prefill, &bootstrap, &decode).start().await;
    let answered = async {
        let _never = decodes.recv().await.unwrap();
        eventually("the prompt is computed", || prefill.busy() == 0).await;
        *engine.lock().unwrap() = Some(E2);
        let again = decodes.recv().await.unwrap();
        again.send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
    assert_eq!(prefill.received().len(), 2, "computed again");
    let engine = |leg| parsed(leg)["kv_transfer_params"]["remote_engine_id"].clone();
    assert_eq!(engine(&decode.received()[1]), "e2");
}

#[tokio::test]
async fn an_answer_from_before_the_doubt_does_not_settle_it() {
    let prefill = prefilling().await;
    let (bootstrap, mut questions) = answered_by_hand().await;
    let (decode, mut decodes) = answered_by_hand().await;
    // No query times out while the clock stands still.
    let router = one_pair(&prefill, &bootstrap, &decode).start_at_once().await;
    let clock = StoppedClock::stop();
    eventually("every worker was checked once", || router.has_checked_all()).await;
    let answered = async {
        questions.recv().await.unwrap().send(json(200, E1)).unwrap();
        let leg = decodes.recv().await.unwrap();
        let step = Duration::from_millis(50);
        let under_way = clock.pass_until(step, questions.recv()).await.unwrap();
        leg.send(json(500, "no such engine")).unwrap();
        eventually("the failure is seen", || {
            router.metric(r#"conductor_worker_failures_total{worker="d",kind="server-error"}"#) == 1.0
        })
        .await;
        under_way.send(json(200, E1)).unwrap();
        let later = clock.pass_until(step, questions.recv()).await.unwrap();
        later.send(json(200, E2)).unwrap();
        // The request is sent again after a pause.
        let again = clock.pass_until(step, decodes.recv()).await.unwrap();
        again.send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
    assert_eq!(prefill.received().len(), 2);
}

#[tokio::test]
async fn a_decode_worker_that_fails_where_no_worker_restarted_is_passed_over() {
    let (prefill, second) = (prefilling().await, Worker::named("e").await);
    let (bootstrap, _) = bootstrap(E1).await;
    let first = troubled(500).await;
    let router = one_pair(&prefill, &bootstrap, &first)
        .with_pd(|pd| pd.alone = true)
        .decode("e", &second.url())
        .start()
        .await;
    assert_eq!(send(router.address, request()).await.text().await, "e");
    assert_eq!(prefill.received().len(), 1, "it may be at fault as well");
    assert_eq!(second.received()[0].body, BODY);
}

#[tokio::test]
async fn a_worker_whose_bootstrap_server_is_down_gets_no_leg() {
    let (p, q, d) = (prefilling().await, prefilling().await, Worker::named("d").await);
    let (server, _) = bootstrap(E1).await;
    let builder = router().pd(Dialect::Mooncake).decode("d", &d.url());
    let builder = prefill(builder, "p", &p.url(), &Worker::unreachable());
    let router = prefill(builder, "q", &q.url(), &server.url()).start().await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("q"));
    assert!(p.received().is_empty());
}

#[tokio::test]
async fn a_request_is_refused_if_all_bootstrap_servers_are_down() {
    let (p, d) = (prefilling().await, Worker::named("d").await);
    let builder = router()
        .pd(Dialect::Mooncake)
        .with_pd(|pd| pd.alone = false)
        .decode("d", &d.url());
    let router = prefill(builder, "p", &p.url(), &Worker::unreachable())
        .start()
        .await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(
        answer
            .text()
            .await
            .contains("\"code\":\"prefill_engine_unknown\"")
    );
    assert!(p.received().is_empty() && d.received().is_empty());
    assert_eq!(router.outcomes("unreachable"), 1.0);
}

#[tokio::test]
async fn a_bad_request_casts_no_doubt_on_engine_ids() {
    let prefill = Worker::start(|request| async move {
        if header(&request, "x-bad").is_some() {
            json(400, "bad")
        } else {
            prefilled()
        }
    })
    .await;
    let (decode, (bootstrap, engine)) = (Worker::named("d").await, bootstrap(E1).await);
    let router = one_pair(&prefill, &bootstrap, &decode).start().await;
    send(router.address, request()).await.text().await;
    *engine.lock().unwrap() = None;
    let bad = with_header(request(), "x-bad", "1");
    assert_eq!(send(router.address, bad).await.status, 400);
    let queried = bootstrap.received().len();
    eventually("it is queried without success", || {
        bootstrap.received().len() > queried
    })
    .await;
    assert_eq!(send(router.address, request()).await.text().await, "d");
}
