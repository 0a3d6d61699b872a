//! Health checks of a worker: a probe of its health page, and a bare connection where probes are turned off.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use observability::error_chain;
use worker_client::{Authorization, ConnectionReuse, OutgoingRequest, SendError, SendTimeouts, read_body};

use super::{Finding, ProbeSpec};
use crate::base::label::{PROBES, ProbeResult};
use crate::fleet::pool::Member;
use crate::fleet::worker::WorkerHandle;

/// Longest health page, in bytes; the connection of a longer one is not kept.
const LONGEST_PAGE: usize = 64 << 10;

/// Result of a check, with the error for the reports.
type Checked = Result<ProbeResult, (ProbeResult, String)>;

/// Probes the worker's health page once, and records the result.
pub(super) async fn probe(member: &Member, spec: &ProbeSpec) {
    let answers = member.link.health.answers();
    let probed = tokio::time::timeout(spec.timeout, query_page(&member.link, spec)).await;
    let checked =
        probed.unwrap_or_else(|_| timed_out(&format!("answer to `GET {}`", spec.path), spec.timeout));
    record(member, checked, answers);
}

/// Connects to a pending worker whose probes are turned off, and closes the connection.
pub(super) async fn connect(member: &Member) {
    let (link, limit) = (&member.link, ProbeSpec::default().timeout);
    let answers = link.health.answers();
    let checked = match tokio::time::timeout(limit, link.upstream.check_connect(limit)).await {
        Ok(Ok(())) => Ok(ProbeResult::Passed),
        Ok(Err(error)) => Err((ProbeResult::Unreachable, error_chain(&error))),
        Err(_) => timed_out("connection", limit),
    };
    record(member, checked, answers);
}

fn timed_out(what: &str, limit: Duration) -> Checked {
    Err((ProbeResult::Timeout, format!("no {what} within {limit:?}")))
}

/// Records a check that began when the worker had given so many answers.
fn record(member: &Member, checked: Checked, answers: u64) {
    let link = &member.link;
    let result = match checked {
        Ok(result) => result,
        Err((result, trouble)) => {
            link.health.note(&trouble);
            result
        }
    };
    link.metrics.health.probed(result);
    let finding = match result {
        ProbeResult::Passed | ProbeResult::NoPage => Finding::Well,
        ProbeResult::Busy => Finding::Unclear,
        // The worker is busy: answers to requests came during the probe.
        ProbeResult::Timeout if link.health.answers() != answers => Finding::Unclear,
        ProbeResult::Refused | ProbeResult::Unreachable | ProbeResult::Timeout => Finding::Unwell,
    };
    if let Some(cause) = link.health.probed(finding, link.now_ms()) {
        link.metrics.health.ejected(cause);
        let worker = &*member.worker.spec().name;
        tracing::warn!(
            worker,
            result = PROBES[result as usize].1,
            "a worker failed its health probes and gets no requests"
        );
    }
}

async fn query_page(link: &WorkerHandle, spec: &ProbeSpec) -> Checked {
    let outgoing = OutgoingRequest {
        method: &Method::GET,
        target: &spec.path,
        headers: &HeaderMap::new(),
        authorization: &Authorization::Pass,
        rank: None,
        reuse: ConnectionReuse::WithRetry,
        traceparent: None,
        body: &Bytes::new(),
    };
    let limits = SendTimeouts {
        connect: spec.timeout,
        first_byte: spec.timeout,
    };
    let answer = match link.upstream.query(outgoing, limits).await {
        Ok(answer) => answer,
        Err(error @ SendError::FirstByteTimeout(_)) => {
            return Err((ProbeResult::Timeout, error_chain(&error)));
        }
        Err(error) => return Err((ProbeResult::Unreachable, error_chain(&error))),
    };
    let status = answer.status();
    let result = judge(status);
    let mut body = answer.into_body();
    // The content is ignored. Reading the body to its end keeps the connection.
    if read_body(&mut body, LONGEST_PAGE, spec.timeout).await.is_ok() {
        link.upstream.checkin(body);
    }
    match result {
        ProbeResult::Passed | ProbeResult::NoPage => Ok(result),
        _ => Err((result, format!("`GET {}` got {status}", spec.path))),
    }
}

/// Judges the status of a probe. A server that lacks the page, has it elsewhere or restricts it, is up all the same.
fn judge(status: StatusCode) -> ProbeResult {
    match status {
        StatusCode::TOO_MANY_REQUESTS => ProbeResult::Busy,
        StatusCode::NOT_IMPLEMENTED => ProbeResult::NoPage,
        status if status.is_success() => ProbeResult::Passed,
        status if status.is_server_error() => ProbeResult::Refused,
        _ => ProbeResult::NoPage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_servers_errors_speak_against_it() {
        for (statuses, expected) in [
            (&[200, 204][..], ProbeResult::Passed),
            (
                &[301, 307, 400, 401, 403, 404, 405, 422, 501],
                ProbeResult::NoPage,
            ),
            (&[429], ProbeResult::Busy),
            (&[500, 502, 503, 504], ProbeResult::Refused),
        ] {
            for status in statuses {
                let status = StatusCode::from_u16(*status).unwrap();
                assert_eq!(judge(status), expected, "{status}");
            }
        }
    }
}
