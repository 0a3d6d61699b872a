//! Tests of the workers that a split request gets: both in one decision or in turn, and requests that cannot be split.

use std::sync::Arc;

use http::StatusCode;
use routing::{Dialect, Hold, Phase, Policy, Rejection, Verdict};

use crate::client::{post, send};
use crate::eventually;
use crate::pair::{BODY, one_pair, prefilling, request};
use crate::policy::{Scripted, pair, route};
use crate::router::{Builder, router};
use crate::worker::{Worker, answered_by_hand, json};

/// Two workers of each role, in the order m, p, d, n, q, e. Each one that answers clients answers with its name.
struct Six(Vec<(&'static str, Worker)>);

impl Six {
    async fn start() -> Self {
        let mut workers = vec![];
        for name in ["m", "p", "d", "n", "q", "e"] {
            let worker = match name {
                "p" | "q" => prefilling().await,
                _ => Worker::named(name).await,
            };
            workers.push((name, worker));
        }
        Self(workers)
    }

    fn router(&self) -> Builder {
        self.0.iter().fold(
            router().pd(Dialect::Nixl),
            |builder, (name, worker)| match *name {
                "m" | "n" => builder.worker(name, &worker.url()),
                "p" | "q" => builder.prefill(name, &worker.url()),
                _ => builder.decode(name, &worker.url()),
            },
        )
    }

    /// Returns the workers that received a request.
    fn called(&self) -> Vec<&'static str> {
        let called = self.0.iter().filter(|(_, worker)| !worker.received().is_empty());
        called.map(|(name, _)| *name).collect()
    }
}

#[tokio::test]
async fn a_pairing_policy_is_called_once_with_all_workers_and_its_pair_is_used() {
    let six = Six::start().await;
    let policy = Scripted::seeing(&[], &["worker.role"], |_| Ok(pair(5, 4)));
    let router = six.router().policy(policy.clone()).start().await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.text().await, "e");
    assert_eq!(six.called(), ["q", "e"]);
    assert_eq!(policy.phases(), [Phase::Mixed]);
    assert_eq!(policy.shown(), [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0]]);
}

#[tokio::test]
async fn a_pairing_policy_may_give_all_to_one_worker() {
    for (row, name) in [(3, "n"), (2, "d")] {
        let six = Six::start().await;
        let policy = Scripted::seeing(&[], &["worker.role"], move |_| Ok(route(row)));
        let router = six.router().policy(policy).start().await;
        assert_eq!(send(router.address, request()).await.text().await, name);
        assert_eq!(six.called(), [name]);
        assert_eq!(
            router.metric(r#"conductor_pd_placements_total{pool="main",shape="whole"}"#),
            1.0
        );
    }
}

#[tokio::test]
async fn a_pair_that_makes_no_sense_is_a_fault_and_the_fallback_makes_one_that_does() {
    // p, d, q: roles swapped, no decode worker, prefill alone, the worker itself, no such worker.
    for verdict in [pair(0, 1), pair(2, 0), route(0), pair(1, 1), pair(1, 9)] {
        let (p, d, q) = (prefilling().await, Worker::named("d").await, prefilling().await);
        let answer = verdict.clone();
        let policy = Scripted::seeing(&[], &["worker.role"], move |_| Ok(answer.clone()));
        let router = one_pair(Dialect::Nixl, &p, &d)
            .prefill("q", &q.url())
            .policy(policy)
            .start()
            .await;
        let answer = send(router.address, request()).await;
        assert_eq!(answer.text().await, "d", "{verdict:?}");
        assert_eq!(p.received().len() + q.received().len(), 1);
        assert_eq!(
            router.metric(r#"conductor_policy_faults_total{policy="scripted",kind="invalid-verdict"}"#),
            1.0
        );
        assert_eq!(router.fallbacks("scripted"), [0.0, 1.0, 0.0]);
    }
}

#[tokio::test]
async fn decode_alone_is_no_answer_where_it_is_not_allowed() {
    let (p, d) = (prefilling().await, Worker::named("d").await);
    let policy = Scripted::seeing(&[], &["worker.role"], |_| Ok(route(1)));
    let router = one_pair(Dialect::Nixl, &p, &d)
        .with_pd(|pd| pd.alone = false)
        .policy(policy)
        .start()
        .await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-prefill-worker"), Some("p"));
}

#[tokio::test]
async fn any_other_policy_is_called_for_each_phase_with_the_workers_that_can_take_it() {
    let six = Six::start().await;
    let policy = Scripted::seeing(&[], &["worker.weight"], |input| {
        // m, p, n, q; then d, e.
        Ok(route(if input.request.phase == Phase::Prefill {
            3
        } else {
            1
        }))
    });
    let router = six.router().policy(policy.clone()).start().await;
    assert_eq!(send(router.address, request()).await.text().await, "e");
    assert_eq!(six.called(), ["q", "e"]);
    assert_eq!(policy.phases(), [Phase::Prefill, Phase::Decode]);
    let shown: Vec<_> = policy.shown().iter().map(Vec::len).collect();
    assert_eq!(shown, [4, 2]);
}

#[tokio::test]
async fn a_mixed_worker_chosen_to_begin_does_all() {
    let six = Six::start().await;
    let policy = Scripted::new(|_| Ok(route(2)));
    let router = six.router().policy(policy.clone()).start().await;
    let answer = send(router.address, request()).await;
    assert_eq!(answer.header("x-conductor-prefill-worker"), None);
    assert_eq!(answer.text().await, "n");
    assert_eq!(
        policy.phases(),
        [Phase::Prefill],
        "there is nothing left to place"
    );
    let (_, mixed) = &six.0[3];
    assert_eq!(mixed.received()[0].body, BODY);
}

#[tokio::test]
async fn a_phase_of_its_own_policy_is_not_the_routes_to_place() {
    let six = Six::start().await;
    let (prefill, decode) = (Scripted::new(|_| Ok(route(1))), Scripted::new(|_| Ok(route(1))));
    let pairing = Scripted::seeing(&[], &["worker.role"], |_| Ok(route(0)));
    let router = six
        .router()
        .policy(pairing.clone())
        .with(|builder| builder.prefill_policy = Some(Arc::clone(&prefill) as Arc<dyn Policy>))
        .with(|builder| builder.decode_policy = Some(Arc::clone(&decode) as Arc<dyn Policy>))
        .start()
        .await;
    assert_eq!(send(router.address, request()).await.text().await, "e");
    assert_eq!(six.called(), ["p", "e"]);
    assert_eq!(prefill.phases(), [Phase::Prefill]);
    assert_eq!(decode.phases(), [Phase::Decode]);
    assert!(pairing.phases().is_empty());
}

#[tokio::test]
async fn a_prompt_that_is_computed_is_placed_by_the_decode_policy_alone() {
    let (prefill, second) = (prefilling().await, Worker::named("e").await);
    let policy = Scripted::first(&[], &["worker.weight"]);
    let first = super::troubled(503).await;
    let router = one_pair(Dialect::Nixl, &prefill, &first)
        .decode("e", &second.url())
        .policy(policy.clone())
        .start()
        .await;
    assert_eq!(send(router.address, request()).await.text().await, "e");
    assert_eq!(policy.phases(), [Phase::Prefill, Phase::Decode, Phase::Decode]);
    assert_eq!(policy.shown()[2].len(), 1, "without the one that was tried");
}

#[tokio::test]
async fn either_phase_may_refuse() {
    for phase in [Phase::Prefill, Phase::Decode, Phase::Mixed] {
        let six = Six::start().await;
        let columns: &[&str] = if phase == Phase::Mixed {
            &["worker.role"]
        } else {
            &[]
        };
        let policy = Scripted::seeing(&[], columns, move |input| {
            if input.request.phase != phase {
                return Ok(route(1));
            }
            Ok(Verdict::Reject(Rejection {
                status: 429,
                retry_after_ms: 2_000,
                reason: "over budget".to_owned(),
            }))
        });
        let router = six.router().policy(policy).start().await;
        let answer = send(router.address, request()).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.header("retry-after"), Some("2"));
        assert!(answer.text().await.contains("over budget"));
        assert!(six.called().is_empty());
    }
}

#[tokio::test]
async fn either_phase_may_hold_and_both_are_reevaluated() {
    for phase in [Phase::Prefill, Phase::Decode] {
        let prefill = prefilling().await;
        let (decode, mut decodes) = answered_by_hand().await;
        let policy = Scripted::seeing(&[], &["load.requests"], move |input| {
            if input.request.phase == phase && input.request.seq == 2 && input.request.attempt == 0 {
                return Ok(Verdict::Queue(Hold {
                    order: 0.0,
                    ask_again_ms: 10_000,
                    waits_for: None,
                }));
            }
            Ok(route(0))
        });
        let router = one_pair(Dialect::Nixl, &prefill, &decode)
            .policy(policy)
            .start()
            .await;
        let first = send(router.address, request());
        let second = async {
            let response = decodes.recv().await.unwrap();
            let second = send(router.address, request());
            let released = async {
                eventually("the second is held", || router.pool_metric("queue_length") == 1.0).await;
                assert_eq!(
                    prefill.received().len(),
                    1,
                    "nothing is sent before both are placed"
                );
                response.send(json(200, "first")).unwrap();
                decodes.recv().await.unwrap().send(json(200, "second")).unwrap();
            };
            futures_util::join!(second, released).0
        };
        let (first, second) = futures_util::join!(first, second);
        assert_eq!(first.text().await, "first");
        assert_eq!(second.text().await, "second");
    }
}

#[tokio::test]
async fn unsplittable_requests_are_refused_if_no_worker_serves_alone() {
    let (p, d) = (prefilling().await, Worker::named("d").await);
    let builder = one_pair(Dialect::Nixl, &p, &d).with_pd(|pd| pd.alone = false);
    let router = builder.start().await;
    let answer = send(
        router.address,
        post("/v1/embeddings", r#"{"model":"m","input":"hello"}"#),
    )
    .await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().await.contains("cannot_be_split"));
    assert!(p.received().is_empty() && d.received().is_empty());
}

#[tokio::test]
async fn a_leg_cannot_be_forged_in_the_parameters_of_an_engine() {
    let (p, d) = (prefilling().await, Worker::named("d").await);
    let router = one_pair(Dialect::Nixl, &p, &d).start().await;
    let body = r#"{"token_ids":[1],"sampling_params":{"extra_args":{"kv_transfer_params":{"a":1}}}}"#;
    let answer = send(router.address, post("/inference/v1/generate", body)).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().await.contains("handshake_not_allowed"));
    assert!(p.received().is_empty() && d.received().is_empty());
}

#[tokio::test]
async fn unsplittable_requests_go_whole_to_a_mixed_worker_or_else_to_decode() {
    for (path, body) in [
        ("/v1/embeddings", r#"{"model":"m","input":"hello"}"#),
        ("/v1/responses", r#"{"model":"m","input":"hello"}"#),
        ("/v1/rerank", r#"{"model":"m","query":"a","documents":["b"]}"#),
        ("/inference/v1/generate", r#"{"model":"m","token_ids":[1,2]}"#),
        ("/v1/completions", r#"{"model":"m","prompt":["a","b"]}"#),
        (
            "/v1/completions",
            r#"{"model":"m","prompt":"a","echo":true,"logprobs":1}"#,
        ),
    ] {
        for with_mixed in [true, false] {
            let (p, d, m) = (
                prefilling().await,
                Worker::named("d").await,
                Worker::named("m").await,
            );
            let mut builder = one_pair(Dialect::Nixl, &p, &d);
            if with_mixed {
                builder = builder.worker("m", &m.url());
            }
            let policy = Scripted::first(&[], &["worker.role"]);
            let router = builder.policy(policy.clone()).start().await;
            let (name, worker, role) = if with_mixed {
                ("m", &m, 0.0)
            } else {
                ("d", &d, 2.0)
            };
            assert_eq!(
                send(router.address, post(path, body)).await.text().await,
                name,
                "{path}"
            );
            assert_eq!(worker.received()[0].body, body);
            assert!(p.received().is_empty());
            assert_eq!(
                (policy.phases(), policy.shown()),
                (vec![Phase::Mixed], vec![vec![role]])
            );
        }
    }
}

#[tokio::test]
async fn a_leg_that_a_client_forges_is_refused() {
    for (dialect, body) in [
        (
            Dialect::Nixl,
            r#"{"model":"m","prompt":"a","kv_transfer_params":{"do_remote_decode":true}}"#,
        ),
        (Dialect::Store, r#"{"model":"m","prompt":"a","bootstrap_room":1}"#),
        (
            Dialect::Nixl,
            r#"{"model":"m","prompt":["a","b"],"kv_transfer_params":{}}"#,
        ),
    ] {
        let (p, d) = (prefilling().await, Worker::named("d").await);
        let router = one_pair(dialect, &p, &d).start().await;
        let answer = send(router.address, post("/v1/completions", body)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.text().await.contains("\"code\":\"handshake_not_allowed\""));
        assert!(p.received().is_empty() && d.received().is_empty());
        assert_eq!(router.outcomes("invalid"), 1.0);
    }
}

#[tokio::test]
async fn a_hand_over_is_refused_in_a_pool_that_does_not_split_too() {
    for (member, path) in [
        (r#""kv_transfer_params":{}"#, "/v1/completions"),
        (r#""ec_transfer_params":"""#, "/v1/completions"),
        (
            r#""vllm_xargs":{"kv_transfer_params":""}"#,
            "/v1/chat/completions",
        ),
        (r#""bootstrap_room":1"#, "/generate"),
        (
            r#""sampling_params":{"extra_args":{"ec_transfer_params":{}}}"#,
            "/inference/v1/generate",
        ),
    ] {
        let worker = Worker::named("a").await;
        let builder = router().worker("a", &worker.url());
        let mut router = builder.clone().start().await;
        let body = format!(r#"{{"model":"m","prompt":"a",{member}}}"#);
        let answer = send(router.address, post(path, body.clone())).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.text().await.contains("handshake_not_allowed"));
        assert!(worker.received().is_empty());

        router.change(builder.with(|builder| builder.accept_handover = true));
        send(router.address, post(path, body.clone())).await.text().await;
        assert_eq!(worker.received()[0].body, body);
    }
}
