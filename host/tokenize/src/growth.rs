//! Template limit: texts and lists that a template builds up. `{% set ns.x = ns.x + message.content %}` copies all
//! earlier contents for each message, at the price of a few instructions. So each such value passes a filter that
//! charges its bytes.

use minijinja::machinery::ast::{BinOpKind, Expr, Stmt};
use minijinja::machinery::{parse, parse_expr};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Error, State};

use crate::costs::{charge, of_copy};
use crate::statements::visit;

/// Name of the filter; no template uses it.
pub(crate) const GROWN: &str = "__grown";

/// Filters grown values: charges them, and returns them unchanged.
pub(crate) fn grown(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    charge(state, of_copy(value))?;
    Ok(value.clone())
}

/// Returns a template whose growing values are charged.
pub(crate) fn charged_growth(source: &str, syntax: SyntaxConfig) -> Result<String, Error> {
    let root = parse(source, "<chat template>", syntax)?;
    let mut insertions: Vec<(usize, String)> = Vec::new();
    visit(&root, &mut |statement| match statement {
        Stmt::Set(set) if is_copy(&set.target, &set.expr) => {
            let span = set.span();
            let place = set_value(source, span.start_offset as usize, span.end_offset as usize);
            if let Some((start, end)) = place {
                insertions.extend([(start, "((".to_owned()), (end, format!(")|{GROWN})"))]);
            }
        }
        Stmt::SetBlock(block) if matches!(block.target, Expr::GetAttr(_)) => {
            let end = block.target.span().end_offset as usize;
            insertions.push((end, format!("|{GROWN}")));
        }
        _ => {}
    });
    let mut out = String::with_capacity(source.len() + 8 * insertions.len());
    let mut from = 0;
    for (at, text) in insertions {
        out.extend([&source[from..at], &*text]);
        from = at;
    }
    out.push_str(&source[from..]);
    Ok(out)
}

/// Returns the place of the value in a statement.
fn set_value(source: &str, start: usize, end: usize) -> Option<(usize, usize)> {
    let (target, value) = source.get(start..end)?.split_once('=')?;
    let space = value.len() - value.trim_start().len();
    parse_expr(value)
        .is_ok()
        .then_some((start + target.len() + 1 + space, end))
}

/// Returns `true` for values that may take a copy of a text or a list.
fn is_copy(target: &Expr<'_>, value: &Expr<'_>) -> bool {
    match target {
        Expr::GetAttr(_) => may_grow(value),
        // Other variables do not outlive their turn of a loop, and filters and methods are charged themselves.
        _ => matches!(value, Expr::BinOp(_) | Expr::IfExpr(_)) && may_grow(value),
    }
}

/// Returns `false` for values that take no copy of a text or a list.
fn may_grow(expr: &Expr<'_>) -> bool {
    let is_number = |expr: &Expr<'_>| matches!(expr, Expr::Const(value) if value.value.is_number());
    match expr {
        Expr::BinOp(both) => match both.op {
            BinOpKind::Add => !is_number(&both.left) && !is_number(&both.right),
            BinOpKind::Concat | BinOpKind::Mul | BinOpKind::Rem => true,
            BinOpKind::ScAnd | BinOpKind::ScOr => may_grow(&both.left) || may_grow(&both.right),
            _ => false,
        },
        Expr::IfExpr(choice) => {
            may_grow(&choice.true_expr) || choice.false_expr.as_ref().is_some_and(may_grow)
        }
        Expr::Filter(_) | Expr::Call(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) | Expr::Slice(_) => {
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &str) {
        let charged = charged_growth(source, SyntaxConfig::default()).unwrap();
        assert_eq!(charged, expected);
    }

    #[test]
    fn values_that_grow_are_charged() {
        check(
            "{% for m in ms %}{%- set ns.x = ns.x + '\\n' + m.c -%}{% endfor %}",
            "{% for m in ms %}{%- set ns.x = ((ns.x + '\\n' + m.c)|__grown) -%}{% endfor %}",
        );
        check(
            "é{% macro f(m) %}{% if a %}{% set ns.x = (ns.x ~ m)|trim %}{% endif %}{% endmacro %}{% set ns.y=[ns.y]%}",
            "é{% macro f(m) %}{% if a %}{% set ns.x = (((ns.x ~ m)|trim)|__grown) %}{% endif %}{% endmacro %}{% set ns.y=(([ns.y])|__grown)%}",
        );
        check(
            "{% set ns.x = ns.x + m if m else '' %}",
            "{% set ns.x = ((ns.x + m if m else '')|__grown) %}",
        );
        check("{% set x = x + y %}", "{% set x = ((x + y)|__grown) %}");
        check(
            "{% set ns.x %}{{ ns.x }}{{ m }}{% endset %}",
            "{% set ns.x|__grown %}{{ ns.x }}{{ m }}{% endset %}",
        );
    }

    #[test]
    fn assignments_that_cannot_grow_over_a_loop_are_unchanged() {
        for source in [
            "{% set ns.x = ns.x + 1 %}",
            "{% set ns.x = true %}",
            "{% set ns.x = m.content %}",
            "{% set ns.x = not a and b == 'c' %}",
            "{% set x = x + 1 %}",
            "{% set x = y|trim %}",
            "{% raw %}{% set ns.x = a + b %}{% endraw %}",
        ] {
            check(source, source);
        }
    }
}
