//! Pages for operators: rights, recorded requests, live updates, changes, and the configuration file.

mod changes;
mod config;
mod drain;
mod me;
mod requests;
mod stream;

use bytes::Bytes;
use harness::{Answer, Client};
use http::Method;

/// Admin key of these tests.
const KEY: &str = "secret-of-the-tests";

/// Returns the key of `[server]` that names the file of the admin key.
fn server_key() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/admin.key");
    format!("admin-api-key = {{ file = \"{file}\" }}\n")
}

/// Sends a request without a body.
async fn get(client: &Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    let sent = client.stream(Method::GET, path, headers, Bytes::new()).await;
    sent.unwrap().whole().await.unwrap()
}
