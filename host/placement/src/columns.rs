//! Feature columns: the numbers of a [`FeaturePlan`], the request's first, then one row a candidate. Each has its one
//! definition here.

use std::time::Duration;

use routing::{CandidateFeature, EngineReport, FeaturePlan, RequestFeature, hash_number};

use crate::attempt_state::AttemptState;
use crate::matches::PrefixMatches;
use crate::row::{CandidateRow, CostFeature, RowNumbers};
use crate::view::{PlacementView, RequestValues, WorkerColumns};

/// The rows of a layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnInput<'a> {
    /// Indices of the pool's members, row by row.
    pub(crate) members: &'a [usize],
    /// Their prefix matches, if the index was looked up.
    pub(crate) matches: Option<&'a PrefixMatches>,
    /// State of the request.
    pub(crate) state: AttemptState<'a>,
}

/// Lays out the numbers of a plan: the request's, then one row a candidate. A number that is not known is NaN.
pub(crate) fn lay_out<V: PlacementView>(
    view: &V,
    plan: &FeaturePlan,
    input: ColumnInput<'_>,
    numbers: &mut Vec<f64>,
) {
    numbers.clear();
    numbers.extend(request_numbers(view, plan, input));
    if plan.candidate().is_empty() {
        return;
    }
    let ColumnInput { members, matches, .. } = input;
    let columns = view.columns(members, matches);
    let prompt_tokens = view.values().estimated_tokens;
    numbers.reserve(members.len() * plan.candidate().len());
    for (row, &member) in members.iter().enumerate() {
        let worker = view.worker(member);
        let candidate = CandidateRow {
            member,
            worker,
            numbers: RowNumbers {
                load: &columns.load(member, worker),
                costs: &worker.load().cost().read(),
                found: matches.and_then(|matches| matches.get(row)),
                prompt_tokens,
            },
        };
        let row = plan.candidate().iter();
        // One extension a row: its room is checked once.
        numbers.extend(row.map(|feature| candidate_number(feature, &candidate, &columns)));
    }
}

/// Returns the request's numbers.
pub(crate) fn request_numbers<V: PlacementView>(
    view: &V,
    plan: &FeaturePlan,
    input: ColumnInput<'_>,
) -> impl Iterator<Item = f64> {
    let values = view.values();
    let of_request = plan.request().iter();
    of_request.map(move |feature| match feature {
        RequestFeature::PrefixBest => {
            let best = input.matches.and_then(PrefixMatches::best);
            best.map_or(f64::NAN, f64::from)
        }
        feature => request_number(view, *feature, &values, input.state),
    })
}

/// Returns whether a number is the same for every request and at any time, until the worker's
/// [load](routing::WorkerLoad::changes) or specification changes.
pub(crate) fn is_of_worker(feature: &CandidateFeature) -> bool {
    match feature {
        CandidateFeature::Weight
        | CandidateFeature::Role
        | CandidateFeature::DpRank
        | CandidateFeature::NameHash
        | CandidateFeature::Requests
        | CandidateFeature::Queued
        | CandidateFeature::PrefillTokens
        | CandidateFeature::Decoding
        | CandidateFeature::DecodingTokens
        | CandidateFeature::PromptTokens
        | CandidateFeature::TtftEwmaMs
        | CandidateFeature::TtftP90Ms
        | CandidateFeature::TbtEwmaMs
        | CandidateFeature::CostToken
        | CandidateFeature::CostRequest
        | CandidateFeature::CostFetchedShare
        | CandidateFeature::EngineRunning
        | CandidateFeature::EngineWaiting
        | CandidateFeature::EngineKvUsage
        | CandidateFeature::EngineKvTokens
        | CandidateFeature::Label(_)
        | CandidateFeature::Unknown => true,
        CandidateFeature::AgeMs
        | CandidateFeature::Failures
        | CandidateFeature::PrefixDevice
        | CandidateFeature::PrefixHost
        | CandidateFeature::PrefixAny
        | CandidateFeature::CacheBlocks
        | CandidateFeature::CostPrefill
        | CandidateFeature::CostTransfer
        | CandidateFeature::CostTbt
        | CandidateFeature::EngineAgeMs => false,
    }
}

/// Returns one number of a row.
#[inline]
pub(crate) fn candidate_number(
    feature: &CandidateFeature,
    candidate: &CandidateRow<'_>,
    columns: &impl WorkerColumns,
) -> f64 {
    let CandidateRow {
        member,
        worker,
        numbers,
    } = candidate;
    let RowNumbers { load, costs, .. } = numbers;
    let last_report = || worker.load().engine();
    let reported =
        |number: fn(&EngineReport) -> f64| last_report().map_or(f64::NAN, |(report, _)| number(&report));
    match feature {
        CandidateFeature::Weight => worker.spec().weight,
        CandidateFeature::Role => worker.spec().role.number(),
        CandidateFeature::DpRank => worker.spec().rank.map_or(f64::NAN, |rank| rank.0.into()),
        CandidateFeature::NameHash => worker.name_hash(),
        CandidateFeature::AgeMs => millis(columns.age(*member)),
        CandidateFeature::Failures => columns.failures(*member).into(),
        CandidateFeature::Requests => load.requests.into(),
        // The counters are read one after the other: between two of them a first token may come.
        CandidateFeature::Queued => load.requests.saturating_sub(load.decoding).into(),
        CandidateFeature::PrefillTokens => load.prefill_tokens as f64,
        CandidateFeature::Decoding => load.decoding.into(),
        CandidateFeature::DecodingTokens => load.decoding_tokens as f64,
        CandidateFeature::PromptTokens => load.prompt_tokens as f64,
        CandidateFeature::TtftEwmaMs => load.ttft_ewma_ms,
        CandidateFeature::TtftP90Ms => worker.load().ttft_p90_ms(),
        CandidateFeature::TbtEwmaMs => worker.load().tbt_ewma_ms(),
        CandidateFeature::PrefixDevice => numbers.matched(|found| found.device_tokens),
        CandidateFeature::PrefixHost => numbers.matched(|found| found.host_tokens),
        CandidateFeature::PrefixAny => numbers.matched(|found| found.any_tokens),
        CandidateFeature::CacheBlocks => {
            let blocks = columns.cache_blocks(*member);
            blocks.map_or(f64::NAN, |blocks| blocks as f64)
        }
        CandidateFeature::CostPrefill => columns.cost(CostFeature::Prefill, candidate),
        CandidateFeature::CostToken => columns.cost(CostFeature::Token, candidate),
        CandidateFeature::CostTransfer => columns.cost(CostFeature::Transfer, candidate),
        CandidateFeature::CostTbt => columns.cost(CostFeature::TimeBetweenTokens, candidate),
        CandidateFeature::CostRequest => costs.request_ms(),
        CandidateFeature::CostFetchedShare => costs.fetched_share(),
        CandidateFeature::EngineRunning => reported(|report| report.running),
        CandidateFeature::EngineWaiting => reported(|report| report.waiting),
        CandidateFeature::EngineKvUsage => reported(|report| report.kv_usage),
        CandidateFeature::EngineKvTokens => reported(|report| report.kv_tokens),
        CandidateFeature::EngineAgeMs => last_report().map_or(f64::NAN, |(_, at_ms)| {
            columns.report_clock_ms(*member).saturating_sub(at_ms) as f64
        }),
        CandidateFeature::Label(key) => worker.label_number(key),
        CandidateFeature::Unknown => f64::NAN,
    }
}

fn request_number<V: PlacementView>(
    view: &V,
    feature: RequestFeature,
    values: &RequestValues,
    state: AttemptState<'_>,
) -> f64 {
    let AttemptState { is_held, tried, .. } = state;
    match feature {
        RequestFeature::PromptTokens => values.prompt_tokens.map_or(f64::NAN, |tokens| tokens as f64),
        RequestFeature::MaxTokens => values.max_tokens.map_or(f64::NAN, |tokens| tokens as f64),
        RequestFeature::BodyBytes => values.body_bytes as f64,
        RequestFeature::Priority => values.priority.map_or(f64::NAN, |priority| priority as f64),
        RequestFeature::Stream => u8::from(values.stream).into(),
        RequestFeature::WaitedMs => millis(view.waited()),
        RequestFeature::DecodeAlone => u8::from(view.allowed().alone).into(),
        RequestFeature::Tried => tried.len() as f64,
        RequestFeature::HoldLeftMs if is_held || view.queue_limit() > 0 => millis(view.hold_left()),
        RequestFeature::TtftTargetMs => values.ttft_target.map_or(f64::NAN, millis),
        RequestFeature::PoolQueued => view.queued().saturating_sub(is_held.into()) as f64,
        RequestFeature::PoolWorkers => view.serving_workers() as f64,
        RequestFeature::PrefixKey(tokens) => view.prefix_key(tokens).map_or(f64::NAN, hash_number),
        RequestFeature::HoldLeftMs | RequestFeature::PrefixBest | RequestFeature::Unknown => f64::NAN,
    }
}

/// Returns a time in milliseconds. Whole microseconds below a hundred days are exact to the last bit, in real and in
/// virtual time.
fn millis(time: Duration) -> f64 {
    let nanos = time
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(time.subsec_nanos().into());
    nanos as f64 / 1e6
}
