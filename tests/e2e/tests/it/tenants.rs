//! Service of tenants, by which the queue is ordered.

use bytes::Bytes;
use futures_util::future::join_all;
use harness::{Fleet, eventually};
use http::{Method, StatusCode};
use mock_engine::MockConfig;

use crate::admission::{CHAT, Sent, hang, known, received, send, start};
use crate::{chat, fast};

/// Sends the tokens of a stream over a third of a second, so that a client can cut it.
fn slower(number: usize, config: &mut MockConfig) {
    fast(number, config);
    config.time_scale = 2.0;
}

#[tokio::test]
async fn an_answer_that_its_client_cuts_is_charged_for_what_was_sent() {
    let fleet = Fleet::start(1, slower).await.unwrap();
    let router = start(&fleet, "", "requests = 1\nexpected-output = 8", "").await;
    let stream = async |tenant: &str, most: usize, read: usize| {
        let mut body = chat("x", true);
        body["max_tokens"] = most.into();
        let (headers, body) = ([("x-tenant", tenant)], Bytes::from(body.to_string()));
        let stream = router.client.stream(Method::POST, CHAT, &headers, body);
        let (mut stream, mut events) = (stream.await.unwrap(), 0);
        while events < read
            && let Some(chunk) = stream.chunk().await.unwrap()
        {
            events += chunk.windows(6).filter(|text| *text == b"data: ").count();
        }
        drop(stream);
        eventually("its place is free", || async { known(&router).await == 0 }).await;
    };
    stream("cuts", 3_000, 50).await;
    stream("reads", 30, usize::MAX).await;
    hang(&fleet);
    let mut sent = vec![send(&router, "first", &[("x-tenant", "other")]).await];
    for (text, tenant) in [("c", "cuts"), ("r", "reads")] {
        sent.push(send(&router, text, &[("x-tenant", tenant)]).await);
    }
    fleet.engines[0].faults().clear();
    for answer in join_all(sent.into_iter().map(Sent::answer)).await {
        assert_eq!(answer.status, StatusCode::OK);
    }
    // Both were estimated alike, and `cuts` was served more.
    assert_eq!(received(&fleet)[2..], ["first", "r", "c"]);
}
