//! Arithmetic on the numbers of two candidates at once, and formulas that work on one as on two.

use std::ops::{Add, BitAnd, BitOr, Div, Mul, Sub};

use crate::call::{Call, Row};
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
    type Mask: Copy + BitAnd<Output = Self::Mask> + BitOr<Output = Self::Mask>;

    /// Compares: true if this is greater than `other`, and neither is NaN.
    #[must_use]
    fn exceeds(self, other: Self) -> Self::Mask;

    /// Compares: true if this is greater than `other` or equal, and neither is NaN.
    #[must_use]
    fn reaches(self, other: Self) -> Self::Mask;

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

/// Numbers of one candidate ([`Row`]), or of several ([`RowPair`]).
pub trait Numbers {
    /// Number in a column.
    type Number: Number;

    /// Returns the numbers in columns that are side by side; NaN if they are unknown.
    #[must_use]
    fn block<const N: usize>(&self, columns: &Columns<N>) -> [Self::Number; N];
}

/// Two adjacent rows.
#[derive(Debug, Clone, Copy)]
pub struct RowPair<'a>([Row<'a>; 2]);

/// Numbers of the two candidates of a [`RowPair`].
#[derive(Debug, Clone, Copy)]
pub struct Lanes(vectors::Two);

/// Comparison of two [`Lanes`].
#[derive(Debug, Clone, Copy)]
pub struct LanesMask(vectors::TwoMasks);

impl<'a> Call<'a> {
    /// Returns the sum of a column's known numbers that are at least 0, and how many there are.
    #[must_use]
    #[inline(never)]
    pub fn known_sum(&self, column: Column) -> (f64, f64) {
        let zero = Lanes::from(0.0);
        let (mut sum, mut count) = (zero, zero);
        for pair in self.row_pairs() {
            let numbers = pair.get(column);
            let is_known = numbers.reaches(zero) & pair.is_in_call();
            sum = sum + Lanes::select(is_known, numbers, zero);
            count = count + Lanes::select(is_known, 1.0.into(), zero);
        }
        let whole = |lanes: Lanes| <[f64; 2]>::from(lanes).iter().sum();
        (whole(sum), whole(count))
    }

    /// Computes one number for each candidate, in row order, two candidates at a time.
    ///
    /// It is not inlined, since a loop in a small function keeps its numbers in registers.
    #[must_use]
    #[inline(never)]
    pub fn each(&self, number: impl Fn(&RowPair<'a>) -> Lanes) -> Vec<f64> {
        let count = self.ids().len();
        let mut numbers = vec![0.0; count.next_multiple_of(2)];
        let (pairs, _) = numbers.as_chunks_mut::<2>();
        for (to, pair) in pairs.iter_mut().zip(self.row_pairs()) {
            *to = number(&pair).into();
        }
        numbers.truncate(count);
        numbers
    }
}

impl<'a> RowPair<'a> {
    #[inline(always)]
    pub(crate) fn new(first: Row<'a>, second: Row<'a>) -> Self {
        Self([first, second])
    }

    /// Returns which of the two are rows of their own: the second is not if it repeats the first.
    #[inline(always)]
    fn is_in_call(&self) -> LanesMask {
        let [first, second] = self.0.map(|row| row.index());
        Lanes::from([1.0, (second - first) as f64]).exceeds(0.0.into())
    }

    /// Returns the two rows.
    #[must_use]
    #[inline(always)]
    pub fn rows(&self) -> [Row<'a>; 2] {
        self.0
    }

    /// Returns the candidates' numbers in that column; NaN if they are unknown.
    #[must_use]
    #[inline(always)]
    pub fn get(&self, column: Column) -> Lanes {
        Lanes::from(self.0.each_ref().map(|row| row.at(column)))
    }

    /// Returns the two numbers at the candidates' places in `numbers`, which has one for each in row order.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    #[inline(always)]
    pub fn of(&self, numbers: &[f64]) -> Lanes {
        Lanes::from(self.0.each_ref().map(|row| numbers[row.index()]))
    }
}

impl Numbers for Row<'_> {
    type Number = f64;

    #[inline(always)]
    fn block<const N: usize>(&self, columns: &Columns<N>) -> [f64; N] {
        *self.block_at(columns)
    }
}

impl Numbers for RowPair<'_> {
    type Number = Lanes;

    #[inline(always)]
    fn block<const N: usize>(&self, columns: &Columns<N>) -> [Lanes; N] {
        let [first, second] = self.0.each_ref().map(|row| row.block_at(columns));
        std::array::from_fn(|at| Lanes::from([first[at], second[at]]))
    }
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

impl LanesMask {
    /// Returns true if one of the two is true.
    #[must_use]
    #[inline(always)]
    pub fn any(self) -> bool {
        vectors::any(self.0)
    }

    /// Returns true if both are true.
    #[must_use]
    #[inline(always)]
    pub fn all(self) -> bool {
        vectors::all(self.0)
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
            let twice = call.each(|rows| rows.get(column) + rows.of(&numbers));
            assert!(
                twice
                    .iter()
                    .copied()
                    .eq((0..count).map(|number| f64::from(2 * number)))
            );
            assert_eq!(twice.len(), numbers.len());
        }
    }
}
