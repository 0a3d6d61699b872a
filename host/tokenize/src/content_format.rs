//! Content format detection: a chat template needs a message's content as text or as a list of parts. Like vLLM, it
//! searches the template's syntax tree for a loop over a message's `content`.

use std::collections::BTreeSet;

use minijinja::Error;
use minijinja::machinery::ast::{Call, CallArg, Expr, Macro, Stmt};
use minijinja::machinery::parse;

/// Form of message contents passed to a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentFormat {
    /// Texts joined by newlines.
    String,
    /// A list of parts, each with its `type`.
    OpenAi,
}

/// Detects the format from the template's syntax.
pub(crate) fn detect(source: &str) -> Result<ContentFormat, Error> {
    let root = parse(source, "<chat template>", Default::default())?;
    let mut found = SyntaxParts::default();
    found.statement(&root, None);
    Ok(if found.loops_over_content() {
        ContentFormat::OpenAi
    } else {
        ContentFormat::String
    })
}

/// Words of a template that takes media, for SGLang.
const MEDIA: [&str; 4] = ["image", "audio", "video", "vision"];

/// Detects the format as SGLang does: from words, or a loop over the content of a variable of one of three names.
pub(crate) fn detect_as_sglang(source: &str) -> Result<ContentFormat, Error> {
    if MEDIA.iter().any(|word| source.contains(word)) {
        return Ok(ContentFormat::OpenAi);
    }
    let root = parse(source, "<chat template>", Default::default())?;
    let mut found = SyntaxParts::default();
    found.statement(&root, None);
    let is_content = |over: &Expr<'_>| {
        let names = ["message", "msg", "m"];
        names.iter().any(|name| is_content_of(core(over), name))
    };
    Ok(match found.loops.iter().any(|(_, over, _)| is_content(over)) {
        true => ContentFormat::OpenAi,
        false => ContentFormat::String,
    })
}

/// Relevant parts of the syntax tree.
#[derive(Default)]
struct SyntaxParts<'t, 's> {
    /// `set NAME = EXPR`.
    sets: Vec<(&'s str, &'t Expr<'s>)>,
    /// `for NAME in EXPR`, and the macro that contains it.
    loops: Vec<(Option<&'s str>, &'t Expr<'s>, Option<usize>)>,
    macros: Vec<&'t Macro<'s>>,
    calls: Vec<&'t Call<'s>>,
}

impl<'t, 's> SyntaxParts<'t, 's> {
    fn loops_over_content(&self) -> bool {
        let lists = self.names_of_messages();
        let messages: BTreeSet<&str> = self
            .loops
            .iter()
            .filter(|(_, over, _)| lists.iter().any(|list| is_name(core(over), list)))
            .filter_map(|(name, ..)| *name)
            .collect();
        let is_content = |expr: &Expr<'_>| messages.iter().any(|message| is_content_of(core(expr), message));
        self.loops.iter().any(|(_, over, within)| {
            is_content(over)
                || match within {
                    None => is_name(over, "content"),
                    Some(at) => {
                        let parameters = self.content_parameters(self.macros[*at], &is_content);
                        parameters.iter().any(|parameter| is_name(over, parameter))
                    }
                }
        })
    }

    /// Returns `messages` and every variable that is set to it or to a part of it.
    fn names_of_messages(&self) -> BTreeSet<&'s str> {
        let mut names = BTreeSet::from(["messages"]);
        loop {
            let before = names.len();
            for (name, value) in &self.sets {
                if names.iter().any(|known| is_name(core(value), known)) {
                    names.insert(name);
                }
            }
            if names.len() == before {
                return names;
            }
        }
    }

    /// Returns the parameters of a macro that is called with a message's content.
    fn content_parameters(
        &self,
        called: &Macro<'s>,
        is_content: &dyn Fn(&Expr<'_>) -> bool,
    ) -> BTreeSet<&'s str> {
        let name = |at: usize| match called.args.get(at) {
            Some(Expr::Var(name)) => Some(name.id),
            _ => None,
        };
        let mut parameters = BTreeSet::new();
        for call in self.calls.iter().filter(|call| is_name(&call.expr, called.name)) {
            for (at, argument) in call.args.iter().enumerate() {
                match argument {
                    CallArg::Pos(value) if is_content(value) => parameters.extend(name(at)),
                    CallArg::Kwarg(named, value) if is_content(value) => {
                        parameters.insert(*named);
                    }
                    _ => {}
                }
            }
        }
        parameters
    }

    fn statements(&mut self, statements: &'t [Stmt<'s>], within: Option<usize>) {
        for statement in statements {
            self.statement(statement, within);
        }
    }

    fn statement(&mut self, statement: &'t Stmt<'s>, within: Option<usize>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children, within),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::ForLoop(each) => {
                let name = match &each.target {
                    Expr::Var(name) => Some(name.id),
                    _ => None,
                };
                self.loops.push((name, &each.iter, within));
                self.expression(&each.iter);
                self.statements(&each.body, within);
                self.statements(&each.else_body, within);
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr);
                self.statements(&condition.true_body, within);
                self.statements(&condition.false_body, within);
            }
            Stmt::WithBlock(block) => {
                for (_, value) in &block.assignments {
                    self.expression(value);
                }
                self.statements(&block.body, within);
            }
            Stmt::Set(set) => {
                if let Expr::Var(name) = &set.target {
                    self.sets.push((name.id, &set.expr));
                }
                self.expression(&set.expr);
            }
            Stmt::SetBlock(block) => self.statements(&block.body, within),
            Stmt::AutoEscape(block) => self.statements(&block.body, within),
            Stmt::FilterBlock(block) => self.statements(&block.body, within),
            Stmt::Block(block) => self.statements(&block.body, within),
            Stmt::Macro(declared) => {
                self.macros.push(declared);
                let at = self.macros.len() - 1;
                self.statements(&declared.body, Some(at));
            }
            Stmt::CallBlock(block) => {
                self.call(&block.call);
                self.statements(&block.macro_decl.body, within);
            }
            Stmt::Do(call) => self.call(&call.call),
            Stmt::EmitRaw(_)
            | Stmt::Continue(_)
            | Stmt::Break(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_) => {}
        }
    }

    fn call(&mut self, call: &'t Call<'s>) {
        self.calls.push(call);
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &'t [CallArg<'s>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }

    fn expression(&mut self, expr: &'t Expr<'s>) {
        match expr {
            Expr::Call(call) => self.call(call),
            Expr::UnaryOp(op) => self.expression(&op.expr),
            Expr::BinOp(op) => {
                self.expression(&op.left);
                self.expression(&op.right);
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                if let Some(other) = &choice.false_expr {
                    self.expression(other);
                }
            }
            Expr::Filter(filter) => {
                if let Some(filtered) = &filter.expr {
                    self.expression(filtered);
                }
                self.arguments(&filter.args);
            }
            Expr::Test(test) => self.expression(&test.expr),
            Expr::Compare(compare) => self.expression(&compare.expr),
            Expr::GetAttr(attribute) => self.expression(&attribute.expr),
            Expr::GetItem(item) => self.expression(&item.expr),
            Expr::Slice(slice) => self.expression(&slice.expr),
            Expr::List(list) => list.items.iter().for_each(|item| self.expression(item)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.expression(item)),
            Expr::Map(map) => map.values.iter().for_each(|value| self.expression(value)),
            Expr::Var(_) | Expr::Const(_) => {}
        }
    }
}

/// Returns the inner expression of a filter, test or slice.
fn core<'e, 's>(expr: &'e Expr<'s>) -> &'e Expr<'s> {
    match expr {
        Expr::Filter(filter) => filter.expr.as_ref().map_or(expr, core),
        Expr::Test(test) => core(&test.expr),
        Expr::Slice(slice) => core(&slice.expr),
        _ => expr,
    }
}

fn is_name(expr: &Expr<'_>, name: &str) -> bool {
    matches!(expr, Expr::Var(var) if var.id == name)
}

fn is_content_of(expr: &Expr<'_>, message: &str) -> bool {
    match expr {
        Expr::GetAttr(attribute) => attribute.name == "content" && is_name(&attribute.expr, message),
        Expr::GetItem(item) => {
            let key = match &item.subscript_expr {
                Expr::Const(key) => key.value.as_str() == Some("content"),
                _ => false,
            };
            key && is_name(&item.expr, message)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: ContentFormat) {
        assert_eq!(detect(template).unwrap(), expected, "{template}");
    }

    #[test]
    fn a_template_that_loops_over_content_takes_parts() {
        use ContentFormat::{OpenAi, String};
        check("{% for m in messages %}{{ m.content }}{% endfor %}", String);
        check(
            "{% for m in messages %}{% for p in m['content'] %}{{ p }}{% endfor %}{% endfor %}",
            OpenAi,
        );
        check(
            "{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content | list %}{% endfor %}{% endfor %}",
            OpenAi,
        );
        check("{% for p in content %}{% endfor %}", OpenAi);
        check("{% for x in m.content %}{% endfor %}", String);
        check(
            "{% for t in tools %}{% for p in t.content %}{% endfor %}{% endfor %}",
            String,
        );
    }

    #[test]
    fn sglang_looks_for_words_and_names() {
        use ContentFormat::{OpenAi, String};
        for (template, expected) in [
            ("{% for m in messages %}{{ m.content }}{% endfor %}", String),
            ("{% for p in m['content'] | list %}{% endfor %}", OpenAi),
            (
                "{% for x in messages %}{% for p in x.content %}{% endfor %}{% endfor %}",
                String,
            ),
            ("{{ '<image>' }}", OpenAi),
        ] {
            assert_eq!(detect_as_sglang(template).unwrap(), expected, "{template}");
        }
    }

    #[test]
    fn a_loop_may_stand_in_a_block() {
        use ContentFormat::{OpenAi, String};
        let block = |body: &str| {
            "{% block all %}{% for m in messages %}BODY{% endfor %}{% endblock %}".replace("BODY", body)
        };
        check(&block("{% for p in m.content %}{{ p }}{% endfor %}"), OpenAi);
        check(&block("{{ m.content }}"), String);
    }

    #[test]
    fn content_may_pass_through_a_macro() {
        use ContentFormat::{OpenAi, String};
        let shown = "{% macro show(c, n) %}{% for p in c %}{% endfor %}{% endmacro %}";
        let each = |call: &str| format!("{shown}{{% for m in messages %}}{{{{ {call} }}}}{{% endfor %}}");
        check(&each("show(m.content, 1) ~ 'x'"), OpenAi);
        check(&each("show(c=m['content'], n=2)"), OpenAi);
        check(&each("show(m.parts, m.content)"), String);
        check(
            "{% macro f(content) %}{% for p in content %}{% endfor %}{% endmacro %}",
            String,
        );
    }
}
