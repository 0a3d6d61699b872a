//! Plots of the page, each with its table.

use std::collections::BTreeMap;

use super::super::estimate::Estimate;
use super::super::report::{ReportRow, SimulationReport};
use super::axis::{Axis, Scale};
use super::curves::{Curves, Points, at, reaches};
use super::plot::{Line, Plot};
use super::text::number;

/// A plot with its caption and its figures.
#[derive(Debug)]
pub(super) struct Shown<'p> {
    pub(super) plot: Plot<'p>,
    /// Explanation for the reader.
    pub(super) how: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Shares of the requests whose times to first token are in the table.
const SHARES: [f64; 6] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99];
/// Times that are in the table beside a series.
const TIMES: usize = 8;
/// Length in seconds above which a run is plotted in minutes.
const LONG_S: f64 = 900.0;

/// A series over the time of a run.
struct Series {
    id: &'static str,
    title: &'static str,
    how: &'static str,
    axis: &'static str,
    is_share: bool,
    of: fn(&Curves) -> &Points,
}

const SERIES: [Series; 4] = [
    Series {
        id: "hits",
        title: "Hit ratio over time",
        how: "Share of the blocks of the prompts computed in the last twentieth of the run that were cached.",
        axis: "cached blocks, %",
        is_share: true,
        of: |curves| &curves.hits,
    },
    Series {
        id: "imbalance",
        title: "Load imbalance over time",
        how: "Prompt tokens that wait at the worker where most do, over the mean of all, in the last twentieth of the run: 1 is even, the number of workers is all at one.",
        axis: "most / mean",
        is_share: false,
        of: |curves| &curves.imbalance,
    },
    Series {
        id: "queue",
        title: "Queue over time",
        how: "Requests that are held by the router, wait at a worker or are being computed there, or wait for a decode worker.",
        axis: "requests",
        is_share: false,
        of: |curves| &curves.waiting,
    },
    Series {
        id: "refused",
        title: "Rejections over time",
        how: "Requests refused so far.",
        axis: "requests",
        is_share: false,
        of: |curves| &curves.refused,
    },
];

/// Plots of the runs at one speed with the first seed. `number` is the position of the speed.
pub(super) fn at_speed<'r>(rows: &[&'r ReportRow], number: usize) -> Vec<Shown<'r>> {
    let curves: Vec<(usize, &'r str, &'r Curves)> = rows
        .iter()
        .filter_map(|row| Some((row.contestant, row.policy.as_str(), row.curves.as_ref()?)))
        .collect();
    let mut shown = vec![ttft(&curves, number)];
    shown.extend(SERIES.iter().map(|series| over_time(series, &curves, number)));
    // Most runs refuse nothing; that is no picture.
    shown.retain(|shown| {
        shown
            .plot
            .lines
            .iter()
            .any(|line| line.points.iter().any(|point| point[1] > 0.0))
    });
    shown
}

fn lines<'r>(curves: &[(usize, &'r str, &'r Curves)], of: impl Fn(&Curves) -> Points) -> Vec<Line<'r>> {
    let line = |(policy, name, curves): &(usize, &'r str, &'r Curves)| Line {
        name,
        policy: *policy,
        points: of(curves),
        reaches: Vec::new(),
    };
    curves.iter().map(line).collect()
}

fn ttft<'r>(curves: &[(usize, &'r str, &'r Curves)], number_of_speed: usize) -> Shown<'r> {
    let lines = lines(curves, |curves| curves.ttft.clone());
    let xs = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point[0]));
    let x = Axis::of("seconds to the first token (logarithmic)", Scale::Log, xs);
    let row = |line: &Line<'_>| {
        let times = SHARES.iter().map(|share| number(reaches(&line.points, *share)));
        [line.name.to_owned()].into_iter().chain(times).collect()
    };
    let share = |share: &f64| format!("{} % within, s", number(100.0 * share));
    Shown {
        rows: lines.iter().map(row).collect(),
        head: ["policy".to_owned()]
            .into_iter()
            .chain(SHARES.iter().map(share))
            .collect(),
        how: "Share of all requests whose first token came within a time. Higher, and further to the left, is better; what is missing to 100 % got none.".to_owned(),
        plot: Plot {
            id: format!("ttft-{number_of_speed}"),
            title: "Time to first token: attainment".to_owned(),
            text: medians(&lines),
            x,
            y: Axis::shares("share of the requests"),
            lines,
        },
    }
}

fn medians(lines: &[Line<'_>]) -> String {
    let median = |line: &Line<'_>| format!("{} {} s", line.name, number(reaches(&line.points, 0.5)));
    let medians: Vec<String> = lines.iter().map(median).collect();
    format!(
        "Half of the requests have their first token within: {}.",
        medians.join(", ")
    )
}

fn over_time<'r>(
    series: &Series,
    curves: &[(usize, &'r str, &'r Curves)],
    number_of_speed: usize,
) -> Shown<'r> {
    let mut lines = lines(curves, |curves| (series.of)(curves).clone());
    let last_s = lines
        .iter()
        .filter_map(|line| line.points.last())
        .fold(0.0, |last: f64, point| last.max(point[0]));
    let (unit, factor) = if last_s > LONG_S {
        ("minutes", 60.0)
    } else {
        ("seconds", 1.0)
    };
    for [x, y] in lines.iter_mut().flat_map(|line| &mut line.points) {
        *x /= factor;
        *y *= if series.is_share { 100.0 } else { 1.0 };
    }
    let times: Vec<f64> = (1..=TIMES)
        .map(|part| last_s / factor * part as f64 / TIMES as f64)
        .collect();
    let row = |line: &Line<'_>| {
        let values = times.iter().map(|time| number(at(&line.points, *time)));
        [line.name.to_owned()].into_iter().chain(values).collect()
    };
    let rows = lines.iter().map(row).collect();
    let ys = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point[1]));
    let y = match series.is_share {
        true => Axis::of(series.axis, Scale::Linear, [0.0, 100.0]),
        false => Axis::of(series.axis, Scale::Linear, ys),
    };
    Shown {
        rows,
        head: ["policy".to_owned()]
            .into_iter()
            .chain(times.iter().map(|time| format!("{} {unit}", number(*time))))
            .collect(),
        how: series.how.to_owned(),
        plot: Plot {
            id: format!("{}-{number_of_speed}", series.id),
            title: series.title.to_owned(),
            text: format!("{} The table below has the values.", series.how),
            x: Axis::between(&format!("{unit} of the run"), 0.0, last_s / factor),
            y,
            lines,
        },
    }
}

/// Plots the effective requests a second at each speed, the means over the seeds.
pub(super) fn goodput<'r>(report: &'r SimulationReport, policies: &BTreeMap<usize, &'r str>) -> Shown<'r> {
    let lines = policies
        .iter()
        .map(|(policy, name)| goodput_line(report, *policy, name));
    let lines: Vec<Line<'_>> = lines.collect();
    let mut speeds: Vec<f64> = report.rows.iter().map(|row| row.speed).collect();
    speeds.sort_by(f64::total_cmp);
    speeds.dedup();
    let row = |line: &Line<'_>| {
        let at = |speed: &f64| line.points.iter().position(|point| point[0] == *speed);
        let values = speeds.iter().map(|speed| match at(speed) {
            Some(at) if line.reaches[at] > 0.0 => {
                format!("{} ±{}", number(line.points[at][1]), number(line.reaches[at]))
            }
            Some(at) => number(line.points[at][1]),
            None => "-".to_owned(),
        });
        [line.name.to_owned()].into_iter().chain(values).collect()
    };
    let tops = lines.iter().flat_map(|line| {
        let tops = line.points.iter().zip(&line.reaches);
        tops.map(|(point, reach)| point[1] + reach)
    });
    let how = "Requests a second that were served within both limits, at so many times the trace's speed; bars are 95 % confidence intervals where there are several seeds.";
    Shown {
        rows: lines.iter().map(row).collect(),
        head: ["policy".to_owned()]
            .into_iter()
            .chain(speeds.iter().map(|speed| format!("x{speed}")))
            .collect(),
        how: how.to_owned(),
        plot: Plot {
            id: "goodput".to_owned(),
            title: "Goodput against speed".to_owned(),
            text: format!("{how} The table below has the values."),
            x: Axis::between(
                "speed",
                speeds.first().copied().unwrap_or(0.0),
                speeds.last().copied().unwrap_or(1.0),
            ),
            y: Axis::of("effective requests / s", Scale::Linear, tops),
            lines,
        },
    }
}

/// Returns the line of a policy, with its confidence intervals.
fn goodput_line<'r>(report: &SimulationReport, policy: usize, name: &'r str) -> Line<'r> {
    let mut rows: Vec<&ReportRow> = report
        .rows
        .iter()
        .filter(|row| row.contestant == policy)
        .collect();
    rows.sort_by(|a, b| a.speed.total_cmp(&b.speed));
    let estimates: Vec<(f64, Estimate)> = rows.iter().map(|row| (row.speed, goodput_of(row))).collect();
    Line {
        name,
        policy,
        points: estimates
            .iter()
            .map(|(speed, estimate)| [*speed, estimate.mean.unwrap_or(f64::NAN)])
            .collect(),
        reaches: estimates
            .iter()
            .map(|(_, estimate)| estimate.half_width.unwrap_or(0.0))
            .collect(),
    }
}

fn goodput_of(row: &ReportRow) -> Estimate {
    Estimate::of(row.summaries.iter().map(|summary| summary.goodput_per_s))
}
