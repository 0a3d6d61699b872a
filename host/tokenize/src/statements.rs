//! Walk over the statements of a template.

use minijinja::machinery::ast::Stmt;

/// Calls a function with each statement, in the order of the source.
pub(crate) fn visit<'s>(statement: &Stmt<'s>, on: &mut impl FnMut(&Stmt<'s>)) {
    on(statement);
    let bodies: [&[Stmt<'s>]; 2] = match statement {
        Stmt::Template(template) => [&template.children, &[]],
        Stmt::ForLoop(each) => [&each.body, &each.else_body],
        Stmt::IfCond(condition) => [&condition.true_body, &condition.false_body],
        Stmt::WithBlock(block) => [&block.body, &[]],
        Stmt::SetBlock(block) => [&block.body, &[]],
        Stmt::FilterBlock(block) => [&block.body, &[]],
        Stmt::AutoEscape(block) => [&block.body, &[]],
        Stmt::Macro(declared) => [&declared.body, &[]],
        Stmt::CallBlock(called) => [&called.macro_decl.body, &[]],
        Stmt::Block(block) => [&block.body, &[]],
        _ => [&[], &[]],
    };
    for statement in bodies.into_iter().flatten() {
        visit(statement, on);
    }
}
