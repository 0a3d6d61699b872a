//! Diagnostics as people read them: over the lines they are about.

use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};

use crate::code::Severity;
use crate::diagnostic::{Diagnostic, Mark};
use crate::source::Source;

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Plain text, for files and pipes.
    Plain,
    /// ANSI escapes, for terminals.
    Ansi,
}

/// Columns a drawing may take before long lines are cut.
const WIDTH: usize = 110;

/// More than anybody reads in one go; a file that is wrong throughout stays cheap.
const MOST_DRAWN: usize = 100;

/// Text beyond this is not drawn, only its place is told: the renderer's time grows with it.
const MOST_SHOWN_BYTES: usize = 16 << 10;

pub(crate) fn render(source: &Source, items: &[Diagnostic], paint: Paint) -> String {
    let renderer = match paint {
        Paint::Plain => Renderer::plain(),
        Paint::Ansi => Renderer::styled(),
    }
    .term_width(WIDTH);
    let mut drawn: String = items
        .iter()
        .take(MOST_DRAWN)
        .map(|item| draw(&renderer, source, item) + "\n\n")
        .collect();
    if items.len() > MOST_DRAWN {
        drawn.push_str(&format!("... and more: these are the first {MOST_DRAWN}\n\n"));
    }
    // One newline ends the last drawing; the second only parts it from the next.
    drawn.pop();
    drawn
}

fn draw(renderer: &Renderer, source: &Source, item: &Diagnostic) -> String {
    let level = match item.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    // Only the lines between the marks: the renderer takes its time with every line it is given.
    let marks = || item.related.iter().chain([&item.primary]);
    let first = marks().map(|mark| mark.span.start).min().unwrap_or(0);
    let last = marks().map(|mark| mark.span.end).max().unwrap_or(0);
    let window = source.whole_lines(first, last);
    let annotation = |kind: AnnotationKind, mark: &Mark| {
        let span = mark.span.start - window.start..mark.span.end - window.start;
        let label = Some(mark.label.clone()).filter(|label| !label.is_empty());
        kind.span(span).label(label)
    };
    let place: Element<'_> = if window.len() > MOST_SHOWN_BYTES {
        let at = item.primary.location;
        Origin::path(source.name())
            .line(at.line)
            .char_column(at.column)
            .into()
    } else {
        Snippet::source(&source.text()[window.clone()])
            .path(source.name())
            .line_start(source.locate(window.start).line)
            .annotation(annotation(AnnotationKind::Primary, &item.primary))
            .annotations(
                item.related
                    .iter()
                    .map(|mark| annotation(AnnotationKind::Context, mark)),
            )
            .into()
    };
    let group = level
        .primary_title(&item.message)
        .id(item.code.as_str())
        .element(place)
        .elements(item.help.as_deref().map(|help| Level::HELP.message(help)));
    renderer.render(&[group])
}
