//! The cache gives the tokens of the whole text, wherever the text is cut and whatever it holds.

use std::sync::LazyLock;

use proptest::prelude::*;
use tokenize::{Budget, Files, Model, Rendered, TokenizationCache};
use tokenizers::{AddedToken, Tokenizer};

use crate::shapes;

struct Shape {
    name: &'static str,
    model: Model,
    /// The tokenizer as it is in its file, without its limits and with the special tokens of its configuration.
    truth: Tokenizer,
}

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEP_SEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// Made once: the vocabularies take their time.
static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(shapes);

fn shapes() -> Vec<Shape> {
    let prefixed = serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let all: [(&'static str, Files); 9] = [
        ("byte-level", shapes::byte_level()),
        ("byte-level, split once", shapes::byte_level_split(&[LLAMA_3])),
        ("byte-level, split thrice", shapes::byte_level_split(&DEEP_SEEK)),
        (
            "byte-level, prefixed",
            shapes::byte_level_with(&serde_json::Value::Null, &prefixed, false),
        ),
        ("metaspace first", shapes::metaspace("first")),
        ("metaspace always", shapes::metaspace("always")),
        ("metaspace never", shapes::metaspace("never")),
        ("prepending", shapes::metaspace("legacy")),
        ("WordPiece", shapes::word_piece()),
    ];
    all.into_iter()
        .map(|(name, files)| {
            let mut truth = Tokenizer::from_bytes(&files.tokenizer).unwrap();
            truth.with_truncation(None).unwrap();
            truth.with_padding(None);
            if files.config.is_some() {
                // The configuration's.
                let named = ["<s>", "</s>"].map(|token| AddedToken::from(token, true));
                truth.add_special_tokens(named).unwrap();
            }
            let model = Model::load(&files, None).unwrap();
            Shape { name, model, truth }
        })
        .collect()
}

impl Shape {
    #[track_caller]
    fn check(&self, cache: &TokenizationCache, text: &str, special: bool) -> usize {
        let expected = self.truth.encode(text, special).unwrap();
        let prepared = self
            .model
            .prepare(Rendered::text(text.to_owned(), special), cache);
        let tokens = self
            .model
            .complete(prepared, cache, &mut Budget::unlimited())
            .unwrap();
        assert_eq!(tokens.ids.to_vec(), expected.get_ids(), "{}: {text:?}", self.name);
        tokens.cached
    }
}

/// Returns text with special tokens in and around it, and awkward cases of both.
fn pieces() -> impl Strategy<Value = Vec<String>> {
    let special = prop::sample::select(vec![
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>\n\n",
        "<tool>",
        "<left>",
        " <sp>",
        "word!",
        "Normal",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[SEP]",
        "[CLS]",
        "<|im_",
        "end|>",
    ]);
    let text = prop_oneof![
        "[ a-z]{0,12}",
        "[ \n\t]{1,4}",
        "\\PC{0,8}",
        Just("e\u{301}".to_owned()),
        Just("👩‍👩‍👧 ".to_owned()),
        Just("▁ the  of".to_owned()),
        Just("the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not ".to_owned()),
        Just("12345 don't\r\n  end ".to_owned()),
        Just("IT'LL de\u{301}já vu; 漢字かな 42 カナ…\u{a0}\u{3000} \t\n\n  x".to_owned()),
    ];
    let piece = prop_oneof![2 => text, 1 => special.prop_map(str::to_owned)];
    prop::collection::vec(piece, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each text is tokenized after the texts that it begins with, which the cache then contains.
    #[test]
    fn tokens_are_those_of_the_whole_text(texts in prop::collection::vec((pieces(), any::<prop::sample::Index>(), any::<bool>()), 1..4)) {
        for shape in &*SHAPES {
            let cache = TokenizationCache::new(1 << 20);
            let mut before = String::new();
            for (pieces, cut, special) in &texts {
                let text = before.clone() + &pieces.concat();
                shape.check(&cache, &text, *special);
                shape.check(&cache, &text, !special);
                let (at, _) = text.char_indices().nth(cut.index(text.chars().count().max(1))).unwrap_or((0, ' '));
                shape.check(&cache, &text[..at], *special);
                before = text;
            }
        }
    }
}

/// Returns long texts that are ASCII for most of their length, as texts cut between words have to be.
fn long_pieces() -> impl Strategy<Value = Vec<String>> {
    let text = prop_oneof![
        12 => "[ a-zA-Z]{1,60}",
        4 => "[a-z]{1,9} [!-~]{1,6} ?[a-z]{0,3}",
        2 => "[ \n\t\r]{1,4}",
        4 => "[0-9 ]{1,9}|[!-~]{1,30}|(don't|IT'LL|we'VE) ",
        1 => prop::sample::select(vec!["<|im_end|>", "<tool>", "a <left>", "a <sp> b", "word! ", "Normal ", "é "]).prop_map(str::to_owned),
    ];
    prop::collection::vec(text, 40..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// The known part of the one text is its beginning up to some byte, and the other goes on otherwise.
    #[test]
    fn tokens_are_those_of_the_whole_text_where_messages_begin_alike(
        pieces in long_pieces(), tail in "[ -~]{0,40}", at in any::<prop::sample::Index>(),
    ) {
        for shape in &*SHAPES {
            let cache = TokenizationCache::new(1 << 20);
            let text = pieces.concat();
            shape.check(&cache, &text, false);
            let (at, _) = text.char_indices().nth(at.index(text.chars().count())).unwrap_or((0, ' '));
            shape.check(&cache, &(text[..at].to_owned() + &tail + &text[at..]), false);
        }
    }
}

#[test]
fn the_common_beginning_of_messages_is_served_from_the_cache() {
    let beginning = "It's a long-winded text, 12 times. ".repeat(120);
    for shape in &*SHAPES {
        let cache = TokenizationCache::new(1 << 20);
        let turn = |question: &str| format!("<|im_start|>{beginning}{question}<|im_end|>");
        assert_eq!(shape.check(&cache, &turn("What is it?"), false), 0);
        let cached = shape.check(&cache, &turn("Why?"), false);
        // A pattern has to be known for a text to be cut.
        let is_known =
            ["byte-level", "byte-level, split once", "byte-level, split thrice"].contains(&shape.name);
        assert_eq!(cached > 800, is_known, "{}: {cached}", shape.name);
    }
}

#[test]
fn short_prompts_that_begin_alike_share_tokens() {
    let shape = &SHAPES[0];
    let beginning = "It's a long-winded text, 12 times. ".repeat(20);
    let cache = TokenizationCache::new(1 << 20);
    let prompt = |question: &str| format!("{beginning}{}", question.repeat(10));
    assert_eq!(shape.check(&cache, &prompt("What is it? "), false), 0);
    assert!(shape.check(&cache, &prompt("Why is it so? "), false) > 100);
}

#[test]
fn an_added_token_that_another_begins_with_is_not_cut() {
    let cache = TokenizationCache::new(1 << 20);
    let shape = &SHAPES[0];
    let turn = format!("<|im_start|>{}<|im_end|>", "the of and ".repeat(20));
    shape.check(&cache, &turn, false);
    assert!(shape.check(&cache, &format!("{turn}x"), false) > 0);
    // Here the longer token stands where the shorter one was.
    assert_eq!(shape.check(&cache, &format!("{turn}\n\n"), false), 0);
}

#[test]
fn every_shape_with_special_tokens_is_served_from_the_cache() {
    for shape in &*SHAPES {
        let cache = TokenizationCache::new(1 << 20);
        let [open, close] = match shape.name {
            name if name.starts_with("byte-level") => ["<|im_start|>", "<|im_end|>"],
            "WordPiece" => ["[CLS]", "[SEP]"],
            _ => ["<s>", "</s>"],
        };
        let turn = format!("{open}{}{close}", "the of and ".repeat(20));
        assert_eq!(shape.check(&cache, &turn, false), 0);
        let cached = shape.check(&cache, &format!("{turn}{turn} more"), false);
        assert!(cached >= 60, "{}: {cached}", shape.name);
    }
}

#[test]
fn a_cache_without_room_changes_nothing() {
    let cache = TokenizationCache::new(0);
    for shape in &*SHAPES {
        let turn = format!("<s>{}<|im_end|> </s>the", "the of and ".repeat(20));
        shape.check(&cache, &turn.repeat(3), true);
        assert_eq!(shape.check(&cache, &turn.repeat(3), true), 0);
    }
    assert_eq!(cache.bytes(), 0);
}
