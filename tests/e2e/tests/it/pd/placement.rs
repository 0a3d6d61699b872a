//! Placement of legs: ranks, a policy for pairs, and roles that change under load.

use std::collections::BTreeSet;

use harness::{End, SplitFleet, TestRouter, eventually, route_all};
use mock_engine::{MockEngine, PdDialect};
use serde_json::{Value, json};

use super::{CHAT, DIALECTS, chat_body, seen};
use crate::{fast, fast_fleet};

/// Returns the ranks that requests to an engine were pinned to.
fn ranks(engine: &MockEngine) -> BTreeSet<String> {
    let requests = engine.requests(CHAT);
    let rank = |headers: &http::HeaderMap| headers["x-data-parallel-rank"].to_str().unwrap().to_owned();
    requests.iter().map(|request| rank(&request.headers)).collect()
}

#[tokio::test]
async fn every_rank_of_every_engine_gets_legs_and_none_out_of_range() {
    for dialect in DIALECTS {
        let fleet = SplitFleet::start(dialect, (1, 1), |config| {
            fast(0, config);
            config.dp_ranks = 2;
        });
        let fleet = fleet.await.unwrap();
        let toml = fleet.pool_toml("chat", "").replace(
            "kv-events = \"off\"\n",
            "kv-events = \"off\"\ndata-parallel = { ranks = 2 }\n",
        );
        let router = TestRouter::start(&(toml + &route_all("round-robin")))
            .await
            .unwrap();
        let (mut prefill, mut decode) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..8 {
            let answer = seen(&router.client, CHAT, &chat_body(number, number % 2 == 0)).await;
            assert_eq!(answer.end, End::Complete, "{dialect:?}: {answer:?}");
            prefill.insert(answer.header("x-conductor-prefill-worker").to_owned());
            decode.insert(answer.header("x-conductor-worker").to_owned());
        }
        let both = |worker: &str| [0, 1].map(|rank| format!("chat-{worker}@{rank}")).into();
        assert_eq!((prefill, decode), (both("p0"), both("d0")), "{dialect:?}");
        for engine in [&fleet.prefill[0], &fleet.decode[0]] {
            assert_eq!(ranks(engine), ["0", "1"].map(str::to_owned).into(), "{dialect:?}");
        }
    }
}

/// Returns a conversation of so many turns of some 1,500 tokens, the last one short.
fn conversation(topic: &str, turns: usize) -> Value {
    let turn = |turn: usize| -> String { (0..600).map(|word| format!("{topic}{turn}word{word} ")).collect() };
    let mut messages: Vec<_> = (0..turns)
        .map(|number| json!({ "role": "user", "content": turn(number) }))
        .collect();
    if turns > 2 {
        messages.push(json!({ "role": "user", "content": "go on" }));
    }
    json!({ "model": "mock", "max_tokens": 4, "messages": messages })
}

#[tokio::test]
async fn pd_pairing_splits_what_is_long_and_leaves_short_remainders_to_who_has_the_rest() {
    let fleet = SplitFleet::start(PdDialect::Nixl, (1, 2), |config| fast(0, config));
    let fleet = fleet.await.unwrap();
    // Found by a query of the engines.
    let toml = fleet
        .pool_toml("chat", "")
        .replace("kv-events = \"off\"\n", "")
        .replace("[pools.chat]\n", "[pools.chat]\ntokenize-timeout = \"5s\"\n");
    let router = TestRouter::start(&(toml + &route_all("pd-pairing")))
        .await
        .unwrap();
    let all_live = |page: &Value| {
        let mut workers = page["pools"][0]["workers"].as_array().unwrap().iter();
        workers.all(|worker| worker["feed_live"] == true)
    };
    router
        .admin_shows("/status", "every feed is live", all_live)
        .await;

    let first = seen(&router.client, CHAT, &conversation("a", 3)).await;
    assert!(
        !first.header("x-conductor-prefill-worker").is_empty(),
        "{first:?}"
    );
    eventually("the decode worker is known to have the prompt", || async {
        let answer = seen(&router.client, CHAT, &conversation("a", 3)).await;
        assert_eq!(answer.end, End::Complete, "{answer:?}");
        answer.header("x-conductor-prefill-worker").is_empty()
            && answer.header("x-conductor-worker") == first.header("x-conductor-worker")
    })
    .await;
    let other = seen(&router.client, CHAT, &conversation("b", 3)).await;
    assert!(
        !other.header("x-conductor-prefill-worker").is_empty(),
        "{other:?}"
    );
}

#[tokio::test]
async fn roles_change_with_the_file_while_requests_run() {
    // Engines that need nothing between the legs play every role.
    let fleet = fast_fleet(3).await;
    let toml = |roles: [&str; 3]| {
        let workers = fleet.engines.iter().zip(roles).enumerate();
        let workers = workers.map(|(number, (engine, role))| {
            let url = engine.url();
            format!("[[pools.chat.workers]]\nname = \"w{number}\"\nrole = \"{role}\"\nurl = \"{url}\"\nkv-events = \"off\"\n")
        });
        let workers: String = workers.collect();
        format!(
            "[pools.chat]\npd = {{ dialect = \"store\" }}\n{workers}{}",
            route_all("round-robin")
        )
    };
    let router = TestRouter::start(&toml(["prefill", "decode", "decode"]))
        .await
        .unwrap();
    let mut number = 0;
    for (at, (roles, pairs)) in [
        (["prefill", "decode", "decode"], &["w0 w1", "w0 w2"][..]),
        (["prefill", "decode", "prefill"], &["w0 w1", "w2 w1"]),
        (["decode", "prefill", "prefill"], &["w1 w0", "w2 w0"]),
        (["mixed", "mixed", "decode"], &[" w0", " w1"]),
    ]
    .into_iter()
    .enumerate()
    {
        if at > 0 {
            let mut before = router
                .client
                .open(CHAT, &chat_body(1000 + at, true))
                .await
                .unwrap();
            router.save_config(&toml(roles)).unwrap();
            let applied = |page: &Value| page["reloads_applied"] == at;
            router
                .admin_shows("/admin/config", "the roles are active", applied)
                .await;
            let mut text = Vec::new();
            while let Some(chunk) = before.chunk().await.unwrap() {
                text.extend_from_slice(&chunk);
            }
            assert!(
                text.ends_with(b"data: [DONE]\n\n"),
                "what ran before ends as it began"
            );
        }
        let mut seen_pairs = BTreeSet::new();
        for _ in 0..6 {
            number += 1;
            let answer = seen(&router.client, CHAT, &chat_body(number, false)).await;
            assert_eq!(answer.end, End::Complete, "{roles:?}: {answer:?}");
            let [prefill, decode] = ["x-conductor-prefill-worker", "x-conductor-worker"];
            seen_pairs.insert(format!("{} {}", answer.header(prefill), answer.header(decode)));
        }
        let expected = pairs.iter().map(|&pair| pair.to_owned()).collect();
        assert_eq!(seen_pairs, expected, "{roles:?}");
    }
}
