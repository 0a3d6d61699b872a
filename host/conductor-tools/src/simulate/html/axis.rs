//! The axes of a plot: from values to places, and which values are written beside them.

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// Logarithmic, for values above 0.
    Log,
}

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) label: String,
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

/// About as many values are written beside a linear axis.
const TICKS: f64 = 5.0;

impl Axis {
    /// Returns an axis that has room for the finite ones of these values. A linear one begins at 0 or below.
    pub(super) fn of(label: &str, scale: Scale, values: impl IntoIterator<Item = f64>) -> Self {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        // Nothing to plot is a plot all the same.
        let (low, high) = if low > high { (1.0, 1.0) } else { (low, high) };
        let (low, high, ticks) = match scale {
            Scale::Linear => linear(low.min(0.0), high),
            Scale::Log => logarithmic(low, high),
        };
        Self {
            label: label.to_owned(),
            scale,
            low,
            high,
            ticks,
        }
    }

    /// Returns an axis that ends where the values do.
    pub(super) fn between(label: &str, low: f64, high: f64) -> Self {
        let (_, _, mut ticks) = linear(low, high);
        let high = if high > low { high } else { low + 1.0 };
        ticks.retain(|tick| (low..=high).contains(tick));
        Self {
            label: label.to_owned(),
            scale: Scale::Linear,
            low,
            high,
            ticks,
        }
    }

    /// Returns an axis from 0 to 1.
    pub(super) fn shares(label: &str) -> Self {
        Self::of(label, Scale::Linear, [0.0, 1.0])
    }

    /// Returns the position of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.ln(),
        };
        (scaled(value) - scaled(self.low)) / (scaled(self.high) - scaled(self.low))
    }

    /// Label of the axis.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }
}

/// Ends and ticks at multiples of 1, 2 or 5 times a power of ten.
fn linear(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let high = if high > low { high } else { low + 1.0 };
    let rough = (high - low) / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let (first, last) = ((low / step).floor() as i64, (high / step - 1e-9).ceil() as i64);
    let ticks: Vec<f64> = (first..=last).map(|number| number as f64 * step).collect();
    (first as f64 * step, last as f64 * step, ticks)
}

/// Ends at the values; ticks at powers of ten, and at 2 and 5 times these where there are few.
fn logarithmic(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let high = if high > low { high } else { low * 10.0 };
    let factors: &[f64] = if high / low < 200.0 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let ticks = decades.flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)));
    (
        low,
        high,
        ticks.filter(|tick| (low..=high).contains(tick)).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_take_all_values_in() {
        let axis = Axis::of("", Scale::Linear, [3.0, f64::NAN, 47.0, f64::INFINITY]);
        assert_eq!(axis.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(
            (axis.place(0.0), axis.place(25.0), axis.place(50.0)),
            (0.0, 0.5, 1.0)
        );
        let shares: Vec<String> = Axis::shares("")
            .ticks()
            .iter()
            .map(|tick| format!("{tick:.1}"))
            .collect();
        assert_eq!(shares, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn a_logarithmic_axis_gives_every_decade_the_same_room() {
        let axis = Axis::of("", Scale::Log, [0.01, 100.0]);
        assert_eq!(axis.ticks().len(), 5);
        assert!((axis.place(1.0) - 0.5).abs() < 1e-9);
        assert_eq!(
            Axis::of("", Scale::Log, [1.5, 30.0]).ticks(),
            [2.0, 5.0, 10.0, 20.0]
        );
    }

    #[test]
    fn an_axis_between_two_values_has_no_room_beside_them() {
        let axis = Axis::between("", 1.0, 17.3);
        assert_eq!((axis.place(1.0), axis.place(17.3)), (0.0, 1.0));
        assert_eq!(axis.ticks(), [5.0, 10.0, 15.0]);
    }

    #[test]
    fn of_one_value_or_none_there_is_an_axis_too() {
        for values in [&[][..], &[0.0], &[7.0], &[f64::NAN]] {
            let axis = Axis::of("", Scale::Linear, values.iter().copied());
            assert!(
                axis.place(0.0).is_finite() && axis.ticks().len() > 1,
                "{values:?}"
            );
        }
        assert!(Axis::of("", Scale::Log, [2.0]).place(2.0).is_finite());
        assert!(Axis::of("", Scale::Log, []).place(2.0).is_finite());
    }
}
