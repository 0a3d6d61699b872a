//! Early rejection by the predicted time to the first token.

use std::time::Duration;

use http::StatusCode;
use proxy::AdmissionSpec;
use routing::{CostLine, CostSample};

use crate::client::{Answer, post, send};
use crate::router::{Router, router};
use crate::worker::{Worker, json};

/// Sends a prompt of so many bytes.
async fn sent(router: &Router, bytes: usize) -> Answer {
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(bytes));
    send(router.address, post("/v1/completions", body)).await
}

#[tokio::test]
async fn a_prompt_predicted_to_miss_its_ttft_target_is_refused_and_a_short_one_is_not() {
    let worker = Worker::start(|_| async { json(200, "{}") }).await;
    let router = router()
        .worker("a", &worker.url())
        .with(|builder| {
            builder.objectives.ttft_target = Some(Duration::from_secs(60));
            builder.admission = Some(AdmissionSpec {
                early_rejection: Some(1.0),
                ..AdmissionSpec::default()
            });
        })
        .start()
        .await;
    assert_eq!(
        sent(&router, 80_000).await.status,
        StatusCode::OK,
        "nothing is known"
    );
    // Another router has measured 10 ms a token.
    for at in 0..24_u8 {
        let thousands = 0.1 + f32::from(at % 7) / 10.0;
        router.worker("a").load().learn_elsewhere(&CostSample {
            line: CostLine::Prefill,
            numbers: [thousands, 0.0, 10_000.0 * thousands],
        });
    }
    let refused = sent(&router, 80_000).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.text().await.contains("too_slow"));
    let rejected = r#"conductor_admission_total{pool="main",result="rejected-early"}"#;
    assert_eq!(router.metric(rejected), 1.0);
    assert_eq!(sent(&router, 80).await.status, StatusCode::OK, "it is short");
    assert_eq!(worker.received().len(), 2);
}
