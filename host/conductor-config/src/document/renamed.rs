//! Former names of keys, values and policies: each works for one release, with a warning that gives the current name.

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Item;

/// A former name and the name that replaced it.
pub(crate) type FormerName<'n> = (&'n str, &'n str);

impl<'t> Section<'t> {
    /// Returns the value of a key by its current or its former name. Both at once is an error.
    pub(crate) fn renamed_item(&mut self, key: &'static str, former: &'static str) -> Option<Item<'t>> {
        let current = self.item(key);
        let Some(old) = self.former_item(former) else {
            return current;
        };
        if current.is_some() {
            self.report().push(
                Problem::new(
                    Code::ConflictingKeys,
                    &old.key_span,
                    format!("`{former}` is the former name of `{key}`, which is set too"),
                )
                .help(format!("remove `{former}`")),
            );
            return current;
        }
        warn_renamed(self.report(), &old.key_span, (former, key));
        Some(old)
    }
}

impl Item<'_> {
    /// Reads one of the named values, by its current or its former name.
    pub(crate) fn renamed_choice<T: Copy>(
        &self,
        choices: &[(&str, T)],
        former: &[FormerName<'_>],
    ) -> Option<T> {
        let text = self.text()?;
        let Some(&renamed) = former.iter().find(|(old, _)| *old == text.text) else {
            return self.choice(choices);
        };
        warn_renamed(self.report, &text.span, renamed);
        let mut choices = choices.iter();
        choices
            .find(|(name, _)| *name == renamed.1)
            .map(|(_, choice)| *choice)
    }
}

/// Reports the use of a former name.
pub(crate) fn warn_renamed(report: &Report, span: &Span, (former, current): FormerName<'_>) {
    report.push(
        Problem::new(
            Code::RenamedName,
            span,
            format!("`{former}` is now called `{current}`"),
        )
        .help(format!("write `{current}`: the next release refuses `{former}`")),
    );
}
