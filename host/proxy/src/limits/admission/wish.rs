//! What one request asks of its pool, as its key, its route, its headers and its body say.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use routing::{Held, Waiting, weighted_tokens};
use tokio::time::Instant;

use super::spec::Admission;
use crate::limits::clients::Principal;
use crate::request::context::RequestContext;

/// Classes there are: more would only be told apart by those who abuse them.
const CLASSES: std::ops::RangeInclusive<i64> = -100..=100;
/// Longest name of a tenant in a header.
const LONGEST_NAME: usize = 128;
/// Output tokens expected where nothing is configured.
const EXPECTED_OUTPUT: u64 = 256;

/// What a request takes, whose it is and how important.
#[derive(Debug, Clone)]
pub(super) struct AdmissionRequest {
    pub(super) class: i32,
    /// Empty for those of no tenant.
    pub(super) tenant: Arc<str>,
    pub(super) weight: f64,
    /// Prompt tokens.
    pub(super) input: u64,
    /// Output tokens expected.
    pub(super) output: u64,
    /// When its first token should come.
    pub(super) first_token_by: Option<Instant>,
    /// The time to its first token on an idle worker; zero while unknown.
    pub(super) runs: Duration,
}

impl AdmissionRequest {
    /// Without the time it takes, which only those who wait need.
    pub(super) fn of(request: &RequestContext) -> Self {
        let admission = request.pool().admission.as_ref();
        let caller = request.caller.as_deref();
        let expected = admission.map_or(EXPECTED_OUTPUT, |admission| admission.spec.expected_output);
        Self {
            class: class(request),
            tenant: match caller {
                Some(caller) => Arc::clone(&caller.tenant),
                None => request.terms.tenant.clone().unwrap_or_default(),
            },
            weight: caller.map_or(1.0, |caller| caller.weight),
            input: request.prompt_tokens().into(),
            output: request.max_tokens.map_or(expected, |most| most.min(expected)),
            first_token_by: ttft_target(request).map(|target| Instant::from_std(request.arrived) + target),
            runs: Duration::ZERO,
        }
    }

    /// What it takes of the budget of tokens.
    pub(super) fn tokens(&self) -> u64 {
        // The highest number stands for what is not counted.
        self.input.saturating_add(self.output).min(u64::MAX - 1)
    }

    /// What its tenant is charged.
    pub(super) fn share(&self) -> f64 {
        weighted_tokens(self.input, self.output) / self.weight
    }

    /// When it has to leave the queue to make its target; never before `started`.
    pub(super) fn start_by(&self, started: Instant) -> Instant {
        const FAR: Duration = Duration::from_secs(30 * 86_400);
        match self.first_token_by {
            Some(by) => by.checked_sub(self.runs).unwrap_or(started),
            None => Instant::now() + FAR,
        }
    }

    pub(super) fn waiting(&self, held: Option<Held>, start_by_us: u64) -> Waiting {
        Waiting {
            class: self.class,
            tenant: Arc::clone(&self.tenant),
            share: self.share(),
            tokens: self.tokens(),
            work: self.input,
            runs_us: u64::try_from(self.runs.as_micros()).unwrap_or(u64::MAX),
            start_by_us,
            held,
        }
    }
}

/// Class, tenant and timeout that a request's headers and body state.
///
/// They are read before the headers of the connection are removed: a client's `Connection: x-priority` would remove what a
/// trusted front set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestTerms {
    /// Of the header, else of the body where the pool reads it; higher is sooner.
    class: Option<i64>,
    tenant: Option<Arc<str>>,
    timeout: Option<Duration>,
}

impl RequestTerms {
    /// Reads them as the pool's `[admission]` names them; `priority` is that of the body.
    pub(crate) fn read(admission: Option<&Admission>, headers: &HeaderMap, priority: Option<i64>) -> Self {
        let Some(admission) = admission else {
            return Self::default();
        };
        let header = admission.priority_header.as_ref();
        let header = header.and_then(|name| parsed::<i64>(headers, name));
        let timeout = admission.timeout_header.as_ref();
        let timeout = timeout.and_then(|name| headers.get(name)?.to_str().ok());
        Self {
            class: header.or_else(|| admission.class_of_body(priority)),
            tenant: tenant(headers, admission),
            timeout: timeout.and_then(seconds),
        }
    }

    /// The tenant of a header; empty for none.
    pub(crate) fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }
}

impl Admission {
    /// Returns the class that the body's `priority` means, where the pool reads it. vLLM's order is the reverse: the lower,
    /// the earlier.
    pub(crate) fn class_of_body(&self, priority: Option<i64>) -> Option<i64> {
        let is_read = self.spec.priority_in_body;
        priority.filter(|_| is_read).map(i64::saturating_neg)
    }
}

/// What is known of a request's importance before anything is made of its prompt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PriorityHint<'a> {
    /// Class of its route.
    pub(crate) route: Option<i32>,
    pub(crate) caller: Option<&'a Principal>,
    pub(crate) terms: &'a RequestTerms,
}

impl PriorityHint<'_> {
    /// What the request says of itself, else its route, else its key. One with a key may not make itself more important
    /// than those make it.
    pub(super) fn class(&self) -> i32 {
        let caller = self.caller.map(|caller| caller.priority);
        let given = self.route.or(caller).unwrap_or(0);
        let bounded = |class: i64| class.clamp(*CLASSES.start(), *CLASSES.end()) as i32;
        match self.terms.class.map(bounded) {
            Some(own) if caller.is_some() => own.min(given),
            Some(own) => own,
            None => bounded(given.into()),
        }
    }
}

fn class(request: &RequestContext) -> i32 {
    let asker = PriorityHint {
        route: request.route().objectives.priority,
        caller: request.caller.as_deref(),
        terms: &request.terms,
    };
    asker.class()
}

fn tenant(headers: &HeaderMap, admission: &Admission) -> Option<Arc<str>> {
    let name = headers.get(admission.tenant_header.as_ref()?)?.to_str().ok()?;
    (name.len() <= LONGEST_NAME).then(|| name.into())
}

fn parsed<T: FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// What the first token of a request should come within, from its arrival.
pub(super) fn ttft_target(request: &RequestContext) -> Option<Duration> {
    let of_pool = || request.pool().admission.as_ref()?.spec.ttft_target;
    request.route().objectives.ttft_target.or_else(of_pool)
}

/// The time there should be between its tokens.
pub(super) fn tbt_target(request: &RequestContext) -> Option<Duration> {
    let of_pool = || request.pool().admission.as_ref()?.spec.tbt_target;
    request.route().objectives.tbt_target.or_else(of_pool)
}

/// By when the answer must have begun: the client may ask for less than the route, not for more.
pub(crate) fn deadline(request: &RequestContext) -> Option<Instant> {
    let of_route = request.route().objectives.start_timeout;
    let within = of_route.into_iter().chain(request.terms.timeout).min()?;
    Instant::from_std(request.arrived).checked_add(within)
}

/// `30`, `1.5`, `30s`, `500ms` or `2m`; what cannot be read is no timeout.
fn seconds(text: &str) -> Option<Duration> {
    const LONGEST: f64 = 86_400.0;
    let text = text.trim();
    let (number, unit) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1e-3)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        (text, 1.0)
    };
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    (seconds > 0.0 && seconds <= LONGEST).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_timeout_is_in_seconds_unless_it_says_otherwise() {
        let check =
            |text, ms: Option<u64>| assert_eq!(seconds(text), ms.map(Duration::from_millis), "{text}");
        check("30", Some(30_000));
        check(" 1.5 ", Some(1_500));
        check("250ms", Some(250));
        check("2 s", Some(2_000));
        check("2m", Some(120_000));
        for unread in ["", "0", "-1", "NaN", "inf", "1h", "soon", "1e9"] {
            check(unread, None);
        }
    }
}
