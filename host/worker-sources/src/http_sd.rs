//! Prometheus' `http_sd`: a list of target groups over HTTP.

use http::StatusCode;
use worker_discovery::{Decoded, target_groups};

use crate::client::SourceClient;
use crate::error::SourceError;
use crate::spec::SourceSpec;

/// Queries the server.
pub(crate) async fn query(
    client: &SourceClient,
    path: &str,
    spec: &SourceSpec,
) -> Result<Decoded, SourceError> {
    let reply = client.get(path).await?;
    match reply.status {
        StatusCode::OK => Ok(target_groups(&reply.body, &spec.defaults)?),
        status => Err(SourceError::Status(status)),
    }
}
