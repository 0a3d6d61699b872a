//! Tests of concurrent legs with the same body that meet in a bootstrap room: SGLang.

use routing::{Dialect, DpRank, Role};
use serde_json::json as value;

use crate::client::send;
use crate::eventually;
use crate::pair::{begun, header, parsed, request, troubled};
use crate::router::{Builder, Router, router, spec};
use crate::worker::{Worker, answered_by_hand, json, streaming, writing};

fn one_pair(prefill: &Worker, decode: &Worker) -> Builder {
    let mut prefill = spec(Role::Prefill, "p", &prefill.url());
    prefill.bootstrap = Some("http://10.0.0.1:8998".into());
    router()
        .pd(Dialect::Sglang)
        .specified(prefill)
        .decode("d", &decode.url())
}

/// Waits until both workers are free of the request.
async fn both_legs_closed(router: &Router, prefill: &Worker, decode: &Worker) {
    eventually("both legs are closed", || {
        (prefill.busy(), decode.busy()) == (0, 0)
    })
    .await;
    eventually("the leases are given back", || {
        (router.in_flight("p"), router.in_flight("d")) == (0, 0)
    })
    .await;
}

#[tokio::test]
async fn both_get_the_same_body_and_a_room_of_their_own() {
    let (prefill, decode) = (Worker::named("p").await, Worker::named("d").await);
    let router = one_pair(&prefill, &decode).start().await;
    for _ in 0..2 {
        assert_eq!(send(router.address, request()).await.text().await, "d");
    }
    let (prefills, decodes) = (prefill.received(), decode.received());
    assert_eq!(prefills[0].body, decodes[0].body);
    let body = parsed(&prefills[0]);
    assert_eq!(body["bootstrap_host"], "10.0.0.1");
    assert_eq!(body["bootstrap_port"], 8998);
    assert_eq!(body["max_tokens"], 9);
    assert!(body["bootstrap_room"].is_u64());
    assert_ne!(
        body["bootstrap_room"],
        parsed(&prefills[1])["bootstrap_room"],
        "a new one each time"
    );
}

#[tokio::test]
async fn ranks_stand_in_the_bodies() {
    let (p, d) = (Worker::named("p").await, Worker::named("d").await);
    let mut prefill = spec(Role::Prefill, "p@1", &p.url());
    prefill.bootstrap = Some("http://[::1]:9".into());
    prefill.rank = Some(DpRank(1));
    let mut decode = spec(Role::Decode, "d@2", &d.url());
    decode.rank = Some(DpRank(2));
    let router = router()
        .pd(Dialect::Sglang)
        .specified(prefill)
        .specified(decode)
        .start()
        .await;
    send(router.address, request()).await.text().await;
    let (first, second) = (parsed(&p.received()[0]), parsed(&d.received()[0]));
    assert_eq!(first["bootstrap_host"], "[::1]");
    assert_eq!(
        (&first["routed_dp_rank"], &first["disagg_prefill_dp_rank"]),
        (&value!(1), &value!(null))
    );
    assert_eq!(
        (&second["routed_dp_rank"], &second["disagg_prefill_dp_rank"]),
        (&value!(2), &value!(1))
    );
    assert_eq!(header(&p.received()[0], "x-data-parallel-rank"), Some("1"));
}

#[tokio::test]
async fn the_rest_of_the_prefill_answer_is_drained_and_its_connection_serves_again() {
    let (prefill, mut prefills) = writing("application/json").await;
    let decode = Worker::named("d").await;
    let router = one_pair(&prefill, &decode).start().await;
    for _ in 0..2 {
        let answer = send(router.address, request()).await;
        let pen = prefills.recv().await.unwrap();
        assert_eq!(answer.text().await, "d", "it does not wait for the rest");
        assert_eq!(router.in_flight("p"), 1);
        pen.send(Ok("the rest".into())).await.unwrap();
        drop(pen);
        eventually("the lease is given back", || router.in_flight("p") == 0).await;
    }
    assert_eq!(prefill.connections(), 1);
}

#[tokio::test]
async fn when_the_client_leaves_before_the_answer_both_legs_are_closed() {
    let ((prefill, mut prefills), (decode, mut decodes)) =
        (answered_by_hand().await, answered_by_hand().await);
    let router = one_pair(&prefill, &decode).start().await;
    let both = async { (prefills.recv().await.unwrap(), decodes.recv().await.unwrap()) };
    let _never = tokio::select! {
        _ = send(router.address, request()) => unreachable!("no worker answers"),
        both = both => both,
    };
    both_legs_closed(&router, &prefill, &decode).await;
    assert_eq!(router.outcomes("client-left"), 1.0);
}

#[tokio::test]
async fn when_the_client_leaves_the_stream_both_legs_are_closed() {
    let ((prefill, mut prefills), (decode, mut decodes)) = (streaming().await, begun().await);
    let router = one_pair(&prefill, &decode).start().await;
    let mut answer = send(router.address, request()).await;
    let (_prefill_pen, _pen) = (prefills.recv().await.unwrap(), decodes.recv().await.unwrap());
    answer.piece().await.unwrap().unwrap();
    assert_eq!((prefill.busy(), decode.busy()), (1, 1));
    drop(answer);
    both_legs_closed(&router, &prefill, &decode).await;
}

#[tokio::test]
async fn a_leg_that_fails_closes_the_other_and_a_new_room_is_tried() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (first, second) = (troubled(503).await, Worker::named("e").await);
    let router = one_pair(&prefill, &first)
        .decode("e", &second.url())
        .start()
        .await;
    let answered = async {
        let _never = prefills.recv().await.unwrap();
        let again = prefills.recv().await.unwrap();
        eventually("the first is closed", || prefill.busy() == 1).await;
        again.send(json(200, "p")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "e");
    let rooms = prefill.received();
    let room = |leg| parsed(leg)["bootstrap_room"].clone();
    assert_ne!(room(&rooms[0]), room(&rooms[1]));
    assert_eq!(room(&rooms[1]), room(&second.received()[0]));
}
