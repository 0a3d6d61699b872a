//! The figures that policies are compared by, and how they are written.

use simulator::Summary;

use super::estimate::Estimate;

/// Figure of a run.
#[derive(Debug)]
pub(super) struct Figure {
    /// Name, as in the heads of columns.
    pub(super) name: &'static str,
    /// Name of the figure.
    pub(super) what: &'static str,
    pub(super) of: fn(&Summary) -> f64,
    pub(super) unit: Unit,
    /// Set if the figure's interval is in the table too.
    pub(super) is_main: bool,
    /// Value of a run, if it has one.
    pub(super) is_shown: fn(&Summary) -> bool,
}

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Two decimals.
    Ratio,
    /// Three decimals: differences are small.
    Fine,
    /// No unit.
    Whole,
    /// Share of 1, shown in per cent.
    Share,
    /// Requests: whole, but for means of several seeds.
    Count,
}

impl Unit {
    /// Formats a number without its unit.
    fn number(self, value: f64) -> String {
        match self {
            Self::Ratio => format!("{value:.2}"),
            Self::Fine => format!("{value:.3}"),
            Self::Whole => format!("{value:.0}"),
            Self::Share => format!("{:.1}", 100.0 * value),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => format!("{value:.1}"),
        }
    }

    /// Formats a mean, with its interval if that `is_wide`.
    pub(super) fn format(self, estimate: &Estimate, is_wide: bool) -> String {
        let Some(mean) = estimate.mean else {
            return "-".to_owned();
        };
        let unit = if self == Self::Share { " %" } else { "" };
        format!("{}{}{unit}", self.number(mean), self.reach(estimate, is_wide))
    }

    /// Formats a difference: with its sign, and shares in percentage points.
    pub(super) fn difference(self, estimate: &Estimate) -> String {
        let Some(mean) = estimate.mean else {
            return "-".to_owned();
        };
        let number = self.number(mean);
        // A value that is rounded to 0 has no sign.
        let number = match number.trim_start_matches(['-', '0', '.']).is_empty() {
            true => number.trim_start_matches('-').to_owned(),
            false if mean > 0.0 => format!("+{number}"),
            false => number,
        };
        let unit = if self == Self::Share { " points" } else { "" };
        format!("{number}{}{unit}", self.reach(estimate, true))
    }

    fn reach(self, estimate: &Estimate, is_wide: bool) -> String {
        let half_width = estimate.half_width.filter(|_| is_wide);
        half_width.map_or_else(String::new, |half_width| {
            format!(" +-{}", self.number(half_width))
        })
    }
}

const fn main(name: &'static str, what: &'static str, unit: Unit, of: fn(&Summary) -> f64) -> Figure {
    Figure {
        name,
        what,
        of,
        unit,
        is_main: true,
        is_shown: |_| true,
    }
}

const fn other(name: &'static str, what: &'static str, unit: Unit, of: fn(&Summary) -> f64) -> Figure {
    Figure {
        is_main: false,
        ..main(name, what, unit, of)
    }
}

/// Returns a figure that is of interest where requests are refused.
const fn rare(name: &'static str, what: &'static str, unit: Unit, of: fn(&Summary) -> f64) -> Figure {
    Figure {
        is_shown: |summary| summary.rejected > 0,
        ..other(name, what, unit, of)
    }
}

/// Figures in the order of the table's columns.
pub(super) const FIGURES: [Figure; 17] = [
    main(
        "TTFT s",
        "Seconds from arrival to first token, the mean",
        Unit::Ratio,
        |summary| summary.ttft_s.mean,
    ),
    other(
        "p50",
        "Half of the requests had theirs within so many seconds",
        Unit::Ratio,
        |summary| summary.ttft_s.p50,
    ),
    main("p90", "Nine in ten had", Unit::Ratio, |summary| {
        summary.ttft_s.p90
    }),
    other("p99", "Ninety-nine in a hundred had", Unit::Ratio, |summary| {
        summary.ttft_s.p99
    }),
    other(
        "<= 5 s",
        "Share of all requests whose first token came within 5 s",
        Unit::Share,
        |summary| summary.within_5_s,
    ),
    other(
        "in time",
        "The same within --ttft-limit-s",
        Unit::Share,
        |summary| summary.within_ttft,
    ),
    other(
        "TBT ms",
        "Mean over the requests of the mean of the longest tenth of the times between their tokens",
        Unit::Whole,
        |summary| summary.tbt_ms.mean,
    ),
    main(
        "effective",
        "Share of the requests that were served within both limits",
        Unit::Share,
        |summary| summary.effective,
    ),
    main(
        "goodput/s",
        "How many these are a second",
        Unit::Ratio,
        |summary| summary.goodput_per_s,
    ),
    main(
        "cached",
        "Share of the prompts' blocks that were not computed",
        Unit::Share,
        |summary| summary.block_hit_ratio,
    ),
    other(
        "max/mean",
        "Prompt tokens computed by the worker that computed most, over the mean",
        Unit::Ratio,
        |summary| summary.imbalance,
    ),
    other(
        "refused",
        "Requests that were refused, or lost with a worker",
        Unit::Count,
        |summary| (summary.rejected + summary.lost) as f64,
    ),
    rare(
        "early",
        "Of these, refused before anything was computed",
        Unit::Count,
        |summary| summary.rejected_early as f64,
    ),
    rare(
        "late",
        "Refused when the prompt was computed",
        Unit::Count,
        |summary| summary.rejected_after_prefill as f64,
    ),
    rare(
        "wasted",
        "Share of the computed prompt tokens that no answer came of",
        Unit::Share,
        |summary| summary.wasted_prefill_share,
    ),
    rare(
        "swing",
        "How much the load of the workers that compute prompts swings: standard deviation over mean",
        Unit::Ratio,
        |summary| summary.loads.prefill.swing,
    ),
    rare(
        "decode swing",
        "The same of those that write answers",
        Unit::Ratio,
        |summary| summary.loads.decode.swing,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_shown_in_its_unit_with_its_interval() {
        let two = Estimate::of([0.5, 0.52]);
        assert_eq!(Unit::Share.format(&two, true), "51.0 +-12.7 %");
        assert_eq!(Unit::Share.format(&two, false), "51.0 %");
        assert_eq!(Unit::Ratio.format(&Estimate::of([f64::NAN]), true), "-");
        assert_eq!(Unit::Count.format(&Estimate::of([1.0, 2.0]), false), "1.5");
    }

    #[test]
    fn a_difference_has_a_sign_unless_it_is_none() {
        assert_eq!(Unit::Share.difference(&Estimate::of([0.012])), "+1.2 points");
        assert_eq!(Unit::Ratio.difference(&Estimate::of([-0.25])), "-0.25");
        assert_eq!(Unit::Ratio.difference(&Estimate::of([-0.001])), "0.00");
    }
}
