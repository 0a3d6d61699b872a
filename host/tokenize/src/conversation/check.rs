//! Check of a continued conversation against its whole rendering.

use std::time::SystemTime;

use crate::budget::Budget;
use crate::cache::TokenizationCache;
use crate::chat::Chat;
use crate::error::EncodeError;
use crate::model::Model;

impl Model {
    /// Renders a chat whole and compares its tokens with those of its continued conversation. After a difference, no
    /// conversation of the template is continued. Returns `true` if the tokens are equal; `None` if the template
    /// refuses the chat.
    ///
    /// # Errors
    /// [`EncodeError`] if the tokenizer fails or the budget is used up.
    pub fn check_chat(
        &self,
        chat: &Chat<'_>,
        now: SystemTime,
        tokens: &[u32],
        cache: &TokenizationCache,
        budget: &mut Budget<'_>,
    ) -> Result<Option<bool>, EncodeError> {
        // The engine would refuse it too.
        let Ok(rendered) = self.render(chat, now) else {
            return Ok(None);
        };
        let whole = self.complete(self.prepare(rendered, cache), cache, budget)?;
        let is_equal = whole.ids.to_vec() == tokens;
        if !is_equal && let Some((template, _)) = self.templates().choose(chat.has_tools()) {
            self.frames().turn_off(template);
        }
        Ok(Some(is_equal))
    }
}
