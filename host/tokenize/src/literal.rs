//! Literal parts of a prompt: a format that has special tokens of its own takes none from its texts, and tokenizes each
//! of them by itself.

use crate::budget::Budget;
use crate::error::EncodeError;
use crate::model::Model;
use crate::prompt::Tokens;
use crate::rendered::Rendered;

/// Bytes that each literal part costs to look at, beside its own.
const PART_BYTES: usize = 64;

impl Model {
    /// Returns the tokens of a prompt with literal parts. They are not cached: a key of the cache has a text, and not
    /// which of its parts are literal.
    pub(crate) fn complete_literals(
        &self,
        rendered: &Rendered,
        budget: &mut Budget<'_>,
    ) -> Result<Tokens, EncodeError> {
        let fast_path = match &self.fast_path {
            Some(fast_path) if fast_path.takes_every_text() => fast_path,
            _ => return Err(EncodeError::Failed("a literal text needs the fast path".into())),
        };
        let text = &*rendered.text;
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut from = 0;
        for literal in &rendered.literals {
            // Each part has a cost of its own, however short it is.
            budget.look(PART_BYTES)?;
            self.encode_behind(&text[from..literal.start], None, &mut ids, budget)?;
            fast_path.encode_literal(&self.tokenizer, &text[literal.clone()], &mut ids, budget)?;
            from = literal.end;
        }
        self.encode_behind(&text[from..], None, &mut ids, budget)?;
        Ok(Tokens {
            ids: ids.into(),
            cached: 0,
            is_continued: false,
            is_sampled: false,
            beginning: None,
        })
    }
}
