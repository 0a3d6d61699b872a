//! Tests of workers behind a proxy that compresses their answers.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::StatusCode;
use http::header::{CONTENT_ENCODING, HeaderValue};

use crate::client::{post, send};
use crate::router::router;
use crate::worker::{Worker, json};

const NOT_FOUND: &str = r#"{"error":{"message":"The model `sql` does not exist.","type":"NotFoundError","param":"model","code":404}}"#;

fn compressed(encoding: &str) -> Bytes {
    let text = NOT_FOUND.as_bytes();
    match encoding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap().into()
        }
        _ => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap().into()
        }
    }
}

#[tokio::test]
async fn a_compressed_404_of_a_model_is_news_too_and_another_worker_is_tried() {
    for encoding in ["gzip", "deflate"] {
        let denies = Worker::start(move |_| async move {
            let mut answer = json(404, compressed(encoding));
            let encoding = HeaderValue::from_static(encoding);
            answer.headers_mut().insert(CONTENT_ENCODING, encoding);
            answer
        })
        .await;
        let serves = Worker::named("b").await;
        let router = router()
            .worker("a", &denies.url())
            .worker("b", &serves.url())
            .start()
            .await;
        let request = post("/v1/chat/completions", r#"{"model":"sql","messages":[]}"#);
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, StatusCode::OK, "{encoding}");
        assert!(!denies.received().is_empty(), "it was tried first");
    }
}
