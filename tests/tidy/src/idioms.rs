//! Words and openings that the project's text avoids: the field has a standard term for each.

use crate::prose::ProseLine;

/// A word or phrase that is avoided, and the terms to write instead. A stem ends with `*`.
pub const AVOIDED: &[(&str, &str)] = &[
    ("told", "sent, reported, received, configured"),
    ("tells", "sends, reports, returns, shows"),
    ("tell", "send, report, distinguish"),
    ("nobody", "no one, no client, no worker"),
    ("whoever", "the client, the caller, the reader"),
    ("whom", "the subject by its name"),
    ("anew", "again"),
    ("in vain", "without success"),
    ("mend", "fix, repair"),
    ("mends", "fixes, repairs"),
    ("mended", "fixed, repaired"),
    ("in force", "active"),
    ("asked", "queried, called, requested, configured"),
    ("asks", "queries, calls, requests"),
    ("tokenis*", "tokenize, tokenizer, tokenization"),
];

/// First words of a doc comment that name no thing and no action.
pub const EMPTY_OPENINGS: &[&str] = &[
    "what", "who", "whom", "whose", "whether", "it", "nobody", "whoever",
];

/// Returns the avoided words and phrases in a text, with the terms to write instead.
pub fn idioms(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = words(text).collect::<Vec<_>>().join(" ");
    let padded = format!(" {words} ");
    AVOIDED.iter().copied().flat_map(move |(idiom, instead)| {
        let count = match idiom.strip_suffix('*') {
            Some(stem) => padded.matches(&format!(" {stem}")).count(),
            None => padded.matches(&format!(" {idiom} ")).count(),
        };
        std::iter::repeat_n((idiom, instead), count)
    })
}

/// Returns the words of a text in lower case.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let split = text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '-' && c != '_');
    split.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Returns the idioms per 1,000 words of these lines, and the number of words.
#[must_use]
pub fn per_thousand<'a>(lines: impl Iterator<Item = &'a ProseLine>) -> (f64, usize) {
    let (mut found, mut total) = (0, 0);
    for line in lines {
        found += idioms(&line.text).count();
        total += words(&line.text).count();
    }
    (1e3 * found as f64 / (total.max(1)) as f64, total)
}
