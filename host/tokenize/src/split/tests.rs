//! Tests that the automaton and the engine find the same words.

use std::convert::Infallible;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

/// Patterns published with models: GPT-2, Llama 3, Qwen 2 and 3.5, DeepSeek V3 (three steps), GPT-4o.
const PATTERNS: [&str; 8] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

fn words<'t>(splitter: &WordSplitter, text: &'t str) -> Vec<&'t str> {
    let mut words = Vec::new();
    let Ok(()) = splitter.each(text, |word| {
        words.push(word.as_str());
        Ok::<_, Infallible>(())
    });
    words
}

/// Splitters with and without automata, by pattern.
static BOTH: LazyLock<Vec<[WordSplitter; 2]>> = LazyLock::new(|| {
    let both = |pattern| {
        let fast = WordSplitter::new(pattern).unwrap();
        let ascii = fast.ascii.as_ref();
        assert!(ascii.is_some_and(|ascii| ascii.scanner.is_some()), "{pattern}");
        let slow = WordSplitter {
            ascii: None,
            ..WordSplitter::new(pattern).unwrap()
        };
        [fast, slow]
    };
    PATTERNS.into_iter().map(both).collect()
});

#[track_caller]
fn check(text: &str) {
    for (pattern, [fast, slow]) in PATTERNS.iter().zip(&*BOTH) {
        assert_eq!(words(fast, text), words(slow, text), "{text:?} by {pattern}");
    }
}

#[test]
fn patterns_of_models_split_alike() {
    for text in [
        "",
        " ",
        "Hello world, it's 12345 o'clock -- I'LL go.\r\n\r\n  next\tline  \n",
        "   \n  x   é  \u{3000} y\u{a0}z 漢字かな 12漢字 don’t 👩‍👩‍👧 e\u{301}",
        "  \n\n   ",
        "'S 'T'RE'x '",
        "a\u{85}b\u{b}\u{c}\u{1c}\u{1f} \0 \u{7f}",
    ] {
        check(text);
    }
}

#[test]
fn a_text_of_several_scans_splits_alike() {
    let part = "It's 12 words,\n\n  \tor more: DON'T_stop   5 é  at (the)  end!!\r\n x";
    for repeats in [MOST_ENDS / 8, MOST_ENDS] {
        check(&part.repeat(repeats));
    }
    for words in MOST_ENDS - 1..=2 * MOST_ENDS + 1 {
        check(&" a".repeat(words));
    }
}

#[test]
fn a_scan_ends_at_words_that_must_be_searched() {
    let [llama, _] = &BOTH[1];
    let scanner = llama.ascii.as_ref().unwrap().scanner.as_ref().unwrap();
    let mut ends = [0; MOST_ENDS];
    for (text, expected) in [
        ("", &[][..]),
        ("Hello", &[]),
        ("Hello world again", &[5, 11]),
        // The last space of several belongs to the next word, but not to a number.
        ("a    b c", &[1, 4, 6]),
        ("a    1 c", &[1]),
        ("a  é c", &[1]),
        ("it's a", &[2, 4]),
    ] {
        let count = scanner.scan(text.as_bytes(), 0, &mut ends);
        assert_eq!(&ends[..count], expected, "{text}");
    }
    assert_eq!(scanner.scan(b"a b c", 1, &mut ends), 1);
    assert_eq!(ends[0], 3);
    // The apostrophe is a word: only the next byte excludes "'ve".
    let [gpt_2, _] = &BOTH[0];
    let scanner = gpt_2.ascii.as_ref().unwrap().scanner.as_ref().unwrap();
    assert_eq!(scanner.scan(b"it'v a", 0, &mut ends), 1);
}

#[test]
fn every_pair_and_triple_of_kinds_of_ascii_splits_alike() {
    let bytes: Vec<char> = (0..128_u8).map(char::from).collect();
    for first in &bytes {
        for second in &bytes {
            check(&format!("{first}{second}"));
        }
    }
    let kinds = [
        'a', 'S', '1', ' ', '\n', '\r', '\t', '\'', '!', '$', '_', 'é', '\u{a0}',
    ];
    let mut texts = vec![String::new()];
    for _ in 0..3 {
        texts = texts
            .iter()
            .flat_map(|text| kinds.map(|kind| format!("{text}{kind}")))
            .collect();
        texts.iter().for_each(|text| check(text));
    }
}

#[test]
fn a_pattern_that_could_mean_two_things_has_no_automaton() {
    for pattern in [
        r"\p{L}++",
        r"\p{N}{1,3}+",
        r"a??",
        r"a*",
        r"(?<=a)b",
        r"a(?=b)",
        r"a(?!b)|\s+",
        r"(?>a)b",
        r"(a)\1",
        r"^a",
        r"a$",
        r"a.",
        r"\bx",
        r"\hx",
        r"\Gx",
        r"[a[b]]",
        r"[a-z&&b]",
        r"[!--]",
        r"[]a]",
        r"[[:alpha:]]",
        r"\p{Greek}",
        r"\p{^L}",
        r"\P{L}",
        r"(?i:\p{Lu})",
        r"(?i:ſ)",
        r"(?i:a(?:b))",
        r"(?x:a b)",
        r"a\<b",
    ] {
        assert!(AsciiPatterns::of(pattern).is_none(), "{pattern}");
    }
}

#[test]
fn a_pattern_without_an_automaton_splits_all_the_same() {
    let splitter = WordSplitter::new(r"(?<=a)b|x*").unwrap();
    assert!(splitter.ascii.is_none());
    assert_eq!(words(&splitter, "abcxx"), ["a", "b", "c", "xx"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_texts_split_alike(text in prop_oneof![
        "[ -~\\n\\r\\t]{0,60}",
        "[a-zA-Z0-9 '\\n!]{0,60}",
        "[ab1 '\\n!é漢\u{a0}\u{301}]{0,40}",
        "\\PC{0,30}",
        any::<String>(),
    ]) {
        check(&text);
    }
}
