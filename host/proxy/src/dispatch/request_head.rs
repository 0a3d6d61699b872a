//! Head of a request that is to be placed on a worker, with the routing facts of its body or query.

use std::net::IpAddr;
use std::time::Instant;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method};
use inference_api::{BodyError, Endpoint, ModelField, Peek};
use routing::RunNumber;

use crate::observe::watch::RequestWatch;

/// Head of a request, and its number and time of arrival.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) endpoint: Endpoint,
    /// Number of the request, from 1.
    pub(crate) seq: u64,
    /// Number of the process's run.
    pub(crate) run: RunNumber,
    /// The request's `x-request-id`.
    pub(crate) id: HeaderValue,
    /// Address of the client.
    pub(crate) from: Option<IpAddr>,
    /// Time when the head had arrived.
    pub(crate) arrived: Instant,
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    pub(crate) headers: HeaderMap,
    /// Observation of the request on its way to a worker.
    pub(crate) watch: RequestWatch,
}

impl RequestHead {
    /// Returns the path, without a query.
    pub(crate) fn path(&self) -> &str {
        self.target.path()
    }

    /// Returns the body as engines read it: JSON without a byte order mark.
    pub(crate) fn trimmed(&self, body: Bytes) -> Bytes {
        match self.endpoint.spec().model {
            ModelField::Json => inference_api::without_bom(body),
            ModelField::Form | ModelField::Any | ModelField::Query => body,
        }
    }

    /// Reads the routing facts: from the query where the endpoint takes no body, else from the body.
    pub(crate) fn read<'b>(&self, body: &'b [u8]) -> Result<Peek<'b>, BodyError> {
        if self.endpoint.spec().model == ModelField::Query {
            return inference_api::read_query(self.endpoint, self.target.query().unwrap_or_default());
        }
        let mut types = self.headers.get_all(CONTENT_TYPE).iter();
        let only = types.next().filter(|_| types.next().is_none());
        inference_api::read_body(self.endpoint, only.map(HeaderValue::as_bytes), body)
    }
}
