//! Plots of the times to first token by prompt length and by turn, means over the seeds.

use simulator::Breakdown;

use super::super::report::ReportRow;
use super::axis::{Axis, Scale};
use super::plot::{Line, Plot};
use super::plots::Shown;
use super::text::number;

/// Points of a breakdown: where on the axis, and the mean time to first token in seconds.
type GroupPoints = fn(&Breakdown) -> Vec<[f64; 2]>;

/// Plots of the rows at one speed. `number_of_speed` is the position of the speed.
pub(super) fn breakdown_plots<'r>(rows: &[&'r ReportRow], number_of_speed: usize) -> Vec<Shown<'r>> {
    let by_length: GroupPoints = |breakdown| {
        let groups = breakdown.by_length.iter().filter(|group| group.up_to_tokens > 0);
        groups
            .map(|group| [f64::from(group.up_to_tokens), group.times.ttft_s])
            .collect()
    };
    let by_turn: GroupPoints = |breakdown| {
        let groups = breakdown.by_turn.iter();
        groups
            .map(|group| [f64::from(group.turn), group.times.ttft_s])
            .collect()
    };
    let lengths = lines(rows, by_length);
    let tokens = lengths
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point[0]));
    let x = Axis::of("prompt tokens (logarithmic)", Scale::Log, tokens);
    let of_length = shown(
        format!("length-{number_of_speed}"),
        "Time to first token by prompt length",
        "Mean time to first token of each tenth of the requests, by the longest prompt in it.",
        x,
        lengths,
    );
    let turns = lines(rows, by_turn);
    let last = turns
        .iter()
        .filter_map(|line| line.points.last())
        .map(|point| point[0]);
    let x = Axis::between("turn of the session", 1.0, last.fold(1.0, f64::max));
    let of_turn = shown(
        format!("turn-{number_of_speed}"),
        "Time to first token by turn",
        "Mean time to first token of the requests with each turn of their session; the last point has all later ones.",
        x,
        turns,
    );
    vec![of_length, of_turn]
}

fn lines<'r>(rows: &[&'r ReportRow], points: GroupPoints) -> Vec<Line<'r>> {
    let line = |row: &&'r ReportRow| {
        let groups = row
            .summaries
            .first()
            .map_or(0, |summary| points(&summary.breakdown).len());
        let mean = |group: usize, axis: usize| {
            let at = |breakdown: &Breakdown| {
                let points = points(breakdown);
                points.get(group).map_or(f64::NAN, |point| point[axis])
            };
            row.breakdown(at).mean.unwrap_or(f64::NAN)
        };
        Line {
            name: row.policy.as_str(),
            policy: row.contestant,
            points: (0..groups)
                .map(|group| [mean(group, 0), mean(group, 1)])
                .collect(),
            reaches: Vec::new(),
        }
    };
    rows.iter().map(line).collect()
}

fn shown<'r>(id: String, title: &str, how: &str, x: Axis, lines: Vec<Line<'r>>) -> Shown<'r> {
    let values = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point[1]));
    let y = Axis::of("mean seconds", Scale::Linear, values);
    let heads = lines.first().map_or(&[][..], |line| line.points.as_slice());
    let row = |line: &Line<'_>| {
        let seconds = line.points.iter().map(|point| number(point[1]));
        [line.name.to_owned()].into_iter().chain(seconds).collect()
    };
    Shown {
        head: ["policy".to_owned()]
            .into_iter()
            .chain(heads.iter().map(|point| number(point[0])))
            .collect(),
        rows: lines.iter().map(row).collect(),
        how: how.to_owned(),
        plot: Plot {
            id,
            title: title.to_owned(),
            text: format!("{how} The table below has the values."),
            x,
            y,
            lines,
        },
    }
}
