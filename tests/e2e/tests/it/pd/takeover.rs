//! Takeover with two workers of each kind: a worker that fails before any output costs no request, because another
//! pair answers.

use std::time::Duration;

use harness::{End, SplitFleet, TestRouter, eventually, route_all};
use mock_engine::{MockEngine, PdDialect};

use super::fault::Fault::{self, *};
use super::{CHAT, DIALECTS, chat_body, reference, seen};
use crate::fast;

const FAULTS: [Fault; 8] = [
    PrefillBusy,
    PrefillRefuses,
    PrefillTorn,
    PrefillRestarted,
    BootstrapDown,
    StopsAtFirstToken,
    DecodeBusy,
    DecodeRefuses,
];
/// Enough for every worker's turn.
const REQUESTS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_pair_takes_over() {
    let (_engine, reference) = reference().await;
    for dialect in DIALECTS {
        let fleet = SplitFleet::start(dialect, (2, 2), |config| fast(0, config))
            .await
            .unwrap();
        let toml = fleet.pool_toml("chat", "") + &route_all("round-robin");
        let router = TestRouter::start(&toml).await.unwrap();
        let mut number = 0;
        for fault in FAULTS {
            fault.begin(&fleet).await;
            let (faulted, legs) = (fault.place(&fleet).stats().faulted, prefill_legs(&fleet));
            for _ in 0..REQUESTS {
                number += 1;
                let body = chat_body(number, number % 2 == 0);
                let what = format!("{dialect:?} {fault:?}");
                let expected = seen(&reference, CHAT, &body).await;
                let answer = seen(&router.client, CHAT, &body).await;
                assert_eq!(answer.end, End::Complete, "{what}: {answer:?}");
                assert_eq!(answer.text, expected.text, "{what}");
                assert!(
                    !answer.header("x-conductor-prefill-worker").is_empty(),
                    "{what}: {answer:?}"
                );
            }
            match fault {
                PrefillBusy | DecodeBusy => {
                    let met = fault.place(&fleet).stats().faulted > faulted;
                    assert!(met, "{dialect:?} {fault:?}: no request reached the busy worker");
                }
                _ => {}
            }
            // SGLang's prefill worker cannot use a decode worker that is unknown to it.
            if fault == DecodeBusy && dialect != PdDialect::Sglang {
                assert_eq!(
                    prefill_legs(&fleet) - legs,
                    REQUESTS as u64,
                    "{dialect:?}: each prompt is computed once"
                );
            }
            fault.end(&fleet).await;
            eventually("no lease is left", || async {
                router.leases("chat-").await.unwrap() == 0.0
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decode_worker_that_dies_with_the_prompt_costs_no_request() {
    for dialect in DIALECTS {
        let fleet = SplitFleet::start(dialect, (1, 2), |config| config.time_scale = 2.0)
            .await
            .unwrap();
        let toml = fleet.pool_toml("chat", "") + &route_all("round-robin");
        let router = TestRouter::start(&toml).await.unwrap();
        // From now on, there are connections to all of them.
        for number in 0..2 {
            let answer = seen(&router.client, CHAT, &chat_body(number, false)).await;
            assert_eq!(answer.end, End::Complete, "{dialect:?}: {answer:?}");
        }
        let mut body = chat_body(2, false);
        body["max_tokens"] = 100.into();
        let dies = async {
            let generated = |engine: &MockEngine| engine.stats().generated_tokens;
            let before: Vec<u64> = fleet.decode.iter().map(generated).collect();
            loop {
                let mut engines = fleet.decode.iter().zip(&before);
                if let Some((engine, _)) = engines.find(|(engine, before)| generated(engine) > **before + 3) {
                    return engine.faults().refuse_connections().await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let (answer, ()) = tokio::join!(seen(&router.client, CHAT, &body), dies);
        assert_eq!(answer.end, End::Complete, "{dialect:?}: {answer:?}");
    }
}

fn prefill_legs(fleet: &SplitFleet) -> u64 {
    fleet
        .prefill
        .iter()
        .map(|engine| engine.stats().prefill_legs)
        .sum()
}
