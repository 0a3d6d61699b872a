//! Extra key: an input of a block's hash besides its tokens.

/// An extra key of a block. vLLM orders them: adapter, multimodal items, salt, embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraKey<'a> {
    /// Plain text: the adapter's name (every block) and the cache salt (first block) in vLLM up to about 0.25.
    Text(&'a str),
    /// `("lora", name, path)`, in every block.
    Lora {
        /// The adapter's name.
        name: &'a str,
        /// Location that the engine loaded it from.
        path: &'a str,
    },
    /// `("mm", identifier, offset)`, in every block that an item covers.
    Multimodal {
        /// The item's hash.
        identifier: &'a str,
        /// Start of the item in tokens from the block's start; negative if it began in an earlier block.
        offset: i64,
    },
    /// `("cache_salt", salt)`, in the first block only.
    CacheSalt(&'a str),
    /// `("prompt_embeds", digest)`, in every block of a prompt sent as embeddings.
    PromptEmbeds(&'a [u8]),
}
