//! Prompt of one request, with the block hashes that its decisions have needed so far.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kv_index::{Prompt, PromptSpace};
use tokenize::{HashSpace, KnownBeginning};

use crate::tokens::PromptTokens;

/// Prompt that keeps the hashes that were needed so far. Each decision about it continues from the one before, and each
/// turn of a known conversation from the turn before.
#[derive(Debug)]
pub(crate) struct HashedPrompt {
    tokens: usize,
    /// Prompt that one decision at a time uses: never waited for, and never held across an await.
    prompt: Mutex<Prompt<'static>>,
    /// Beginning that is given the hashes in the end.
    beginning: Option<KnownBeginning>,
}

impl HashedPrompt {
    pub(crate) fn new(tokens: PromptTokens, lora: Option<&str>, cache_salt: Option<&str>) -> Self {
        let count = tokens.ids.len();
        let (mut prompt, beginning) = tokens.into_prompt(lora, cache_salt);
        if let Some((HashSpace { block_size, inputs }, hashes)) =
            beginning.as_ref().and_then(KnownBeginning::hashes)
        {
            prompt.take_over(PromptSpace { block_size, inputs }, hashes);
        }
        Self {
            tokens: count,
            prompt: Mutex::new(prompt),
            beginning,
        }
    }

    /// Returns the number of its tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Prompt<'static>> {
        self.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HashedPrompt {
    /// Keeps the hashes for the next turn of the conversation.
    fn drop(&mut self) {
        if let Some(beginning) = &self.beginning
            && let Some((PromptSpace { block_size, inputs }, hashes)) = self.lock().computed()
        {
            beginning.keep(HashSpace { block_size, inputs }, hashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use inference_api::list_elements;
    use proptest::prelude::*;
    use tokenize::{Budget, CacheLimits, Chat, Files, Model, TokenizationCache};

    use super::*;

    /// Both legs and every retry query the same prompt.
    #[test]
    fn a_prompts_blocks_are_hashed_once() {
        let tokens: Vec<u32> = (0..1_000).collect();
        let prompt = HashedPrompt::new(tokens.into(), None, None);
        let first = prompt.lock().hashes(16, usize::MAX).to_vec();
        let at = |prompt: &HashedPrompt| prompt.lock().hashes(16, usize::MAX).as_ptr();
        let before = at(&prompt);
        assert_eq!(prompt.lock().hashes(16, 3)[..3], first[..3]);
        assert_eq!(at(&prompt), before);
    }

    const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{"id": 3, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}}"#;
    const TEMPLATE: &str = "{% for m in messages %}{{ m.role }} {{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}assistant {% endif %}";

    fn model() -> Model {
        let files = Files {
            tokenizer: TOKENIZER.into(),
            templates: [("default".to_owned(), TEMPLATE.to_owned())].into(),
            config: None,
            ..Files::default()
        };
        Model::load(&files, None).unwrap()
    }

    fn tokens(model: &Model, cache: &TokenizationCache, messages: &[String]) -> PromptTokens {
        let messages = format!("[{}]", messages.join(","));
        let chat = Chat {
            messages: &messages,
            positions: &list_elements(&messages).unwrap(),
            ..Chat::default()
        };
        let prepared = model.prepare_chat(&chat, SystemTime::UNIX_EPOCH, cache).unwrap();
        let tokens = model.complete(prepared, cache, &mut Budget::unlimited()).unwrap();
        PromptTokens {
            ids: tokens.ids,
            beginning: tokens.beginning,
        }
    }

    fn message(role: &str, words: &[bool]) -> String {
        let words: Vec<_> = words.iter().map(|&is_a| if is_a { "a" } else { "b" }).collect();
        format!(r#"{{"role":"{role}","content":"{}"}}"#, words.join(" "))
    }

    fn words(most: usize) -> impl Strategy<Value = Vec<bool>> {
        prop::collection::vec(any::<bool>(), 1..most)
    }

    /// Turn of one of two conversations with the same beginning.
    fn turns() -> impl Strategy<Value = Vec<(bool, Vec<bool>, Vec<bool>, usize)>> {
        prop::collection::vec((any::<bool>(), words(400), words(400), 0..400_usize), 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn hashes_of_earlier_turns_are_those_of_the_prompt(
            lead in words(40),
            turns in turns(),
            spaces in prop::collection::vec((prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.1)), 8),
        ) {
            let limits = CacheLimits { pieces: 0, conversations: 1 << 20 };
            let (model, cache) = (model(), TokenizationCache::with_conversations(limits));
            let first = [message("system", &lead), message("user", &[true; 2_500])];
            let mut conversations = [first.to_vec(), first.to_vec()];
            for ((which, answer, question, count), (lora, salt, size)) in turns.iter().zip(spaces) {
                let messages = &mut conversations[usize::from(*which)];
                let (lora, salt) = (lora.then_some("adapter"), salt.then_some("salt"));
                let size = if size { 32 } else { 16 };
                let known = tokens(&model, &cache, messages);
                let whole = Prompt::new(known.ids.to_vec(), lora, salt).hashes(size, usize::MAX).to_vec();
                let prompt = HashedPrompt::new(known, lora, salt);
                let count = (*count).min(whole.len());
                let some = prompt.lock().hashes(size, count)[..count].to_vec();
                prop_assert_eq!(&some, &whole[..count]);
                drop(prompt);
                let known = tokens(&model, &cache, messages);
                let prompt = HashedPrompt::new(known, lora, salt);
                let all = prompt.lock().hashes(size, usize::MAX).to_vec();
                prop_assert_eq!(all, whole);
                drop(prompt);
                messages.extend([message("assistant", answer), message("user", question)]);
            }
        }
    }

    #[test]
    fn the_next_turn_has_the_hashes_of_the_turn_before() {
        let limits = CacheLimits {
            pieces: 0,
            conversations: 1 << 20,
        };
        let (model, cache) = (model(), TokenizationCache::with_conversations(limits));
        let mut messages = vec![message("user", &[true; 2_500])];
        for turn in 0..4 {
            let known = tokens(&model, &cache, &messages);
            let all = Prompt::new(known.ids.to_vec(), None, None)
                .hashes(16, usize::MAX)
                .to_vec();
            let (beginning, ids) = (known.beginning.clone().unwrap(), known.ids.len());
            match beginning.hashes() {
                None => assert_eq!(turn, 0),
                Some((_, kept)) => assert!(turn > 0 && kept.len() > ids / 16 - 10 && all.starts_with(&kept)),
            }
            let prompt = HashedPrompt::new(known, None, None);
            prompt.lock().hashes(16, usize::MAX);
            drop(prompt);
            assert_eq!(beginning.hashes().unwrap().1, all[..beginning.tokens() / 16]);
            messages.extend([message("assistant", &[false; 9]), message("user", &[true; 50])]);
        }
    }
}
