//! Cost, class, tenant and deadline of one request, from its key, route, headers and body.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use routing::{Held, Waiting, weighted_tokens};
use tokio::time::Instant;

use super::controller::AdmissionController;
use super::spec::{Admission, Objectives};
use crate::fleet::pool::WorkerPool;
use crate::limits::clients::Principal;

/// Range of classes. It is bounded against abuse.
const CLASSES: std::ops::RangeInclusive<i64> = -100..=100;
/// Maximum length of a tenant's name in a header.
const LONGEST_NAME: usize = 128;
/// Default of the expected output tokens.
const EXPECTED_OUTPUT: u64 = 256;

/// Queue of a pool, and the settings of its admission.
#[derive(Debug)]
pub(crate) struct PoolQueue {
    pub(crate) controller: Arc<AdmissionController>,
    /// Most requests held at once; 0 holds none.
    pub(crate) limit: usize,
    /// Longest time a request is held in all.
    pub(crate) timeout: Duration,
    pub(crate) admission: Option<Admission>,
}

/// Inputs of a request's admission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionInput<'a> {
    pub(crate) queue: &'a PoolQueue,
    pub(crate) workers: &'a WorkerPool,
    pub(crate) model: &'a str,
    /// Objectives of its route.
    pub(crate) objectives: &'a Objectives,
    pub(crate) terms: &'a RequestTerms,
    /// Client whose key the request has.
    pub(crate) client: Option<&'a Principal>,
    pub(crate) arrived: std::time::Instant,
    /// Tokens of its prompt, estimated where they are not known.
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: Option<u64>,
}

/// Cost, tenant and importance of a request.
#[derive(Debug, Clone)]
pub(super) struct AdmissionRequest {
    pub(super) class: i32,
    /// Empty for a request without a tenant.
    pub(super) tenant: Arc<str>,
    pub(super) weight: f64,
    /// Prompt tokens.
    pub(super) input: u64,
    /// Expected output tokens.
    pub(super) output: u64,
    /// Deadline of its first token.
    pub(super) first_token_by: Option<Instant>,
    /// Time to its first token on an idle worker; zero while unknown.
    pub(super) runs: Duration,
}

impl AdmissionRequest {
    /// Collects everything but `runs`, which only waiting requests need.
    pub(super) fn of(input: &AdmissionInput<'_>) -> Self {
        let admission = input.queue.admission.as_ref();
        let client = input.client;
        let expected = admission.map_or(EXPECTED_OUTPUT, |admission| admission.spec.expected_output);
        Self {
            class: class(input),
            tenant: match client {
                Some(client) => Arc::clone(&client.tenant),
                None => input.terms.tenant.clone().unwrap_or_default(),
            },
            weight: client.map_or(1.0, |client| client.weight),
            input: input.prompt_tokens.into(),
            output: input.max_tokens.map_or(expected, |most| most.min(expected)),
            first_token_by: ttft_target(input.queue, input.objectives)
                .map(|target| Instant::from_std(input.arrived) + target),
            runs: Duration::ZERO,
        }
    }

    /// Returns its cost in the budget of tokens.
    pub(super) fn tokens(&self) -> u64 {
        // The maximum of `u64` marks a permit that took no tokens.
        self.input.saturating_add(self.output).min(u64::MAX - 1)
    }

    /// Returns the charge of its tenant.
    pub(super) fn share(&self) -> f64 {
        weighted_tokens(self.input, self.output) / self.weight
    }

    /// Returns the time at which it must leave the queue to meet its target; never before `started`.
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
/// They are read before the headers of the connection are removed: a client's `Connection: x-priority` would remove
/// what a trusted front set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestTerms {
    /// Class of the header, or of the body if the pool reads that. A higher class is served sooner.
    class: Option<i64>,
    tenant: Option<Arc<str>>,
    timeout: Option<Duration>,
}

impl RequestTerms {
    /// Reads the headers that the pool's `[admission]` names. `priority` is the body's field.
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

    /// Returns the tenant of a header; empty if there is none.
    pub(crate) fn tenant(&self) -> &str {
        self.tenant.as_deref().unwrap_or_default()
    }
}

impl Admission {
    /// Converts the body's `priority` to a class, if the pool reads it. vLLM's order is the reverse: lower values are
    /// served earlier.
    pub(crate) fn class_of_body(&self, priority: Option<i64>) -> Option<i64> {
        let is_read = self.spec.priority_in_body;
        priority.filter(|_| is_read).map(i64::saturating_neg)
    }
}

/// Priority inputs that are known before tokenization.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PriorityHint<'a> {
    /// Class of its route.
    pub(crate) route: Option<i32>,
    pub(crate) client: Option<&'a Principal>,
    pub(crate) terms: &'a RequestTerms,
}

impl PriorityHint<'_> {
    /// Returns the class that the request states, else its route's, else its key's. A request with a key cannot exceed
    /// the class of its route or key.
    pub(super) fn class(&self) -> i32 {
        let of_key = self.client.map(|client| client.priority);
        let given = self.route.or(of_key).unwrap_or(0);
        let bounded = |class: i64| class.clamp(*CLASSES.start(), *CLASSES.end()) as i32;
        match self.terms.class.map(bounded) {
            Some(own) if of_key.is_some() => own.min(given),
            Some(own) => own,
            None => bounded(given.into()),
        }
    }
}

impl AdmissionInput<'_> {
    /// Returns the class of the request. A higher class is served sooner.
    pub(crate) fn class(&self) -> i32 {
        class(self)
    }
}

fn class(input: &AdmissionInput<'_>) -> i32 {
    let hint = PriorityHint {
        route: input.objectives.priority,
        client: input.client,
        terms: input.terms,
    };
    hint.class()
}

fn tenant(headers: &HeaderMap, admission: &Admission) -> Option<Arc<str>> {
    let name = headers.get(admission.tenant_header.as_ref()?)?.to_str().ok()?;
    (name.len() <= LONGEST_NAME).then(|| name.into())
}

fn parsed<T: FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Returns the target time to the first token, from the request's arrival.
pub(crate) fn ttft_target(queue: &PoolQueue, objectives: &Objectives) -> Option<Duration> {
    let of_pool = || queue.admission.as_ref()?.spec.ttft_target;
    objectives.ttft_target.or_else(of_pool)
}

/// Returns the target time between tokens.
pub(super) fn tbt_target(input: &AdmissionInput<'_>) -> Option<Duration> {
    let of_pool = || input.queue.admission.as_ref()?.spec.tbt_target;
    input.objectives.tbt_target.or_else(of_pool)
}

/// Returns the time by which the response must have begun. The client may shorten the route's limit, but not extend it.
pub(crate) fn start_deadline(input: &AdmissionInput<'_>) -> Option<Instant> {
    let of_route = input.objectives.start_timeout;
    let within = of_route.into_iter().chain(input.terms.timeout).min()?;
    Instant::from_std(input.arrived).checked_add(within)
}

/// Parses `30`, `1.5`, `30s`, `500ms` or `2m`. An invalid text sets no timeout.
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
    fn a_clients_timeout_is_in_seconds_unless_it_has_a_unit() {
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
