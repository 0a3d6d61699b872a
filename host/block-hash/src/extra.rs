//! Extra keys in the serialized form of a block.

use crate::extra_key::ExtraKey;
use crate::serial::Serializer;

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
