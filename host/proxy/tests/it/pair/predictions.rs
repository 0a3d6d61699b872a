//! Tests of the blocks expected in the caches of a pair: only where the prompt is, or is being computed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use proxy::{AssumedCache, Expectation};
use routing::{Dialect, Role};
use tokio::sync::mpsc;

use crate::client::{post, send};
use crate::eventually;
use crate::pair::concurrent::{self, E1, bootstrap};
use crate::pair::engines::E2;
use crate::pair::{one_pair, prefilled, prefilling, troubled};
use crate::policy::{Scripted, pair, route};
use crate::router::{Builder, Router, router, spec};
use crate::tokens::querying_worker;
use crate::worker::{ResponseSender, Worker, answered_by_hand, json};

/// Values of `worker.role`.
const PREFILL: u32 = 1;
const DECODE: u32 = 2;
/// Blocks of the prompt.
const BLOCKS: usize = 5;

fn request() -> Request<Bytes> {
    let body = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10],"max_tokens":9}"#;
    post("/v1/completions", body)
}

/// Assumes caches with blocks of 2 tokens at all workers, and splits requests.
fn assuming(builder: Builder) -> Builder {
    assuming_for(builder, splitting())
}

/// Does the same with a policy that is kept for its inputs.
fn assuming_for(builder: Builder, policy: Arc<Scripted>) -> Builder {
    builder.policy(policy).with(querying_worker).with(|builder| {
        let assumed = AssumedCache {
            tokens: 1_000,
            block_size: 2,
            lifetime: Duration::from_secs(60),
        };
        builder.expectation = Expectation {
            until_confirmed: Duration::ZERO,
            assumed: Some(assumed),
        };
    })
}

fn expected(router: &Router) -> usize {
    router.index.stats().expected
}

/// Policy that splits each request between the first prefill and the first decode worker that are left, and is shown
/// what each worker holds.
fn splitting() -> Arc<Scripted> {
    Scripted::seeing(&[], &["worker.role", "prefix.any-tokens"], |input| {
        let first = |role: u32| {
            let row = input.numbers.chunks(2).position(|row| row[0] as u32 == role);
            row.map(|row| row as u32)
        };
        let answers = first(DECODE).unwrap();
        Ok(first(PREFILL).map_or_else(|| route(answers), |prefill| pair(answers, prefill)))
    })
}

/// Returns what each worker held at the decision of that number.
fn held(policy: &Scripted, decision: usize) -> Vec<f64> {
    policy.shown()[decision]
        .iter()
        .skip(1)
        .step_by(2)
        .copied()
        .collect()
}

/// Checks that the decode worker is expected to hold the prompt once its leg is sent.
async fn check_sequential(dialect: Dialect) {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (decode, mut decodes) = answered_by_hand().await;
    let router = assuming(one_pair(dialect, &prefill, &decode)).start().await;
    let answered = async {
        let p = prefills.recv().await.unwrap();
        assert_eq!(expected(&router), BLOCKS, "at the prefill worker alone");
        p.send(prefilled()).unwrap();
        let d = decodes.recv().await.unwrap();
        assert_eq!(expected(&router), 2 * BLOCKS);
        d.send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
    assert_eq!(expected(&router), 2 * BLOCKS);
}

#[tokio::test]
async fn a_decode_worker_is_not_expected_to_hold_a_prompt_while_it_is_computed() {
    check_sequential(Dialect::Nixl).await;
    check_sequential(Dialect::Store).await;
}

/// Router before a pair of workers that answer by hand.
struct PairByHand {
    router: Router,
    prefills: mpsc::Receiver<ResponseSender>,
    decodes: mpsc::Receiver<ResponseSender>,
    _workers: [Worker; 3],
}

impl PairByHand {
    async fn start() -> Self {
        let (prefill, prefills) = answered_by_hand().await;
        let (decode, decodes) = answered_by_hand().await;
        let (bootstrap, _) = bootstrap(E1).await;
        let pair = concurrent::one_pair(&prefill, &bootstrap, &decode);
        Self {
            router: assuming(pair).start().await,
            prefills,
            decodes,
            _workers: [prefill, decode, bootstrap],
        }
    }
}

#[tokio::test]
async fn with_both_legs_sent_it_is_expected_to_hold_it_once_it_is_computed() {
    let PairByHand {
        router,
        mut prefills,
        mut decodes,
        _workers,
    } = PairByHand::start().await;
    let answered = async {
        let (p, d) = (prefills.recv().await.unwrap(), decodes.recv().await.unwrap());
        assert_eq!(expected(&router), BLOCKS, "at the prefill worker alone");
        p.send(prefilled()).unwrap();
        eventually("both hold it", || expected(&router) == 2 * BLOCKS).await;
        d.send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
    assert_eq!(expected(&router), 2 * BLOCKS);
}

/// Starts a pair of SGLang's engines, whose prefill worker answers beside the decode worker.
async fn sglang(decode: &Worker) -> (Router, (Worker, mpsc::Receiver<ResponseSender>)) {
    let (prefill, prefills) = answered_by_hand().await;
    let mut p = spec(Role::Prefill, "p", &prefill.url());
    p.bootstrap = Some("http://10.0.0.1:8998".into());
    let builder = router()
        .pd(Dialect::Sglang)
        .specified(p)
        .decode("d", &decode.url());
    (assuming(builder).start().await, (prefill, prefills))
}

#[tokio::test]
async fn an_answer_beside_the_prefill_leg_shows_that_the_decode_worker_has_the_prompt() {
    let decode = Worker::named("d").await;
    let (router, _prefill) = sglang(&decode).await;
    send(router.address, request()).await.text().await;
    assert_eq!(expected(&router), 2 * BLOCKS);
}

#[tokio::test]
async fn a_prefill_leg_that_is_cancelled_with_a_refusal_leaves_no_prompt() {
    for status in [400, 503] {
        let decode = troubled(status).await;
        let (router, _prefill) = sglang(&decode).await;
        let answer = send(router.address, request()).await;
        assert_eq!(answer.status, status);
        assert_eq!(expected(&router), 0, "{status}");
    }
}

#[tokio::test]
async fn a_retry_after_a_failed_prefill_leg_finds_the_prompt_nowhere() {
    let (busy, well, decode) = (troubled(503).await, prefilling().await, Worker::named("d").await);
    let policy = splitting();
    let builder = router()
        .pd(Dialect::Nixl)
        .prefill("p", &busy.url())
        .prefill("q", &well.url())
        .decode("d", &decode.url());
    let router = assuming_for(builder, policy.clone()).start().await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("q"));
    assert_eq!(answer.text().await, "d");
    assert_eq!(held(&policy, 1), [0.0; 2], "{:?}", policy.shown());
    assert_eq!(expected(&router), 2 * BLOCKS, "at the second pair");
}

#[tokio::test]
async fn a_decode_worker_that_refuses_a_prompt_is_not_expected_to_hold_it() {
    let (prefill, busy, well) = (prefilling().await, troubled(503).await, Worker::named("d").await);
    let builder = router()
        .pd(Dialect::Nixl)
        .prefill("p", &prefill.url())
        .decode("d", &busy.url())
        .decode("e", &well.url());
    let router = assuming(builder).start().await;
    assert_eq!(send(router.address, request()).await.text().await, "d");
    assert_eq!(prefill.received().len(), 1, "the prompt is handed over again");
    assert_eq!(expected(&router), 2 * BLOCKS, "at `p` and at `e`");
}

#[tokio::test]
async fn a_failure_that_no_worker_is_blamed_for_leaves_no_prediction() {
    let prefill = prefilling().await;
    let (bootstrap, engine) = bootstrap(E1).await;
    let (decode, mut decodes) = answered_by_hand().await;
    let policy = splitting();
    let pair = concurrent::one_pair(&prefill, &bootstrap, &decode);
    let router = assuming_for(pair, policy.clone()).start().await;
    let answered = async {
        let first = decodes.recv().await.unwrap();
        *engine.lock().unwrap() = Some(E2);
        first.send(json(500, "no such engine")).unwrap();
        let again = decodes.recv().await.unwrap();
        again.send(json(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "d");
    assert_eq!(held(&policy, 1), [0.0; 2], "the prompt went with its engine");
}

#[tokio::test]
async fn a_prefill_leg_that_no_decode_worker_waits_for_leaves_no_prompt() {
    let PairByHand {
        router,
        mut prefills,
        mut decodes,
        _workers,
    } = PairByHand::start().await;
    let answered = async {
        let open = prefills.recv().await.unwrap();
        decodes.recv().await.unwrap().send(json(503, "busy")).unwrap();
        open
    };
    let (answer, _open) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.status, 503);
    assert_eq!(expected(&router), 0);
}

#[tokio::test]
async fn a_prefill_leg_that_another_decode_worker_waits_for_is_expected_to_leave_its_prompt() {
    let (prefill, mut prefills) = answered_by_hand().await;
    let (decode, mut decodes) = answered_by_hand().await;
    let busy = troubled(503).await;
    let (bootstrap, _) = bootstrap(E1).await;
    let pair = concurrent::one_pair(&prefill, &bootstrap, &busy);
    let router = assuming(pair.decode("e", &decode.url())).start().await;
    let answered = async {
        let (p, d) = (prefills.recv().await.unwrap(), decodes.recv().await.unwrap());
        assert_eq!(expected(&router), BLOCKS, "at `p` alone");
        p.send(prefilled()).unwrap();
        d.send(json(200, "e")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    assert_eq!(answer.text().await, "e");
    assert_eq!(prefill.received().len(), 1, "the prompt is computed once");
    assert_eq!(expected(&router), 2 * BLOCKS, "at `p` and at `e`");
}
