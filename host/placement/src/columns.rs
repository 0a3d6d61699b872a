//! Feature columns: the numbers of a [`FeaturePlan`], the request's first, then one row a candidate. Each has its one
//! definition here.

use std::cell::LazyCell;
use std::time::Duration;

use routing::{CandidateFeature, EngineSaid, FeaturePlan, RequestFeature, hash_number};

use crate::candidates::AttemptState;
use crate::matches::PrefixMatches;
use crate::row::{CandidateRow, CostFeature};
use crate::view::{PlacementView, RequestValues, WorkerColumns};

/// The rows of a layout.
#[derive(Debug, Clone, Copy)]
pub struct ColumnInput<'a> {
    /// Indices of the pool's members, row by row.
    pub members: &'a [usize],
    /// Their prefix matches, if the index was looked up.
    pub matches: Option<&'a PrefixMatches>,
    /// State of the request.
    pub state: AttemptState<'a>,
}

/// Lays out the numbers of a plan: the request's, then one row a candidate. A number that is not known is NaN.
pub fn lay_out<V: PlacementView>(
    view: &V,
    plan: &FeaturePlan,
    input: ColumnInput<'_>,
    numbers: &mut Vec<f64>,
) {
    let ColumnInput {
        members,
        matches,
        state,
    } = input;
    numbers.clear();
    let values = view.values();
    let of_request = plan.request().iter();
    numbers.extend(of_request.map(|feature| match feature {
        RequestFeature::PrefixBest => matches.and_then(PrefixMatches::best).map_or(f64::NAN, f64::from),
        feature => request_number(view, *feature, &values, state),
    }));
    if plan.candidate().is_empty() {
        return;
    }
    let columns = view.columns(members, matches);
    numbers.reserve(members.len() * plan.candidate().len());
    for (row, &member) in members.iter().enumerate() {
        let worker = view.worker(member);
        let candidate = CandidateRow {
            member,
            worker,
            load: columns.load(member, worker),
            found: matches.and_then(|matches| matches.get(row)),
            prompt_tokens: values.estimated_tokens,
        };
        lay_out_row(&candidate, plan, &columns, numbers);
    }
}

/// Lays out one row.
fn lay_out_row(
    candidate: &CandidateRow<'_>,
    plan: &FeaturePlan,
    columns: &impl WorkerColumns,
    numbers: &mut Vec<f64>,
) {
    let CandidateRow {
        member, worker, load, ..
    } = candidate;
    // Five more counters, which few plans have.
    let report = LazyCell::new(|| worker.load().engine());
    let reported = |number: fn(&EngineSaid) -> f64| report.map_or(f64::NAN, |(said, _)| number(&said));
    // One extension a row: its room is checked once.
    let row = plan.candidate().iter();
    numbers.extend(row.map(|feature| match feature {
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
        CandidateFeature::PrefixDevice => candidate.matched(|found| found.device_tokens),
        CandidateFeature::PrefixHost => candidate.matched(|found| found.host_tokens),
        CandidateFeature::PrefixAny => candidate.matched(|found| found.any_tokens),
        CandidateFeature::CacheBlocks => {
            let blocks = columns.cache_blocks(*member);
            blocks.map_or(f64::NAN, |blocks| blocks as f64)
        }
        CandidateFeature::CostPrefill => columns.cost(CostFeature::Prefill, candidate),
        CandidateFeature::CostToken => columns.cost(CostFeature::Token, candidate),
        CandidateFeature::CostTransfer => columns.cost(CostFeature::Transfer, candidate),
        CandidateFeature::CostTbt => columns.cost(CostFeature::TimeBetweenTokens, candidate),
        CandidateFeature::CostRequest => worker.load().cost().request_ms(),
        CandidateFeature::CostFetchedShare => worker.load().cost().fetched_share(),
        CandidateFeature::EngineRunning => reported(|said| said.running),
        CandidateFeature::EngineWaiting => reported(|said| said.waiting),
        CandidateFeature::EngineKvUsage => reported(|said| said.kv_usage),
        CandidateFeature::EngineKvTokens => reported(|said| said.kv_tokens),
        CandidateFeature::EngineAgeMs => report.map_or(f64::NAN, |(_, at_ms)| {
            columns.report_clock_ms(*member).saturating_sub(at_ms) as f64
        }),
        CandidateFeature::Label(key) => worker.label_number(key),
        CandidateFeature::Unknown => f64::NAN,
    }));
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
        RequestFeature::HoldLeftMs if is_held || view.queued() < view.queue_limit() => {
            millis(view.hold_left())
        }
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
