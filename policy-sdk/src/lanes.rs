//! Arithmetic on the numbers of two candidates at once, and formulas that work on one as on two.

use std::array;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Sub};

use crate::call::{Call, LeastCost, Row, WorkerId};
use crate::plan::{Column, Columns};

#[cfg(not(target_feature = "simd128"))]
use arrays as vectors;

/// Number of one candidate (`f64`), or numbers of several ([`Lanes`]).
///
/// A formula over this trait is written once. It has the same result, to the last bit, for one candidate and for
/// several.
pub trait Number:
    Copy + From<f64> + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Result of a comparison, for each candidate.
    type Mask: NumberMask;

    /// Compares: true if this is greater than `other`, and neither is NaN.
    #[must_use]
    fn exceeds(self, other: Self) -> Self::Mask;

    /// Compares: true if this is greater than `other` or equal, and neither is NaN.
    #[must_use]
    fn reaches(self, other: Self) -> Self::Mask;

    /// Compares: true if both are equal.
    #[must_use]
    #[inline(always)]
    fn equals(self, other: Self) -> Self::Mask {
        self.reaches(other) & other.reaches(self)
    }

    /// Returns `yes` where the mask is true, else `no`. Both are computed.
    #[must_use]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Returns this number, or `least` if that is greater or this is NaN.
    #[must_use]
    #[inline(always)]
    fn at_least(self, least: Self) -> Self {
        Self::select(self.exceeds(least), self, least)
    }
}

/// Comparison for one candidate (`bool`), or for several ([`LanesMask`]).
pub trait NumberMask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> {
    /// Returns true if the comparison is true for each candidate.
    #[must_use]
    fn all(self) -> bool;

    /// Returns true if the comparison is true for at least one candidate.
    #[must_use]
    fn any(self) -> bool;
}

/// Numbers of one candidate ([`Row`]), or of several ([`RowPair`]).
pub trait Numbers {
    /// Number in a column.
    type Number: Number;

    /// Returns the number in that column; NaN if it is unknown.
    #[must_use]
    fn number(&self, column: Column) -> Self::Number;

    /// Returns the numbers in columns that are side by side; NaN if they are unknown.
    #[must_use]
    fn block<const N: usize>(&self, columns: &Columns<N>) -> [Self::Number; N];
}

/// Two adjacent rows; the last row alone if the number of candidates is odd.
#[derive(Debug, Clone, Copy)]
pub struct RowPair<'a> {
    /// Index of the first row.
    first: usize,
    ids: &'a [WorkerId],
    /// Numbers of both rows; of the first twice if it is alone.
    numbers: [&'a [f64]; 2],
}

/// One number for each candidate of a call, computed by [`Call::each`].
#[derive(Debug, Clone)]
pub struct EachNumber {
    pairs: Vec<[f64; 2]>,
    /// The least number; infinite if all are NaN.
    least: f64,
}

/// Numbers of the two candidates of a [`RowPair`].
#[derive(Debug, Clone, Copy)]
pub struct Lanes(vectors::Two);

/// Comparison of two [`Lanes`].
#[derive(Debug, Clone, Copy)]
pub struct LanesMask(vectors::TwoMasks);

impl<'a> Call<'a> {
    /// Computes one number for each candidate, two candidates at a time.
    ///
    /// It is not inlined, since a loop in a small function keeps its numbers in registers.
    #[must_use]
    #[inline(never)]
    pub fn each(&self, number: impl Fn(&RowPair<'a>) -> Lanes) -> EachNumber {
        let mut least = Lanes::from(f64::INFINITY);
        let pairs = self.row_pairs().map(|rows| {
            // The formula has one call, so that the compiler inlines it.
            let both = number(&rows);
            let numbers = match rows.ids.len() {
                1 => both.of_first(),
                _ => both,
            };
            least = Lanes::select(least.exceeds(numbers), numbers, least);
            numbers.into()
        });
        let pairs = pairs.collect();
        let [first, second] = least.into();
        EachNumber {
            pairs,
            least: if second < first { second } else { first },
        }
    }

    /// Finds the candidate with the least cost, as [`Call::least_among`] does.
    #[must_use]
    #[inline(never)]
    pub fn least_of(&self, salt: impl FnOnce() -> u64, costs: &EachNumber) -> Option<LeastCost> {
        let least = Lanes::from(costs.least);
        let mut ties = Vec::new();
        for (pair, numbers) in costs.pairs.iter().enumerate() {
            if Lanes::from(*numbers).equals(least).any() {
                ties.extend([2 * pair, 2 * pair + 1]);
            }
        }
        let rows = ties
            .into_iter()
            .filter_map(|row| Some((self.row(row)?, costs.get(row))));
        self.least_among(rows.filter(|(_, cost)| *cost == costs.least), salt)
    }

    /// Returns the sum of a column's known numbers that are at least 0, and how many there are.
    #[must_use]
    #[inline(never)]
    pub fn known_sum(&self, column: Column) -> (f64, f64) {
        let [zero, one] = [0.0, 1.0].map(Lanes::from);
        let (mut sum, mut count) = (zero, zero);
        for rows in self.row_pairs() {
            let numbers = rows.number(column);
            let second = if rows.ids.len() > 1 { 1.0 } else { -1.0 };
            let is_known = numbers.reaches(zero) & Lanes::from([1.0, second]).exceeds(zero);
            // Mostly none is known, and each addition waits for the last.
            if !is_known.any() {
                continue;
            }
            sum = sum + Lanes::select(is_known, numbers, zero);
            count = count + Lanes::select(is_known, one, zero);
        }
        let whole = |lanes: Lanes| <[f64; 2]>::from(lanes).iter().sum();
        (whole(sum), whole(count))
    }
}

impl EachNumber {
    /// Returns the number of the candidate in that row; NaN if there is none.
    #[must_use]
    #[inline]
    pub fn get(&self, row: usize) -> f64 {
        self.pairs.as_flattened().get(row).copied().unwrap_or(f64::NAN)
    }

    /// Returns the numbers of two candidates; 0 if there are none.
    #[must_use]
    #[inline(always)]
    pub fn of(&self, rows: &RowPair<'_>) -> Lanes {
        Lanes::from(self.pairs.get(rows.index()).copied().unwrap_or([0.0; 2]))
    }

    /// Iterates over the numbers in row order. The last one is repeated if their number is odd.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.pairs.as_flattened().iter().copied()
    }
}

impl<'a> RowPair<'a> {
    #[inline(always)]
    pub(crate) fn new(first: usize, ids: &'a [WorkerId], numbers: &'a [f64], columns: usize) -> Self {
        let (row, next) = numbers.split_at(columns);
        // Both slices have one length, so that a column's place is checked once.
        let next = if ids.len() > 1 { &next[..columns] } else { row };
        Self {
            first,
            ids,
            numbers: [row, next],
        }
    }

    /// Returns the index of the pair: half of its first row's.
    #[must_use]
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.first / 2
    }

    /// Returns the ids of the two workers; the same twice if there is one.
    #[must_use]
    #[inline]
    pub fn ids(&self) -> [WorkerId; 2] {
        let id = |at: usize| self.ids.get(at).copied().unwrap_or_default();
        [id(0), id(self.ids.len().saturating_sub(1))]
    }
}

impl Numbers for Row<'_> {
    type Number = f64;

    #[inline(always)]
    fn number(&self, column: Column) -> f64 {
        self.get(column)
    }

    #[inline(always)]
    fn block<const N: usize>(&self, columns: &Columns<N>) -> [f64; N] {
        *block(self.numbers(), columns)
    }
}

impl Numbers for RowPair<'_> {
    type Number = Lanes;

    #[inline(always)]
    fn number(&self, column: Column) -> Lanes {
        // A second way for a column outside the row would keep the compiler from reading all columns first.
        Lanes::from(self.numbers.map(|row| row[column.0]))
    }

    #[inline(always)]
    fn block<const N: usize>(&self, columns: &Columns<N>) -> [Lanes; N] {
        let [first, second] = self.numbers.map(|row| block(row, columns));
        array::from_fn(|at| Lanes::from([first[at], second[at]]))
    }
}

#[inline(always)]
fn block<'a, const N: usize>(row: &'a [f64], columns: &Columns<N>) -> &'a [f64; N] {
    let (blocks, _) = row[columns.first..].as_chunks();
    &blocks[0]
}

impl Number for f64 {
    type Mask = bool;

    #[inline(always)]
    fn exceeds(self, other: Self) -> bool {
        self > other
    }

    #[inline(always)]
    fn reaches(self, other: Self) -> bool {
        self >= other
    }

    #[inline(always)]
    fn select(mask: bool, yes: Self, no: Self) -> Self {
        if mask { yes } else { no }
    }
}

impl Number for Lanes {
    type Mask = LanesMask;

    #[inline(always)]
    fn exceeds(self, other: Self) -> LanesMask {
        LanesMask(vectors::exceeds(self.0, other.0))
    }

    #[inline(always)]
    fn reaches(self, other: Self) -> LanesMask {
        LanesMask(vectors::reaches(self.0, other.0))
    }

    #[inline(always)]
    fn select(mask: LanesMask, yes: Self, no: Self) -> Self {
        Self(vectors::select(mask.0, yes.0, no.0))
    }
}

impl Lanes {
    /// Returns the first number for both.
    #[inline(always)]
    fn of_first(self) -> Self {
        let [first, _] = self.into();
        Self::from(first)
    }
}

impl NumberMask for bool {
    #[inline(always)]
    fn all(self) -> bool {
        self
    }

    #[inline(always)]
    fn any(self) -> bool {
        self
    }
}

impl NumberMask for LanesMask {
    #[inline(always)]
    fn all(self) -> bool {
        vectors::all(self.0)
    }

    #[inline(always)]
    fn any(self) -> bool {
        vectors::any(self.0)
    }
}

impl From<f64> for Lanes {
    #[inline(always)]
    fn from(number: f64) -> Self {
        Self::from([number; 2])
    }
}

impl From<[f64; 2]> for Lanes {
    #[inline(always)]
    fn from([first, second]: [f64; 2]) -> Self {
        Self(vectors::two(first, second))
    }
}

impl From<Lanes> for [f64; 2] {
    #[inline(always)]
    fn from(lanes: Lanes) -> Self {
        vectors::both(lanes.0)
    }
}

macro_rules! operators {
    ($kind:ty: $($operator:ident $function:ident $inner:ident),*) => {
        $(impl $operator for $kind {
            type Output = Self;

            #[inline(always)]
            fn $function(self, other: Self) -> Self {
                Self(vectors::$inner(self.0, other.0))
            }
        })*
    };
}
operators!(Lanes: Add add add, Sub sub subtract, Mul mul multiply, Div div divide);
operators!(LanesMask: BitAnd bitand and, BitOr bitor or);

/// Vector instructions of WebAssembly.
#[cfg(target_feature = "simd128")]
mod vectors {
    pub(super) use std::arch::wasm32::{
        f64x2 as two, f64x2_add as add, f64x2_div as divide, f64x2_ge as reaches, f64x2_gt as exceeds,
        f64x2_mul as multiply, f64x2_sub as subtract, i64x2_all_true as all, v128 as Two, v128 as TwoMasks,
        v128_and as and, v128_any_true as any, v128_or as or,
    };
    use std::arch::wasm32::{f64x2_extract_lane, v128_bitselect};

    #[inline(always)]
    pub(super) fn select(mask: TwoMasks, yes: Two, no: Two) -> Two {
        v128_bitselect(yes, no, mask)
    }

    #[inline(always)]
    pub(super) fn both(two: Two) -> [f64; 2] {
        [f64x2_extract_lane::<0>(two), f64x2_extract_lane::<1>(two)]
    }
}

/// The same, one number after the other.
#[cfg(not(target_feature = "simd128"))]
mod arrays {
    use std::array;

    pub(super) type Two = [f64; 2];
    pub(super) type TwoMasks = [bool; 2];

    pub(super) fn two(first: f64, second: f64) -> Two {
        [first, second]
    }

    pub(super) fn both(two: Two) -> [f64; 2] {
        two
    }

    pub(super) fn any(masks: TwoMasks) -> bool {
        masks.contains(&true)
    }

    pub(super) fn all(masks: TwoMasks) -> bool {
        !masks.contains(&false)
    }

    pub(super) fn select(mask: TwoMasks, yes: Two, no: Two) -> Two {
        array::from_fn(|lane| if mask[lane] { yes[lane] } else { no[lane] })
    }

    macro_rules! lanewise {
        ($($name:ident: $kind:ty => $result:ty, $operator:tt;)*) => {
            $(pub(super) fn $name(a: $kind, b: $kind) -> $result {
                array::from_fn(|lane| a[lane] $operator b[lane])
            })*
        };
    }
    lanewise! {
        add: Two => Two, +;
        subtract: Two => Two, -;
        multiply: Two => Two, *;
        divide: Two => Two, /;
        exceeds: Two => TwoMasks, >;
        reaches: Two => TwoMasks, >=;
        and: TwoMasks => TwoMasks, &;
        or: TwoMasks => TwoMasks, |;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Request;
    use crate::plan::Plan;

    fn formula<N: Number>(a: N, b: N) -> N {
        let quotient = N::select(a.exceeds(b) | b.reaches(0.0.into()), a / b, a - b * 0.3.into());
        quotient.at_least(1.0.into()) + N::select(a.exceeds(b) & a.exceeds(2.0.into()), a, b)
    }

    #[test]
    fn two_at_once_give_what_one_gives() {
        const NUMBERS: [f64; 6] = [0.0, -1.5, 3.0, 1e300, f64::NAN, f64::INFINITY];
        for a in NUMBERS {
            for b in NUMBERS {
                let [first, second] = formula(Lanes::from([a, b]), Lanes::from([b, a])).into();
                assert_eq!(first.to_bits(), formula(a, b).to_bits(), "{a} {b}");
                assert_eq!(second.to_bits(), formula(b, a).to_bits(), "{b} {a}");
            }
        }
    }

    #[test]
    fn each_candidate_has_its_number_and_the_last_row_may_be_alone() {
        let mut plan = Plan::default();
        let column = plan.column("load.requests");
        for count in 0..=5 {
            let numbers: Vec<f64> = (0..count).map(f64::from).collect();
            let ids: Vec<u32> = (0..count).collect();
            let call = Call::new(Request::default(), &ids, &numbers, &plan).unwrap();
            let same = call.each(|rows| rows.number(column));
            let twice = call.each(|rows| rows.number(column) + same.of(rows));
            assert!((0..count).all(|row| twice.get(row as usize) == f64::from(2 * row)));
            assert_eq!(
                call.known_sum(column),
                (numbers.iter().sum::<f64>() + 0.0, f64::from(count))
            );
            let least = |row: &Row<'_>| row.get(column);
            assert_eq!(call.least_of(|| 1, &same), call.least(|| 1, least));
            let equal = call.each(|_| Lanes::from(3.0));
            assert_eq!(call.least_of(|| 7, &equal), call.least(|| 7, |_| 3.0));
            let unknown = call.each(|_| Lanes::from(f64::NAN));
            assert_eq!(call.least_of(|| 1, &unknown), None);
        }
    }
}
