//! Extra keys: inputs of a block's hash besides its tokens.

use crate::serial::Serializer;

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

impl ExtraKey<'_> {
    pub(crate) fn write(&self, out: &mut impl Serializer) {
        match *self {
            Self::Text(text) => out.text(text),
            Self::Lora { name, path } => {
                out.open(3);
                out.word("lora");
                out.text(name);
                out.text(path);
                out.close(3);
            }
            Self::Multimodal { identifier, offset } => {
                out.open(3);
                out.word("mm");
                out.text(identifier);
                out.int(offset);
                out.close(3);
            }
            Self::CacheSalt(salt) => {
                out.open(2);
                out.word("cache_salt");
                out.text(salt);
                out.close(2);
            }
            Self::PromptEmbeds(digest) => {
                out.open(2);
                out.word("prompt_embeds");
                out.bytes(digest);
                out.close(2);
            }
        }
    }
}
