//! Template optimisation: rewrites `{{ 'a' + b + 'c' }}`, with which half of the chat templates print their messages,
//! to `{{ 'a' }}{{ b | text }}{{ 'c' }}`. A sum creates a new text for each sign in it, and copies the whole message
//! each time.
//!
//! The output is the same. If one summand is a text, all must be, or there is an error; the filter raises the same
//! error here.

use minijinja::machinery::ast::{BinOpKind, EmitExpr, Expr, Spanned, Stmt};
use minijinja::machinery::{parse, parse_expr};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};

use crate::statements::visit;

/// Name of the filter; no template uses it.
pub(crate) const TEXT: &str = "__text";

/// Filters texts: returns them unchanged. Everything else is an error.
pub(crate) fn text(value: &Value) -> Result<Value, Error> {
    if value.as_str().is_none() {
        let refused = format!("a text and {} have no sum", value.kind());
        return Err(Error::new(ErrorKind::InvalidOperation, refused));
    }
    Ok(value.clone())
}

/// Returns a template without printed sums.
pub(crate) fn printed_one_by_one(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let root = parse(source, "<chat template>", syntax)?;
    let mut sums = Vec::new();
    visit(&root, &mut |statement| {
        if let Stmt::EmitExpr(emit) = statement {
            sums.extend(printed_sum(emit, source));
        }
    });
    let mut out = String::with_capacity(source.len());
    let mut from = 0;
    for sum in sums {
        out.push_str(&source[from..sum.start]);
        for (at, summand) in sum.summands.iter().enumerate() {
            out.push_str(if at > 0 { "}}{{ " } else { "" });
            if is_text(summand) {
                out.push_str(summand);
            } else {
                out.extend(["(", summand, ")|", TEXT]);
            }
        }
        from = sum.end;
    }
    out.push_str(&source[from..]);
    Ok(out)
}

/// A printed sum in the template's source.
struct PrintedSum<'s> {
    start: usize,
    end: usize,
    summands: Vec<&'s str>,
}

/// Returns the summands of a printed expression, if it is a sum with a text in it.
fn printed_sum<'s>(emit: &Spanned<EmitExpr<'_>>, source: &'s str) -> Option<PrintedSum<'s>> {
    let count = summands(&emit.expr);
    let (open, end) = (emit.span().start_offset as usize, emit.span().end_offset as usize);
    let inner = source.get(open..end)?.strip_prefix("{{")?;
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let rest = source[end..].trim_start();
    if count < 2 || !rest.trim_start_matches(['-', '+']).starts_with("}}") {
        return None;
    }
    // Each sign of the sum is outside all brackets. If there are no other such signs, the summands are between them.
    let summands = split(inner)?;
    let is_whole = summands.iter().all(|summand| parse_expr(summand).is_ok());
    let has_text = summands.iter().any(|summand| is_text(summand));
    (summands.len() == count && is_whole && has_text).then_some(PrintedSum {
        start: end - inner.len(),
        end,
        summands,
    })
}

/// Returns the number of summands of an expression; they are added from left to right.
fn summands(expr: &Expr<'_>) -> usize {
    match expr {
        Expr::BinOp(sum) if matches!(sum.op, BinOpKind::Add) => summands(&sum.left) + 1,
        _ => 1,
    }
}

fn is_text(summand: &str) -> bool {
    matches!(parse_expr(summand), Ok(Expr::Const(text)) if text.value.as_str().is_some())
}

/// Splits at each `+` outside brackets and texts.
fn split(expr: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut from, mut depth) = (0, 0_usize);
    let mut rest = expr.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            '\'' | '"' => loop {
                match rest.next()?.1 {
                    '\\' => drop(rest.next()?),
                    end if end == c => break,
                    _ => {}
                }
            },
            '+' if depth == 0 => {
                parts.push(expr[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(expr[from..].trim());
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        assert_eq!(
            printed_one_by_one(source, SyntaxConfig::default()).unwrap(),
            expected
        );
    }

    #[test]
    fn printed_sums_with_a_text_are_taken_apart() {
        check("{{ 'a' + b }}", "{{'a'}}{{ (b)|__text }}");
        check(
            "x {{- m['c+'][1] + \"\\\"+\" + (c + d) | trim -}} y",
            "x {{-(m['c+'][1])|__text}}{{ \"\\\"+\"}}{{ ((c + d) | trim)|__text -}} y",
        );
        check(
            "{% for m in ms %}{% if m %}{{'a'+m}}{% else %}{{ m + 'é' }}{% endif %}{% endfor %}{{'c' + d}}",
            "{% for m in ms %}{% if m %}{{'a'}}{{ (m)|__text}}{% else %}{{(m)|__text}}{{ 'é' }}{% endif %}{% endfor %}{{'c'}}{{ (d)|__text}}",
        );
    }

    #[test]
    fn expressions_other_than_sums_with_text_are_unchanged() {
        for source in [
            "{{ a + b }}",
            "{{ 1 + 2 }}",
            "{{ 'a' }}",
            "{{ ('a' + b) }}",
            "{{ ('a' + b) | trim }}",
            "{{ 'a' + b if c else d }}",
            "{{ 'a' + b == c }}",
            "{{ 'a' + b ~ c or d + 'x' }}",
            "{# {{ 'a' + b }} #}{% raw %}{{ 'a' + b }}{% endraw %}",
            "{% set x = '{{ 1 + y }}' + b %}",
            "{% if 'a' + b %}{% endif %}",
        ] {
            let printed = printed_one_by_one(source, SyntaxConfig::default()).unwrap();
            assert_eq!(printed, source);
        }
    }
}
