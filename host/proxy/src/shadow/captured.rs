//! What a decision was made of, kept for those that are asked later.

use std::sync::Arc;

use http::HeaderValue;

use crate::candidates::{Candidates, Field, Standing};
use crate::context::RequestContext;
use crate::decide::Placement;
use crate::proxy::Proxy;

/// One placed request. Its loads and matches are those of the moment, without the request itself, which a later look would
/// find booked at its worker and expected in its cache.
pub(crate) struct Captured {
    pub(super) request: Arc<RequestContext>,
    pub(super) candidates: Candidates,
    pub(super) field: Field,
    pub(super) placement: Placement,
    /// Nobody had been tried.
    pub(super) standing: Standing<'static>,
    pub(super) now_us: u64,
    /// Who placed it: `NAME@VERSION`.
    pub(super) decided_by: Option<HeaderValue>,
}

impl Captured {
    /// Hands a request that was just placed to the shadows of its route, where it has any and this is one of their share.
    /// `asked` is what the decision was made of.
    pub(crate) fn offer(
        proxy: &Proxy,
        request: &Arc<RequestContext>,
        (field, asked): (Field, &Candidates),
        (placement, standing): (Placement, Standing<'_>),
    ) {
        let shadows = request.route().shadows.as_ref();
        let Some(shadows) = shadows.filter(|shadows| shadows.take(request.seed())) else {
            return;
        };
        // Nothing is copied for a queue that is full.
        if !proxy.shadows.has_room(request.body.len()) {
            return shadows.dropped();
        }
        let captured = Self {
            candidates: capture(proxy, request, (field, asked)),
            request: Arc::clone(request),
            field,
            placement,
            standing: Standing {
                tried: &[],
                ..standing
            },
            now_us: proxy.now_us(),
            decided_by: request.decided_by.header(),
        };
        if !proxy.shadows.push(captured) {
            shadows.dropped();
        }
    }
}

fn capture(proxy: &Proxy, request: &RequestContext, (field, asked): (Field, &Candidates)) -> Candidates {
    let pool = request.pool();
    let mut captured = Candidates::default();
    captured.list(pool, request.served.now(), &[], field);
    let members = captured.members.iter();
    captured.loads = members.map(|at| pool.members[*at].worker.load().read()).collect();
    if asked.members == captured.members {
        captured.matches.clone_from(&asked.matches);
    }
    // A shadow without a column of matches may ask for them by an import: later, when the index has the request's own.
    if captured.matches.is_empty()
        && let Some(prompt) = &request.prompt
    {
        let is_assumed = pool.expectation.assumed.is_some();
        let ids = &captured.ids;
        captured
            .matches
            .ask(&mut prompt.lock(), ids, &proxy.index, &proxy.live, is_assumed);
    }
    captured
}
