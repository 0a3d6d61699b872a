//! Filters that charge the operands of slices, comparisons and loops, and their places in a template.

use std::cmp::Reverse;

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, State};

use super::{ELEMENT, EXAMINED, SLICED, charge, elements, of_scan, text_bytes};

/// Charges the operand of a slice.
const SLICED_VALUE: &str = "__sliced";
/// Makes a list of the result of a slice.
const SLICE: &str = "__slice_list";
/// Charges the right operand of a comparison.
const COMPARED: &str = "__compared";
/// Charges the values of a loop.
const LOOPED: &str = "__looped";

pub(super) fn register(environment: &mut Environment<'_>) {
    environment.add_filter(SLICED_VALUE, |state: &mut State<'_, '_>, value: &Value| {
        charge(state, text_bytes(value).saturating_mul(SLICED))?;
        charge(state, elements(value).saturating_mul(ELEMENT))?;
        Ok::<_, Error>(value.clone())
    });
    // The engine slices a list again each time its slice is read.
    environment.add_filter(SLICE, |value: &Value| match value.kind() {
        ValueKind::Iterable => Ok::<_, Error>(value.try_iter()?.collect::<Value>()),
        _ => Ok(value.clone()),
    });
    environment.add_filter(COMPARED, |state: &mut State<'_, '_>, value: &Value| {
        let examined = match value.kind() {
            ValueKind::Map => 0,
            _ => elements(value).saturating_mul(EXAMINED),
        };
        charge(state, examined.saturating_add(of_scan(value)))?;
        Ok::<_, Error>(value.clone())
    });
    environment.add_filter(LOOPED, |state: &mut State<'_, '_>, value: &Value| {
        // An iteration over a list begins at no cost.
        if matches!(value.kind(), ValueKind::Map | ValueKind::Iterable) {
            charge(state, elements(value).saturating_mul(ELEMENT))?;
        }
        Ok::<_, Error>(value.clone())
    });
}

/// Returns a template whose slices, comparisons and loops are charged.
pub(crate) fn charged_operands(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let tokens: Vec<_> = tokenize(source, false, syntax).collect::<Result<_, _>>()?;
    let tokens = TemplateTokens::of(&tokens);
    let mut insertions = Vec::new();
    for at in 0..tokens.list.len() {
        if let Some((operand, close)) = tokens.slice(at) {
            let start = tokens.start(operand);
            let mut insert = |place, text| insertions.push((place, Reverse(start), at, text));
            insert(start, "((((".to_owned());
            insert(tokens.start(at), format!(")|{SLICED_VALUE})"));
            insert(tokens.end(close), format!(")|{SLICE})"));
        }
        if let Some((first, last, filter)) = tokens.right_operand(at) {
            let start = tokens.start(first);
            // A slice that is the whole operand is within.
            let mut insert = |place, text| insertions.push((place, Reverse(start), usize::MAX, text));
            insert(start, "((".to_owned());
            insert(tokens.end(last), format!(")|{filter})"));
        }
    }
    // At one place, the end of an inner expression comes first.
    insertions.sort_by_key(|(place, start, rank, _)| (*place, *start, *rank));
    let mut out = String::with_capacity(source.len() + 16 * insertions.len());
    let mut from = 0;
    for (at, _, _, text) in insertions {
        out.extend([&source[from..at], &*text]);
        from = at;
    }
    out.push_str(&source[from..]);
    Ok(out)
}

/// Tokens of a template, and the partner of each bracket.
struct TemplateTokens<'t, 's> {
    list: &'t [(Token<'s>, Span)],
    partners: Vec<Option<usize>>,
}

impl<'t, 's> TemplateTokens<'t, 's> {
    fn of(list: &'t [(Token<'s>, Span)]) -> Self {
        let mut partners = vec![None; list.len()];
        let mut open = Vec::new();
        for (at, (token, _)) in list.iter().enumerate() {
            match token {
                Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => open.push(at),
                Token::BracketClose | Token::ParenClose | Token::BraceClose => {
                    if let Some(opening) = open.pop() {
                        partners[opening] = Some(at);
                        partners[at] = Some(opening);
                    }
                }
                _ => {}
            }
        }
        Self { list, partners }
    }

    fn token(&self, at: usize) -> Option<&Token<'s>> {
        self.list.get(at).map(|(token, _)| token)
    }

    fn start(&self, at: usize) -> usize {
        self.list[at].1.start_offset as usize
    }

    fn end(&self, at: usize) -> usize {
        self.list[at].1.end_offset as usize
    }

    /// Returns the first token of the operand and the last token of the slice, if a slice opens here.
    fn slice(&self, at: usize) -> Option<(usize, usize)> {
        let Some(Token::BracketOpen) = self.token(at) else {
            return None;
        };
        let close = self.partners[at]?;
        let mut inner = at + 1;
        while !matches!(self.token(inner)?, Token::Colon) {
            inner = self.after(inner);
            if inner >= close {
                return None;
            }
        }
        Some((self.operand_before(at)?, close))
    }

    /// Returns the place behind a token, or behind the brackets that open there.
    fn after(&self, at: usize) -> usize {
        self.partners[at].filter(|partner| *partner > at).unwrap_or(at) + 1
    }

    /// Returns the first token of the expression that a bracket follows.
    fn operand_before(&self, at: usize) -> Option<usize> {
        let mut first = at.checked_sub(1)?;
        loop {
            match self.token(first)? {
                Token::BracketClose | Token::ParenClose | Token::BraceClose => {
                    first = self.partners[first]?;
                    // A call or a subscript, if an operand precedes the bracket.
                    let before = first.checked_sub(1)?;
                    let continues = match self.token(before)? {
                        Token::Ident(name) => !is_operator(name),
                        Token::BracketClose | Token::ParenClose => true,
                        Token::Str(_) | Token::String(_) => true,
                        _ => false,
                    };
                    if !continues {
                        return Some(first);
                    }
                    first = before;
                }
                Token::Ident(name) if is_operator(name) => return None,
                Token::Ident(_) | Token::Int(_) | Token::Str(_) | Token::String(_) => {
                    let before = first.checked_sub(1)?;
                    if !matches!(self.token(before)?, Token::Dot) {
                        return Some(first);
                    }
                    first = before.checked_sub(1)?;
                }
                _ => return None,
            }
        }
    }

    /// Returns the right operand of a comparison here, or the values of a loop, and the filter that charges it.
    fn right_operand(&self, at: usize) -> Option<(usize, usize, &'static str)> {
        let filter = match self.token(at)? {
            Token::Eq | Token::Ne | Token::Lt | Token::Lte | Token::Gt | Token::Gte => COMPARED,
            Token::Ident("in") => match self.token(at.checked_sub(1)?)? {
                // A test, or a name of a member.
                Token::Ident("is") | Token::Dot => return None,
                _ if self.is_loop(at) => LOOPED,
                _ => COMPARED,
            },
            _ => return None,
        };
        let first = at + 1;
        let mut behind = first;
        while !ends_operand(self.token(behind)?) {
            // A member may have the name of an operator.
            let name = usize::from(matches!(self.token(behind)?, Token::Dot));
            behind = self.after(behind) + name;
        }
        let is_constant = behind == first + 1 && is_constant(self.token(first)?);
        // A list literal is short.
        let is_list = matches!(self.token(first)?, Token::BracketOpen) && self.after(first) == behind;
        (behind > first && !is_constant && !is_list).then(|| (first, behind - 1, filter))
    }

    /// Returns `true` for the `in` of `{% for x in values %}`.
    fn is_loop(&self, at: usize) -> bool {
        let mut before = self.list[..at].iter().rev().map(|(token, _)| token);
        let is_target = |token: &&Token<'_>| {
            matches!(token, Token::Ident(name) if *name != "for")
                || matches!(token, Token::Comma | Token::ParenOpen | Token::ParenClose)
        };
        let keyword = before.find(|token| !is_target(token));
        matches!(keyword, Some(Token::Ident("for"))) && matches!(before.next(), Some(Token::BlockStart))
    }
}

fn is_constant(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(name) => matches!(*name, "none" | "None" | "true" | "True" | "false" | "False"),
        Token::Str(_) | Token::String(_) | Token::Int(_) => true,
        _ => false,
    }
}

/// Returns `true` for words that stand between operands.
fn is_operator(name: &str) -> bool {
    matches!(
        name,
        "and" | "or" | "not" | "in" | "is" | "if" | "elif" | "else" | "for" | "set" | "do" | "call"
    )
}

/// Returns `true` for tokens that cannot belong to the operand of a comparison.
fn ends_operand(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(name) => matches!(*name, "and" | "or" | "not" | "in" | "if" | "else" | "recursive"),
        Token::Eq | Token::Ne | Token::Gt | Token::Gte | Token::Lt | Token::Lte => true,
        Token::Comma | Token::Colon | Token::VariableEnd | Token::BlockEnd => true,
        Token::ParenClose | Token::BracketClose | Token::BraceClose => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        let charged = charged_operands(source, SyntaxConfig::default()).unwrap();
        assert_eq!(charged, expected);
        minijinja::machinery::parse(&charged, "<chat template>", SyntaxConfig::default()).unwrap();
    }

    #[test]
    fn slices_are_charged_by_their_operand() {
        check("{{ a[1:] }}", "{{ ((((a)|__sliced)[1:])|__slice_list) }}");
        check(
            "{{ -f(x)['y'].z[-1:].w ~ 'a:b'[::2] }}",
            "{{ -((((f(x)['y'].z)|__sliced)[-1:])|__slice_list).w ~ (((('a:b')|__sliced)[::2])|__slice_list) }}",
        );
        check(
            "{{ (a + b)[:c[1:]|length][2:] }}",
            "{{ (((((((((a + b))|__sliced)[:((((c)|__sliced)[1:])|__slice_list)|length])|__slice_list))|__sliced)[2:])|__slice_list) }}",
        );
    }

    #[test]
    fn comparisons_and_loops_are_charged_by_their_right_operand() {
        check(
            "{% if a not in b.c and d == e|length or (f != g) %}{% endif %}",
            "{% if a not in ((b.c)|__compared) and d == ((e|length)|__compared) or (f != ((g)|__compared)) %}{% endif %}",
        );
        check(
            "{%- for k, v in x|items if k in y -%}{% endfor %}{{ 1 if 'a' in b else c }}",
            "{%- for k, v in ((x|items)|__looped) if k in ((y)|__compared) -%}{% endfor %}{{ 1 if 'a' in ((b)|__compared) else c }}",
        );
        check(
            "{% if a < b %}{{ a == b.in }}{% endif %}",
            "{% if a < ((b)|__compared) %}{{ a == ((b.in)|__compared) }}{% endif %}",
        );
        check(
            "{% for m in messages[1:] %}{% endfor %}",
            "{% for m in ((((((messages)|__sliced)[1:])|__slice_list))|__looped) %}{% endfor %}",
        );
    }

    #[test]
    fn expressions_without_such_operands_are_unchanged() {
        for source in [
            "{{ a[1] }}{{ [a, {'b': 1}][0] }}{{ a.in }}",
            "{% if m.role == 'user' and n == none and x in ['a', b] and x is in [1] %}{% endif %}",
            "{% raw %}{{ a[1:] }}{% endraw %} a[1:] in b {# a[1:] #}",
        ] {
            check(source, source);
        }
    }
}
