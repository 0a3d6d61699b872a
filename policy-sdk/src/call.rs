//! One decision's input, read without copying: facts of the request, its named numbers, and one row a candidate.

use crate::hash::mix;
use crate::host::Role;
use crate::plan::{Column, Plan, RequestNumber, RoleColumn};

/// Names one worker for as long as it is configured; never reused within one run of the router.
pub type WorkerId = u32;

/// Which part of the request is being placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// The whole request, on one worker; or on a pair, where the pool is disaggregated and the policy has asked
    /// for [`Plan::roles`].
    #[default]
    Mixed,
    /// Only the prefill leg, among prefill and mixed workers; a mixed one takes the whole request.
    Prefill,
    /// Only the decode leg, among decode workers.
    Decode,
}

/// What every policy is told of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Counts requests from 1; the seed of [`crate::Host::random`].
    pub seq: u64,
    /// A stable hash of the client's session key; none where it gave none.
    pub session: Option<u64>,
    /// Which part is being placed.
    pub phase: Phase,
    /// How often this request has been decided before.
    pub attempt: u32,
}

/// Everything one decision is made from, besides what a [`crate::Host`] answers.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    request: Request,
    ids: &'a [WorkerId],
    front: &'a [f64],
    matrix: &'a [f64],
    columns: usize,
}

impl<'a> Call<'a> {
    /// Views `numbers`, laid out as `plan` asked: the request's numbers, then one row a candidate. None where
    /// their count is not the plan's.
    #[must_use]
    pub fn new(request: Request, ids: &'a [WorkerId], numbers: &'a [f64], plan: &Plan) -> Option<Self> {
        let columns = plan.candidate_features().len();
        let (front, matrix) = numbers.split_at_checked(plan.request_features().len())?;
        (matrix.len() == ids.len() * columns).then_some(Self {
            request,
            ids,
            front,
            matrix,
            columns,
        })
    }

    /// Facts of the request.
    #[must_use]
    pub fn request(&self) -> Request {
        self.request
    }

    /// A number of the request; NaN while unknown.
    #[must_use]
    pub fn number(&self, number: RequestNumber) -> f64 {
        self.front.get(number.0).copied().unwrap_or(f64::NAN)
    }

    /// The candidates' ids, in row order; never empty when the router asks.
    #[must_use]
    pub fn ids(&self) -> &'a [WorkerId] {
        self.ids
    }

    /// A key of [`Host::state`](crate::Host::state) for what is remembered about this list of candidates: `name` with one of 64 endings, `-aa`
    /// to `-hh`, however many lists there are. Two lists may share one.
    #[must_use]
    pub fn state_key(&self, name: &str) -> String {
        let list = self.ids.iter().fold(0, |hash, &id| mix(hash, u64::from(id)));
        let letter = |index: u64| char::from(b'a' + (index % 8) as u8);
        let mut key = String::from(name);
        key.push('-');
        key.push(letter(list / 8));
        key.push(letter(list));
        key
    }

    /// The candidates in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let Self {
            ids, matrix, columns, ..
        } = *self;
        ids.iter().enumerate().map(move |(index, &id)| Row {
            index,
            id,
            numbers: &matrix[index * columns..(index + 1) * columns],
        })
    }

    /// One number a candidate, in row order: what a [`Scorer`](crate::Scorer) answers.
    #[must_use]
    pub fn scores(&self, score: impl Fn(&Row<'a>) -> f64) -> Vec<f64> {
        self.rows().map(|row| score(&row)).collect()
    }

    /// The greatest of one number a candidate; NaN where none is known.
    #[must_use]
    pub fn greatest(&self, number: impl Fn(&Row<'a>) -> f64) -> f64 {
        let more = |most: f64, number| if number <= most { most } else { number };
        self.rows()
            .map(|row| number(&row))
            .filter(|number| !number.is_nan())
            .fold(f64::NAN, more)
    }

    /// The least of one number a candidate; NaN where none is known.
    #[must_use]
    pub fn smallest(&self, number: impl Fn(&Row<'a>) -> f64) -> f64 {
        -self.greatest(|row| -number(row))
    }

    /// The candidate with the least cost, as [`Least::of`] finds it.
    #[must_use]
    pub fn least(&self, salt: impl FnOnce() -> u64, cost: impl Fn(&Row<'a>) -> f64) -> Option<Least> {
        Least::of(self.rows().map(|row| (row, cost(&row))), salt)
    }
}

/// The candidate with the least cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Least {
    /// Its row.
    pub row: usize,
    /// Its cost.
    pub cost: f64,
}

impl Least {
    /// Finds it among candidates with their costs; one whose cost is NaN is never taken, and none is where all are.
    ///
    /// Among equals the one that ranks highest for `salt` (see [`mix`]), asked for only then: a session's hash
    /// keeps a session on one worker, [`crate::Host::random`] spreads evenly.
    #[must_use]
    pub fn of<'a>(
        costs: impl IntoIterator<Item = (Row<'a>, f64)>,
        salt: impl FnOnce() -> u64,
    ) -> Option<Self> {
        let mut best: Option<(Self, WorkerId)> = None;
        let mut salt = Salt::Unasked(salt);
        for (row, cost) in costs {
            let better = match &best {
                None => !cost.is_nan(),
                Some((least, _)) if cost != least.cost => cost < least.cost,
                Some((_, id)) => {
                    let salt = salt.get();
                    mix(salt, u64::from(row.id)) > mix(salt, u64::from(*id))
                }
            };
            if better {
                best = Some((Self { row: row.index, cost }, row.id));
            }
        }
        best.map(|(least, _)| least)
    }
}

/// One candidate.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    index: usize,
    id: WorkerId,
    numbers: &'a [f64],
}

impl Row<'_> {
    /// Its place, from 0: what a verdict names.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Which worker it is.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Its number in that column; NaN while unknown.
    #[must_use]
    pub fn get(&self, column: Column) -> f64 {
        self.numbers.get(column.0).copied().unwrap_or(f64::NAN)
    }

    /// What it does.
    #[must_use]
    pub fn role(&self, column: RoleColumn) -> Role {
        Role::of(self.get(column.0))
    }
}

/// Asked at most once, and only where there is a tie.
enum Salt<F> {
    Unasked(F),
    Asking,
    Known(u64),
}

impl<F: FnOnce() -> u64> Salt<F> {
    fn get(&mut self) -> u64 {
        if let Self::Known(salt) = *self {
            return salt;
        }
        let Self::Unasked(ask) = std::mem::replace(self, Self::Asking) else {
            return 0;
        };
        let salt = ask();
        *self = Self::Known(salt);
        salt
    }
}

/// A number that may be unknown.
pub trait Known {
    /// Itself, or `default` where it is NaN.
    #[must_use]
    fn known_or(self, default: f64) -> f64;
}

impl Known for f64 {
    fn known_or(self, default: f64) -> f64 {
        if self.is_nan() { default } else { self }
    }
}
