//! Conversations against an engine.

use mock_engine::workload::{DriveError, Driver, Workload};
use mock_engine::{MockConfig, RequestFault, Times};

use crate::{instant, start};

fn small() -> Workload {
    Workload {
        sessions: 3,
        turns: 3,
        system_prompts: 1,
        system_tokens: 100,
        user_tokens: 20,
        answer_tokens: 8,
        ..Workload::default()
    }
}

fn fast(base_url: String) -> Driver {
    Driver {
        base_url,
        time_scale: 1e6,
        ..Driver::default()
    }
}

#[tokio::test]
async fn histories_and_system_prompts_are_found_in_the_cache() {
    let engine = start(MockConfig {
        cache_blocks: 4096,
        answer_tokens: 64,
        ..instant()
    })
    .await;
    let summary = fast(engine.url())
        .run(&small().multi_turn())
        .await
        .expect("a run");
    let stats = engine.stats();
    assert_eq!((summary.requests, summary.errors), (9, 0), "{summary:?}");
    assert_eq!(
        (summary.prompt_tokens, summary.cached_tokens),
        (stats.prompt_tokens, stats.cached_tokens)
    );
    assert_eq!((summary.generated_tokens, stats.generated_tokens), (72, 72));
    // All but the first system prompt, and every history: at least 8 of 9 times 100 tokens.
    assert!(summary.cached_share() > 0.7, "{summary:?}");
    assert!(summary.p50_ttft() <= summary.p99_ttft() && summary.mean_ttft().is_some());
}

#[tokio::test]
async fn failures_are_counted_and_named() {
    let engine = start(MockConfig {
        cache_blocks: 4096,
        ..instant()
    })
    .await;
    let status = http::StatusCode::SERVICE_UNAVAILABLE;
    let refuse = RequestFault::Status {
        status,
        retry_after: None,
    };
    engine.faults().on_requests(refuse, Times::Next(2));
    let summary = fast(engine.url())
        .run(&small().multi_turn())
        .await
        .expect("a run");
    assert_eq!((summary.requests, summary.errors), (9, 2));
    let error = summary.first_error.expect("an error");
    assert_eq!(
        error,
        "get an answer: it was refused with 503 Service Unavailable"
    );
    engine
        .faults()
        .on_requests(RequestFault::Cut { after_tokens: 2 }, Times::Next(1));
    let summary = fast(engine.url())
        .run(&small().multi_turn())
        .await
        .expect("a run");
    assert_eq!(summary.errors, 1);
}

#[tokio::test]
async fn a_run_needs_a_url_and_a_speed() {
    let no_url = fast("http://a b".to_owned()).run(&[]).await;
    assert!(matches!(no_url, Err(DriveError::BaseUrl { .. })));
    let stopped = Driver {
        time_scale: 0.0,
        ..fast(String::new())
    };
    assert!(matches!(
        stopped.run(&[]).await,
        Err(DriveError::TimeScale { .. })
    ));
}
