//! Numbers of any unit brought onto 0 to 1.

/// Range of the numbers, infinite and unknown ones left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    /// Half of the least and of the greatest: their difference is always finite.
    least: f64,
    span: f64,
}

impl Scale {
    /// Returns the scale of these numbers.
    pub(super) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut least = f64::INFINITY;
        let mut most = f64::NEG_INFINITY;
        for number in numbers.filter(|number| number.is_finite()) {
            least = least.min(number);
            most = most.max(number);
        }
        Self {
            least: least / 2.0,
            span: most / 2.0 - least / 2.0,
        }
    }

    /// Returns the place of a number: 0 for the least, 1 for the greatest, in between what lies between. Infinite ones
    /// are at the ends; unknown ones in the middle, and where all numbers are equal, these too.
    pub(super) fn place(self, number: f64) -> f64 {
        if number.is_finite() && self.span > 0.0 {
            ((number / 2.0 - self.least) / self.span).clamp(0.0, 1.0)
        } else if number == f64::INFINITY {
            1.0
        } else if number == f64::NEG_INFINITY {
            0.0
        } else {
            0.5
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::collection::vec;
    use proptest::num::f64::ANY;
    use proptest::prelude::*;

    use super::*;

    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;

    fn places(numbers: &[f64]) -> Vec<f64> {
        let scale = Scale::of(numbers.iter().copied());
        numbers.iter().map(|number| scale.place(*number)).collect()
    }

    #[track_caller]
    fn check<const N: usize>(numbers: [f64; N], expected: [f64; N]) {
        assert_eq!(places(&numbers), expected);
    }

    #[test]
    fn the_least_is_0_and_the_greatest_is_1() {
        check([3.0, 1.0, 5.0, 2.0], [0.5, 0.0, 1.0, 0.25]);
        check([-10.0, -30.0], [1.0, 0.0]);
    }

    #[test]
    fn an_unknown_number_is_in_the_middle_and_equal_ones_are_too() {
        check([8.0, NAN, 0.0], [1.0, 0.5, 0.0]);
        check([NAN, NAN], [0.5, 0.5]);
        check([7.0, 7.0, NAN], [0.5, 0.5, 0.5]);
        check([7.0], [0.5]);
    }

    #[test]
    fn infinite_numbers_are_at_the_ends() {
        check([1.0, INF, 3.0, -INF], [0.0, 1.0, 1.0, 0.0]);
        check([4.0, INF], [0.5, 1.0]);
        check([INF, -INF, NAN], [1.0, 0.0, 0.5]);
    }

    #[test]
    fn the_largest_numbers_there_are_do_not_overflow() {
        check([f64::MAX, f64::MIN, 0.0], [1.0, 0.0, 0.5]);
    }

    proptest! {
        #[test]
        fn places_are_from_0_to_1_and_keep_the_order_of_the_numbers(numbers in vec(ANY, 1..40)) {
            let places = places(&numbers);
            prop_assert!(places.iter().all(|place| (0.0..=1.0).contains(place)), "{places:?}");
            for (a, at) in numbers.iter().zip(&places) {
                for (b, bt) in numbers.iter().zip(&places) {
                    prop_assert!(a.partial_cmp(b) != Some(Ordering::Less) || at <= bt, "{a} at {at}, {b} at {bt}");
                }
            }
        }

        #[test]
        fn unit_and_offset_do_not_matter(numbers in vec(-1e6..1e6_f64, 2..40), unit in 0.001..1e3_f64, offset in -1e6..1e6_f64) {
            let others: Vec<f64> = numbers.iter().map(|number| number * unit + offset).collect();
            let range = numbers.iter().copied().fold(-INF, f64::max) - numbers.iter().copied().fold(INF, f64::min);
            prop_assume!(range * unit > 1.0);
            for (one, other) in places(&numbers).iter().zip(places(&others)) {
                prop_assert!((one - other).abs() < 1e-6, "{one} {other}");
            }
        }
    }
}
