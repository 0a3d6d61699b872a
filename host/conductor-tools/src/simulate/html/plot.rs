//! Curves over two axes, as an SVG that takes its colours from the page.

use std::fmt::{self, Write as _};

use super::axis::Axis;
use super::text::{Escaped, number};

/// The size of the drawing; the page scales it.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// Colours that the page has (`page.css`), and ways to break lines.
const COLOURS: usize = 8;
const DASHES: usize = 4;

/// A plot.
#[derive(Debug)]
pub(super) struct Plot<'p> {
    /// Id of the element, unique in the page.
    pub(super) id: String,
    pub(super) title: String,
    /// Text alternative of the plot.
    pub(super) text: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line<'p>>,
}

/// One of its curves.
#[derive(Debug)]
pub(super) struct Line<'p> {
    pub(super) name: &'p str,
    /// Number of the policy, which selects its style.
    pub(super) policy: usize,
    /// A y that is no finite number is a gap.
    pub(super) points: Vec<[f64; 2]>,
    /// Confidence interval of each y, with marked points; empty without intervals.
    pub(super) reaches: Vec<f64>,
}

/// Returns the classes of the look of a policy: every colour with every dash, and those near each other differ in more
/// than their colours.
pub(super) fn looks(policy: usize) -> String {
    let half = COLOURS / 2;
    let dash = 2 * (policy / COLOURS) + policy % COLOURS / half + policy / (2 * COLOURS);
    format!("c{} d{}", policy % COLOURS, dash % DASHES)
}

impl Plot<'_> {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        (
            LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM),
        )
    }

    fn axes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.y.ticks() {
            let at = HEIGHT - BOTTOM - self.y.place(*tick) * (HEIGHT - TOP - BOTTOM);
            writeln!(f, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>")?;
            let (x, y) = (LEFT - 6.0, at + 4.5);
            writeln!(
                f,
                "<text class=\"end\" x=\"{x}\" y=\"{y:.1}\">{}</text>",
                number(*tick)
            )?;
        }
        for tick in self.x.ticks() {
            let at = LEFT + self.x.place(*tick) * (WIDTH - LEFT - RIGHT);
            writeln!(f, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>")?;
            let y = bottom + 17.0;
            writeln!(
                f,
                "<text class=\"mid\" x=\"{at:.1}\" y=\"{y}\">{}</text>",
                number(*tick)
            )?;
        }
        let (x, y) = ((LEFT + right) / 2.0, HEIGHT - 8.0);
        writeln!(
            f,
            "<text class=\"mid\" x=\"{x}\" y=\"{y}\">{}</text>",
            Escaped(&self.x.label)
        )?;
        let y = (TOP + bottom) / 2.0;
        writeln!(
            f,
            "<text class=\"mid\" transform=\"translate(14 {y}) rotate(-90)\">{}</text>",
            Escaped(&self.y.label)
        )
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, line: &Line<'_>) -> fmt::Result {
        let mut path = String::new();
        let mut is_drawing = false;
        for [x, y] in &line.points {
            if !y.is_finite() {
                is_drawing = false;
                continue;
            }
            let (x, y) = self.place(*x, *y);
            write!(path, "{}{x:.1} {y:.1}", if is_drawing { 'L' } else { 'M' })?;
            is_drawing = true;
        }
        let name = Escaped(line.name);
        writeln!(f, "<g class=\"{}\"><title>{name}</title>", looks(line.policy))?;
        writeln!(f, "<path class=\"curve\" d=\"{path}\"/>")?;
        for ([x, y], reach) in line.points.iter().zip(&line.reaches) {
            if !y.is_finite() {
                continue;
            }
            let (at, middle) = self.place(*x, *y);
            writeln!(f, "<circle cx=\"{at:.1}\" cy=\"{middle:.1}\" r=\"3.5\"/>")?;
            if *reach > 0.0 {
                // No figure is below 0, although its interval may be.
                let [high, low] = [y + reach, (y - reach).max(0.0)].map(|y| self.place(*x, y).1);
                writeln!(f, "<path class=\"reach\" d=\"M{at:.1} {high:.1}V{low:.1}\"/>")?;
            }
        }
        writeln!(f, "</g>")
    }
}

impl fmt::Display for Plot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, title, text) = (&self.id, Escaped(&self.title), Escaped(&self.text));
        writeln!(
            f,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"{id}-title {id}-says\">"
        )?;
        writeln!(f, "<title id=\"{id}-title\">{title}</title>")?;
        writeln!(f, "<desc id=\"{id}-says\">{text}</desc>")?;
        self.axes(f)?;
        for line in &self.lines {
            self.line(f, line)?;
        }
        writeln!(f, "</svg>")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::axis::Scale;
    use super::*;

    fn plot(points: Vec<[f64; 2]>) -> String {
        let plot = Plot {
            id: "p".to_owned(),
            title: "a < b".to_owned(),
            text: "what".to_owned(),
            x: Axis::of("x", Scale::Linear, [0.0, 10.0]),
            y: Axis::shares("y"),
            lines: vec![Line {
                name: "<script>",
                policy: 0,
                points,
                reaches: Vec::new(),
            }],
        };
        plot.to_string()
    }

    #[test]
    fn a_curve_goes_from_corner_to_corner_and_has_gaps() {
        let svg = plot(vec![[0.0, 0.0], [5.0, f64::NAN], [10.0, 1.0]]);
        assert!(svg.contains("d=\"M58.0 254.0M466.0 12.0\""), "{svg}");
    }

    #[test]
    fn names_cannot_break_out_of_the_drawing() {
        let svg = plot(Vec::new());
        assert!(
            svg.contains("&lt;script&gt;") && !svg.contains("<script"),
            "{svg}"
        );
        assert!(svg.contains("a &lt; b"), "{svg}");
    }

    #[test]
    fn thirty_two_policies_look_different() {
        let looks: HashSet<String> = (0..32).map(looks).collect();
        assert_eq!(looks.len(), 32);
    }
}
