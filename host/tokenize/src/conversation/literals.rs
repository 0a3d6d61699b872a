//! Texts that a template mentions: contents that have one of them may be rendered otherwise, such as `</think>`.

/// Most texts of a template that are probed.
const MOST: usize = 256;

/// Returns the string literals of a template's expressions and statements, without surrounding space. `None` if there
/// are too many of them.
pub(crate) fn literals(source: &str) -> Option<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let close = if rest[at..].starts_with("{{") { "}}" } else { "%}" };
        rest = &rest[at + 2..];
        while !rest.is_empty() && !rest.starts_with(close) {
            let Some(quote) = rest.chars().next() else { break };
            rest = &rest[quote.len_utf8()..];
            if quote != '\'' && quote != '"' {
                continue;
            }
            let (text, after) = literal(rest, quote);
            let text = text.trim();
            if !text.is_empty() && !found.iter().any(|known| known == text) {
                found.push(text.to_owned());
            }
            rest = after;
        }
    }
    (found.len() <= MOST).then_some(found)
}

/// Returns pairs of texts that may change a rendering only together: those of `startswith` and `endswith`, and those in
/// the form of `<x>` and `</x>`. `None` if there are too many.
pub(crate) fn pairs(source: &str, literals: &[String]) -> Option<Vec<[String; 2]>> {
    let [first, last] = ["startswith(", "endswith("].map(|method| arguments(source, method));
    let mut found: Vec<[String; 2]> = Vec::new();
    for own in &first {
        found.extend(last.iter().map(|other| [own.clone(), other.clone()]));
    }
    for literal in literals {
        let closing = [literal.replacen('<', "</", 1), literal.replacen('[', "[/", 1)];
        let closing = closing
            .into_iter()
            .find(|closing| closing != literal && literals.contains(closing));
        found.extend(closing.map(|closing| [literal.clone(), closing]));
    }
    found.sort();
    found.dedup();
    found.retain(|[own, other]| own != other);
    (found.len() <= MOST).then_some(found)
}

/// Returns the literals that a method is called with, without surrounding space.
fn arguments(source: &str, method: &str) -> Vec<String> {
    let calls = source.match_indices(method);
    let literals = calls.filter_map(|(at, _)| {
        let given = source[at + method.len()..].trim_start();
        let quote = given.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        Some(literal(&given[1..], quote).0.trim().to_owned())
    });
    literals.filter(|literal| !literal.is_empty()).collect()
}

/// Returns the text of a literal after its first quote, and what follows it.
fn literal(source: &str, quote: char) -> (String, &str) {
    let mut text = String::new();
    let mut chars = source.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some(other) => text.push(other),
                None => break,
            },
            next if next == quote => break,
            next => text.push(next),
        }
    }
    (text, chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_expressions_are_found_and_others_are_not() {
        let source =
            r#"it's {{ 'a' + "b'c" }} "no" {%- if '</x>\n' in m and "}}" -%} {{ 'a' }} {{ ' ' }} {{ 'q\'' "#;
        let found = literals(source).unwrap();
        assert_eq!(found, ["a", "b'c", "</x>", "}}", "q'"]);
        let many: String = (0..300).map(|at| format!("{{{{ 'x{at}' }}}}")).collect();
        assert_eq!(literals(&many), None);
    }

    #[test]
    fn texts_around_a_content_are_paired() {
        let source = "{% if m.startswith('<a>\n') and m.endswith( \"</b>\" ) %}{% elif '[X]' in m %}{{ '[/X]' }}{% endif %}";
        let found = pairs(source, &literals(source).unwrap()).unwrap();
        assert_eq!(found, [["<a>", "</b>"], ["[X]", "[/X]"]]);
    }
}
