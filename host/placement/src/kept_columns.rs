//! Cache of a thread's feature columns, updated incrementally: a decision lays out the rows of workers whose load
//! changed since the one before, and the columns that depend on the request or on the time.

use kv_index::WorkerMatch;
use routing::{CandidateFeature, CostReading, FeaturePlan, LoadReading, Worker};

use crate::columns::{ColumnInput, candidate_number, is_of_worker, lay_out, request_numbers};
use crate::row::{CandidateRow, CostFeature, RowNumbers};
use crate::view::{FleetVersion, PlacementView};

/// Layouts that a thread keeps: one for each policy and set of candidates that it sees in turn, such as those of both
/// legs of a split request.
const KEPT: usize = 4;

/// Columns of the last call, and the layouts that are kept.
#[derive(Debug, Default)]
pub(crate) struct KeptColumns {
    /// At most `KEPT`, the last used first.
    layouts: Vec<KeptLayout>,
    /// Columns of a fleet without a version.
    plain: Vec<f64>,
    /// Set if the last call was of such a fleet.
    is_plain: bool,
}

/// Columns of one plan and one list of candidates.
#[derive(Debug)]
struct KeptLayout {
    fleet: FleetVersion,
    plan: FeaturePlan,
    members: Vec<usize>,
    /// Numbers of a row that change without the worker.
    changing: Vec<ChangingNumbers>,
    rows: Vec<KeptRow>,
    /// The request's numbers, then one row a candidate.
    numbers: Vec<f64>,
    /// Set until the numbers are laid out.
    is_new: bool,
}

/// Place in a row of numbers that change without the worker.
#[derive(Debug, Clone, Copy)]
enum ChangingNumbers {
    One(usize),
    /// The prefix matches on the device, in host memory or faster, and on any tier, side by side.
    Matches(usize),
}

/// State of a worker that its row was laid out of.
#[derive(Debug, Clone, Copy)]
struct KeptRow {
    /// Count of the load's changes.
    changes: u64,
    load: LoadReading,
    costs: CostReading,
}

impl KeptColumns {
    /// Returns the columns of the last call.
    pub(crate) fn numbers(&self) -> &[f64] {
        match self.layouts.first() {
            Some(layout) if !self.is_plain => &layout.numbers,
            _ => &self.plain,
        }
    }

    /// Lays out the columns of a call.
    pub(crate) fn lay_out<V: PlacementView>(&mut self, view: &V, plan: &FeaturePlan, input: ColumnInput<'_>) {
        let fleet = view.fleet_version().filter(|_| !plan.candidate().is_empty());
        self.is_plain = fleet.is_none();
        match fleet {
            Some(fleet) => self.layout(fleet, view, plan, input.members).update(view, input),
            None => lay_out(view, plan, input, &mut self.plain),
        }
    }

    /// Returns the kept layout, or a new one in the place of the one that was not used for longest.
    fn layout<V: PlacementView>(
        &mut self,
        fleet: FleetVersion,
        view: &V,
        plan: &FeaturePlan,
        members: &[usize],
    ) -> &mut KeptLayout {
        let mut layouts = self.layouts.iter();
        match layouts.position(|layout| layout.is_of(fleet, plan, members)) {
            Some(place) => self.layouts[..=place].rotate_right(1),
            None => {
                self.layouts.truncate(KEPT - 1);
                self.layouts
                    .insert(0, KeptLayout::new(fleet, view, plan, members));
            }
        }
        &mut self.layouts[0]
    }
}

impl KeptLayout {
    fn new<V: PlacementView>(fleet: FleetVersion, view: &V, plan: &FeaturePlan, members: &[usize]) -> Self {
        let rows = members.iter().map(|member| KeptRow::read(view.worker(*member)));
        Self {
            fleet,
            plan: plan.clone(),
            members: members.to_vec(),
            changing: ChangingNumbers::of(plan),
            rows: rows.collect(),
            numbers: vec![f64::NAN; plan.request().len() + members.len() * plan.candidate().len()],
            is_new: true,
        }
    }

    fn is_of(&self, fleet: FleetVersion, plan: &FeaturePlan, members: &[usize]) -> bool {
        self.fleet == fleet && self.plan == *plan && self.members == members
    }

    /// Lays out what may have changed.
    fn update<V: PlacementView>(&mut self, view: &V, input: ColumnInput<'_>) {
        let (request, matrix) = self.numbers.split_at_mut(self.plan.request().len());
        for (number, now) in request.iter_mut().zip(request_numbers(view, &self.plan, input)) {
            *number = now;
        }
        let workers = KeptWorkers {
            view,
            columns: view.columns(input.members, input.matches),
            input,
            prompt_tokens: view.values().estimated_tokens,
        };
        let features = self.plan.candidate();
        let numbers = matrix.chunks_exact_mut(features.len());
        for (row, (numbers, kept)) in numbers.zip(&mut self.rows).enumerate() {
            if !kept.refresh(view.worker(input.members[row])) && !self.is_new {
                continue;
            }
            let lasting = numbers.iter_mut().zip(features);
            for (number, feature) in lasting.filter(|(_, feature)| is_of_worker(feature)) {
                *number = workers.number(feature, row, kept);
            }
        }
        self.is_new = false;
        let mut rows = RowsInPlace {
            matrix,
            width: features.len(),
            kept: &self.rows,
        };
        for &changing in &self.changing {
            match changing {
                ChangingNumbers::One(place) => workers.lay_out_column(&features[place], place, &mut rows),
                ChangingNumbers::Matches(place) => workers.lay_out_matches(place, &mut rows),
            }
        }
    }
}

impl ChangingNumbers {
    /// Lists those of a plan.
    fn of(plan: &FeaturePlan) -> Vec<Self> {
        const MATCHES: [CandidateFeature; 3] = [
            CandidateFeature::PrefixDevice,
            CandidateFeature::PrefixHost,
            CandidateFeature::PrefixAny,
        ];
        let mut changing = Vec::new();
        let mut left = plan.candidate();
        while let [feature, rest @ ..] = left {
            let place = plan.candidate().len() - left.len();
            if let Some(rest) = left.strip_prefix(&MATCHES) {
                changing.push(Self::Matches(place));
                left = rest;
                continue;
            }
            if !is_of_worker(feature) {
                changing.push(Self::One(place));
            }
            left = rest;
        }
        changing
    }
}

/// Workers of a layout with regard to the request.
struct KeptWorkers<'a, V: PlacementView> {
    view: &'a V,
    columns: V::Columns<'a>,
    input: ColumnInput<'a>,
    /// Length of the prompt in tokens, estimated where it is not known.
    prompt_tokens: u32,
}

/// Rows of a matrix.
struct RowsInPlace<'a> {
    matrix: &'a mut [f64],
    /// Numbers of a row.
    width: usize,
    kept: &'a [KeptRow],
}

impl<V: PlacementView> KeptWorkers<'_, V> {
    /// Lays out one column again. Those of prompts have a loop each: a feature is not matched in each row, nor is a
    /// worker looked up.
    fn lay_out_column(&self, feature: &CandidateFeature, place: usize, rows: &mut RowsInPlace<'_>) {
        match feature {
            CandidateFeature::PrefixDevice => {
                self.of_prompt(place, rows, |row| row.matched(|found| found.device_tokens));
            }
            CandidateFeature::PrefixHost => {
                self.of_prompt(place, rows, |row| row.matched(|found| found.host_tokens));
            }
            CandidateFeature::PrefixAny => {
                self.of_prompt(place, rows, |row| row.matched(|found| found.any_tokens));
            }
            CandidateFeature::CostPrefill => {
                self.of_prompt(place, rows, |row| row.learned_cost(CostFeature::Prefill));
            }
            CandidateFeature::CostTransfer => {
                self.of_prompt(place, rows, |row| row.learned_cost(CostFeature::Transfer));
            }
            CandidateFeature::CostTbt => {
                self.of_prompt(place, rows, |row| {
                    row.learned_cost(CostFeature::TimeBetweenTokens)
                });
            }
            feature => {
                let numbers = rows.matrix.chunks_exact_mut(rows.width);
                for (row, (numbers, kept)) in numbers.zip(rows.kept).enumerate() {
                    numbers[place] = self.number(feature, row, kept);
                }
            }
        }
    }

    /// Lays out the columns of the matches in one pass over the rows.
    fn lay_out_matches(&self, place: usize, rows: &mut RowsInPlace<'_>) {
        self.all_of_prompt(place, rows, |row| {
            [
                row.matched(|found| found.device_tokens),
                row.matched(|found| found.host_tokens),
                row.matched(|found| found.any_tokens),
            ]
        });
    }

    /// Lays out a column of the request's prompt.
    fn of_prompt(&self, place: usize, rows: &mut RowsInPlace<'_>, number: impl Fn(RowNumbers<'_>) -> f64) {
        self.all_of_prompt(place, rows, |row| [number(row)]);
    }

    /// Lays out adjacent columns of the request's prompt.
    fn all_of_prompt<const N: usize>(
        &self,
        place: usize,
        rows: &mut RowsInPlace<'_>,
        numbers: impl Fn(RowNumbers<'_>) -> [f64; N],
    ) {
        let places = rows.matrix.chunks_exact_mut(rows.width).zip(rows.kept);
        let of_row = |kept: &KeptRow, found| numbers(kept.numbers(found, self.prompt_tokens));
        let write = |row: &mut [f64], numbers: [f64; N]| row[place..place + N].copy_from_slice(&numbers);
        match self.input.matches.filter(|matches| !matches.is_empty()) {
            Some(matches) => {
                for ((row, kept), found) in places.zip(matches.rows()) {
                    write(row, of_row(kept, found));
                }
            }
            None => places.for_each(|(row, kept)| write(row, of_row(kept, None))),
        }
    }

    /// Returns one number of a row.
    fn number(&self, feature: &CandidateFeature, row: usize, kept: &KeptRow) -> f64 {
        let ColumnInput { members, matches, .. } = self.input;
        let found = matches.and_then(|matches| matches.get(row));
        let candidate = CandidateRow {
            member: members[row],
            worker: self.view.worker(members[row]),
            numbers: kept.numbers(found, self.prompt_tokens),
        };
        candidate_number(feature, &candidate, &self.columns)
    }
}

impl KeptRow {
    /// Reads a worker.
    fn read(worker: &Worker) -> Self {
        let load = worker.load();
        // The count before the numbers: a change that they miss will count.
        Self {
            changes: load.changes(),
            load: load.read(),
            costs: load.cost().read(),
        }
    }

    #[inline]
    fn numbers<'a>(&'a self, found: Option<&'a WorkerMatch>, prompt_tokens: u32) -> RowNumbers<'a> {
        RowNumbers {
            load: &self.load,
            costs: &self.costs,
            found,
            prompt_tokens,
        }
    }

    /// Reads a worker again if its load changed. Returns whether it did.
    fn refresh(&mut self, worker: &Worker) -> bool {
        let has_changed = worker.load().changes() != self.changes;
        if has_changed {
            *self = Self::read(worker);
        }
        has_changed
    }
}
