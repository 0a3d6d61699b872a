//! Input of one decision, read without copying: the request's facts and numbers, and one row for each
//! candidate.

use crate::hash::mix;
use crate::host::Role;
use crate::lanes::RowPair;
use crate::plan::{Column, Plan, RequestNumber, RoleColumn};

/// Identifier of one worker while it is configured; never reused within one run of the router.
pub type WorkerId = u32;

/// Part of the request that the call places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// The whole request, on one worker. In a disaggregated pool it may go to a pair, if the policy has
    /// requested [`Plan::roles`].
    #[default]
    Mixed,
    /// The prefill leg, on a prefill or mixed worker; a mixed worker takes the whole request.
    Prefill,
    /// The decode leg, on a decode worker.
    Decode,
}

/// Facts of the request that every policy receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Sequence number of the request, from 1; the seed of [`crate::Host::random`].
    pub seq: u64,
    /// Stable hash of the client's session key; none if the client sent no key.
    pub session: Option<u64>,
    /// Part of the request that this call places.
    pub phase: Phase,
    /// Number of earlier decisions for this request.
    pub attempt: u32,
}

/// Input of one decision, apart from the answers of a [`crate::Host`].
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    request: Request,
    ids: &'a [WorkerId],
    front: &'a [f64],
    matrix: &'a [f64],
    columns: usize,
    name_hash: Option<Column>,
}

impl<'a> Call<'a> {
    /// Wraps `numbers`, laid out as `plan` requests: the request's numbers, then one row for each candidate.
    /// Returns none if their count does not match the plan.
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
            name_hash: plan.name_hash,
        })
    }

    /// Returns the facts of the request.
    #[must_use]
    pub fn request(&self) -> Request {
        self.request
    }

    /// Returns a number of the request; NaN if it is unknown.
    #[must_use]
    pub fn number(&self, number: RequestNumber) -> f64 {
        self.front.get(number.0).copied().unwrap_or(f64::NAN)
    }

    /// Returns the candidates' ids in row order; never empty in a call of the router.
    #[must_use]
    pub fn ids(&self) -> &'a [WorkerId] {
        self.ids
    }

    /// Returns a key of [`Host::state`](crate::Host::state) for data about this list of candidates.
    ///
    /// The key is `name` with one of 64 suffixes, `-aa` to `-hh`, so that the number of keys is bounded. Two
    /// lists may share a key.
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

    /// Returns one row; none if there are not so many.
    #[must_use]
    #[inline]
    pub fn row(&self, index: usize) -> Option<Row<'a>> {
        let Self {
            ids, matrix, columns, ..
        } = *self;
        Some(Row {
            index,
            id: *ids.get(index)?,
            numbers: matrix.get(index * columns..(index + 1) * columns)?,
        })
    }

    /// Iterates over the candidates in row order, two at a time.
    pub fn row_pairs(&self) -> impl Iterator<Item = RowPair<'a>> + use<'a> {
        let Self {
            ids, matrix, columns, ..
        } = *self;
        let mut left = matrix;
        ids.chunks(2).enumerate().map(move |(pair, ids)| {
            let (numbers, rest) = left.split_at(ids.len() * columns);
            left = rest;
            RowPair::new(2 * pair, ids, numbers, columns)
        })
    }

    /// Iterates over the candidates in row order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let Self {
            ids, matrix, columns, ..
        } = *self;
        let mut left = matrix;
        ids.iter().enumerate().map(move |(index, &id)| {
            let (numbers, rest) = left.split_at(columns);
            left = rest;
            Row { index, id, numbers }
        })
    }

    /// Computes one number for each candidate, in row order: the answer of a [`Scorer`](crate::Scorer).
    #[must_use]
    pub fn scores(&self, score: impl Fn(&Row<'a>) -> f64) -> Vec<f64> {
        self.rows().map(|row| score(&row)).collect()
    }

    /// Returns the greatest of the candidates' known numbers; NaN if none is known.
    #[must_use]
    pub fn greatest(&self, number: impl Fn(&Row<'a>) -> f64) -> f64 {
        let more = |most: f64, number| if number <= most { most } else { number };
        self.rows()
            .map(|row| number(&row))
            .filter(|number| !number.is_nan())
            .fold(f64::NAN, more)
    }

    /// Returns the least of the candidates' known numbers; NaN if none is known.
    #[must_use]
    pub fn smallest(&self, number: impl Fn(&Row<'a>) -> f64) -> f64 {
        -self.greatest(|row| -number(row))
    }

    /// Finds the candidate with the least cost, as [`Call::least_among`] does.
    #[must_use]
    pub fn least(&self, salt: impl FnOnce() -> u64, cost: impl Fn(&Row<'a>) -> f64) -> Option<LeastCost> {
        self.least_among(self.rows().map(|row| (row, cost(&row))), salt)
    }

    /// Finds the least of some candidates' costs. A NaN cost is never chosen. Returns none if all costs are NaN.
    ///
    /// Ties go to the highest [`Call::rank`] for `salt`, which is computed only in a tie. A session's hash as salt
    /// keeps the session on one worker; [`crate::Host::random`] distributes ties evenly.
    #[must_use]
    pub fn least_among(
        &self,
        costs: impl IntoIterator<Item = (Row<'a>, f64)>,
        salt: impl FnOnce() -> u64,
    ) -> Option<LeastCost> {
        let mut best: Option<(Row<'a>, f64)> = None;
        let mut salt = TieSalt::Pending(salt);
        for (row, cost) in costs {
            let better = match &best {
                None => !cost.is_nan(),
                Some((_, least)) if cost != *least => cost < *least,
                Some((other, _)) => {
                    let salt = salt.get();
                    self.rank(salt, &row) > self.rank(salt, other)
                }
            };
            if better {
                best = Some((row, cost));
            }
        }
        best.map(|(row, cost)| LeastCost { row: row.index, cost })
    }

    /// Returns the rank of a candidate for a key (rendezvous hashing, see [`mix`]). It ranks names if the plan has
    /// [`Plan::name_hash`], else ids: only names are equal in every router and after a restart.
    ///
    /// It is not inlined: only ties and the search for a home call it, and most decisions have neither.
    #[must_use]
    #[inline(never)]
    pub fn rank(&self, key: u64, row: &Row<'_>) -> u64 {
        let name = self.name_hash.map(|column| row.get(column) as u64);
        mix(key, name.unwrap_or(row.id.into()))
    }

    /// Finds the home of a key: the candidate with the highest [`Call::rank`] for it. A worker that joins or leaves
    /// moves only its own keys. With [`Plan::name_hash`] every router finds the same home.
    #[must_use]
    pub fn home(&self, key: u64) -> Option<WorkerId> {
        let home = self.rows().max_by_key(|row| self.rank(key, row));
        home.map(|row| row.id())
    }
}

/// Candidate with the least cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastCost {
    /// Row of the candidate.
    pub row: usize,
    /// Cost of the candidate.
    pub cost: f64,
}

/// Row of one candidate.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    index: usize,
    id: WorkerId,
    numbers: &'a [f64],
}

impl Row<'_> {
    /// Returns the row's index from 0, as used in a verdict.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the worker's id.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// Returns the candidate's number in that column; NaN if it is unknown.
    #[must_use]
    pub fn get(&self, column: Column) -> f64 {
        self.numbers.get(column.0).copied().unwrap_or(f64::NAN)
    }

    /// Returns the candidate's numbers in all columns.
    #[inline(always)]
    pub(crate) fn numbers(&self) -> &[f64] {
        self.numbers
    }

    /// Returns the worker's role.
    #[must_use]
    pub fn role(&self, column: RoleColumn) -> Role {
        Role::of(self.get(column.0))
    }
}

/// Tie-breaking salt: computed at most once, and only if there is a tie.
enum TieSalt<F> {
    Pending(F),
    Taken,
    Computed(u64),
}

impl<F: FnOnce() -> u64> TieSalt<F> {
    fn get(&mut self) -> u64 {
        if let Self::Computed(salt) = *self {
            return salt;
        }
        let Self::Pending(compute) = std::mem::replace(self, Self::Taken) else {
            return 0;
        };
        let salt = compute();
        *self = Self::Computed(salt);
        salt
    }
}

/// Number that may be unknown (NaN).
pub trait OptionalNumber {
    /// Returns the number, or `default` if it is NaN.
    #[must_use]
    fn known_or(self, default: f64) -> f64;
}

impl OptionalNumber for f64 {
    fn known_or(self, default: f64) -> f64 {
        if self.is_nan() { default } else { self }
    }
}
