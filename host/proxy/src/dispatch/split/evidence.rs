//! Evidence of the dialect that one server of prefill workers shows on its pages.

use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use routing::Dialect;
use worker_client::{Authorization, SendTimeouts};

use crate::fleet::pool::Member;
use crate::fleet::worker::WorkerHandle;

/// Longest page that is read, in bytes.
const LONGEST_PAGE: usize = 4 << 20;

const SERVER_INFO: PathAndQuery = PathAndQuery::from_static("/server_info");
const METRICS: PathAndQuery = PathAndQuery::from_static("/metrics");

/// Evidence that one server shows.
#[derive(Debug)]
pub(super) enum Shown {
    Speaks {
        dialect: Dialect,
        evidence: Box<str>,
    },
    Nothing,
    /// Status with which the server refuses `/server_info` without its key. It shows nothing elsewhere.
    Refused(StatusCode),
    Unreachable,
}

/// Parameters of the queries for pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageQuery<'a> {
    pub(super) authorization: &'a Authorization,
    /// Timeout for the head of one page, and for each part of its body.
    pub(super) patience: Duration,
    /// Set if only `/server_info` is of interest.
    pub(super) is_for_port: bool,
}

/// Answer to the query for a page.
enum PageAnswer {
    Page(Bytes),
    Absent,
    Refused(StatusCode),
    /// Error of a server that cannot answer now.
    Failed,
}

struct Unreachable;

/// Queries the server of these members for its pages, and records the port of its bootstrap server.
pub(super) async fn look_at(members: &[&Member], query: PageQuery<'_>) -> Shown {
    let Some(first) = members.first() else {
        return Shown::Nothing;
    };
    let info = query.page(&first.link, &SERVER_INFO).await;
    let shown = match &info {
        Ok(PageAnswer::Page(info)) => inference_api::server_dialect(info),
        _ => None,
    };
    let is_answered = !matches!(info, Ok(PageAnswer::Failed) | Err(Unreachable));
    for server in members.iter().filter_map(|member| member.bootstrap.as_ref()) {
        let port = server.port();
        match shown {
            Some((Dialect::Sglang, number)) => port.named(number),
            // An engine without such a page, or with a key that the pool lacks, keeps the usual port.
            _ if is_answered && port.is_awaited() => port.named(None),
            _ => {}
        }
        port.queried();
    }
    if let Some((dialect, _)) = shown {
        let evidence = "/server_info".into();
        return Shown::Speaks { dialect, evidence };
    }
    if query.is_for_port {
        return Shown::Nothing;
    }
    look_elsewhere(first, query, info).await
}

/// Looks for the dialect on the other pages of a server.
async fn look_elsewhere(
    member: &Member,
    query: PageQuery<'_>,
    info: Result<PageAnswer, Unreachable>,
) -> Shown {
    if let Some(bootstrap) = &member.bootstrap
        && bootstrap.answers().await
    {
        return Shown::Speaks {
            dialect: Dialect::Mooncake,
            evidence: format!("the bootstrap server {}", bootstrap.address()).into(),
        };
    }
    match (query.page(&member.link, &METRICS).await, info) {
        (Ok(PageAnswer::Page(metrics)), _) if inference_api::shows_nixl(&metrics) => Shown::Speaks {
            dialect: Dialect::Nixl,
            evidence: "/metrics".into(),
        },
        (_, Ok(PageAnswer::Refused(status))) => Shown::Refused(status),
        (Err(Unreachable), Err(Unreachable)) => Shown::Unreachable,
        _ => Shown::Nothing,
    }
}

impl PageQuery<'_> {
    /// Fetches a page of the worker's.
    async fn page(self, link: &WorkerHandle, page: &PathAndQuery) -> Result<PageAnswer, Unreachable> {
        let limits = SendTimeouts {
            connect: self.patience,
            first_byte: self.patience,
        };
        let headers = HeaderMap::new();
        let read = link
            .upstream
            .page(page, &headers, self.authorization, limits, LONGEST_PAGE);
        let Ok(Ok((status, text))) = tokio::time::timeout(2 * self.patience, read).await else {
            return Err(Unreachable);
        };
        Ok(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PageAnswer::Refused(status),
            _ if status.is_success() => PageAnswer::Page(text),
            _ if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => PageAnswer::Failed,
            _ => PageAnswer::Absent,
        })
    }
}
