//! Rendering of diagnostics over their source lines.

use annotate_snippets::{AnnotationKind, Element, Level, Origin, Renderer, Snippet};

use crate::document::code::Severity;
use crate::document::controls::spelt_out;
use crate::document::diagnostic::Diagnostic;
use crate::document::source::{Mark, Source};

/// Colouring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Plain text, for files and pipes.
    Plain,
    /// ANSI escapes, for terminals.
    Ansi,
}

/// Columns a drawing may take before long lines are cut.
const WIDTH: usize = 110;

/// Most diagnostics that are rendered; a file that is wrong throughout stays cheap.
const MOST_DRAWN: usize = 100;

/// Longer text is not drawn, only its position is given: the renderer's time grows with it.
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
    // One newline ends the last drawing; the second one separated it from the next.
    drawn.pop();
    drawn
}

fn draw(renderer: &Renderer, source: &Source, item: &Diagnostic) -> String {
    let level = match item.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    // Only the lines between the marks: the renderer's time grows with every line.
    let marks = || item.related.iter().chain([&item.primary]);
    let first = marks().map(|mark| mark.span.start).min().unwrap_or(0);
    let last = marks().map(|mark| mark.span.end).max().unwrap_or(0);
    let window = source.whole_lines(first, last);
    let annotation = |kind: AnnotationKind, mark: &Mark| {
        let span = mark.span.start - window.start..mark.span.end - window.start;
        let label = Some(spelt_out(&mark.label, true).into_owned()).filter(|label| !label.is_empty());
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
    let help = item.help.as_deref().map(|help| spelt_out(help, true));
    let group = level
        .primary_title(spelt_out(&item.message, true))
        .id(item.code.as_str())
        .element(place)
        .elements(help.map(|help| Level::HELP.message(help)));
    renderer.render(&[group])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::code::Code;

    #[test]
    fn a_diagnostic_cannot_make_a_terminal_obey() {
        let source = Source::new("conductor.toml", "x = 1\n");
        let hostile = "one\u{1b}[2J\u{9b}31m\ntwo".to_owned();
        let item = Diagnostic::new(
            Code::RefusedParam,
            &Mark::beginning(),
            hostile.clone(),
            Some(hostile),
        );
        let drawn = render(&source, &[item], Paint::Plain);
        let is_hostile = |character: char| character.is_control() && character != '\n';
        assert!(!drawn.contains(is_hostile), "{drawn:?}");
        assert!(drawn.contains(r"one\u{1b}[2J\u{9b}31m"), "{drawn}");
    }
}
