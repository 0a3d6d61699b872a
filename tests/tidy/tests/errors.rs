//! `host/docs/api/errors.md` has every error code that the router's listeners answer with, and no other.

use std::collections::BTreeSet;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, Lit};
use tidy::{SourceFile, files, root};

type Codes = BTreeSet<String>;

/// Returns the codes of a section of the page.
fn listed(heading: &str) -> Codes {
    let page = std::fs::read_to_string(root().join("host/docs/api/errors.md")).expect("the page is there");
    let mut sections = page.split("\n## ").filter_map(|section| section.split_once('\n'));
    let (_, section) = sections
        .find(|(title, _)| *title == heading)
        .expect("the page has a section for each listener");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect()
}

/// Returns the source files of a crate, or one of them, without its tests.
fn sources(path: &str) -> impl Iterator<Item = SourceFile> {
    let is_test = |file: &SourceFile| file.path.ends_with("tests.rs") || file.path.contains("/tests/");
    files(&["rs"])
        .into_iter()
        .filter(move |file| file.path.starts_with(path) && !is_test(file))
}

fn parse(file: &SourceFile) -> syn::File {
    syn::parse_file(&file.text).expect("it compiles")
}

/// Error codes: the texts that stand in one tuple or call with a status, those that `bad` is called with, and those of
/// fields named `code`.
#[derive(Default)]
struct ErrorCodes(Codes);

impl ErrorCodes {
    fn of(path: &str) -> Codes {
        let mut found = Self::default();
        for file in sources(path) {
            found.visit_file(&parse(&file));
        }
        assert!(!found.0.is_empty(), "no error code is found in {path}");
        found.0
    }

    fn add(&mut self, expression: &Expr) {
        let Expr::Lit(literal) = expression else { return };
        let Lit::Str(text) = &literal.lit else { return };
        let text = text.value();
        let is_code = !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if is_code {
            self.0.insert(text);
        }
    }

    fn add_with_status<P>(&mut self, expressions: &Punctuated<Expr, P>) {
        if expressions.iter().any(is_status) {
            for expression in expressions {
                self.add(expression);
            }
        }
    }
}

fn is_status(expression: &Expr) -> bool {
    match expression {
        Expr::Path(path) => {
            let first = path.path.segments.first();
            first.is_some_and(|segment| segment.ident == "StatusCode" || segment.ident == "status")
        }
        Expr::MethodCall(call) => call.method == "status",
        _ => false,
    }
}

impl<'ast> Visit<'ast> for ErrorCodes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        self.add_with_status(&tuple.elems);
        visit::visit_expr_tuple(self, tuple);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        self.add_with_status(&call.args);
        if let (Expr::Path(path), Some(first)) = (&*call.func, call.args.first())
            && path.path.is_ident("bad")
        {
            self.add(first);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if matches!(&field.member, syn::Member::Named(name) if name == "code") {
            self.add(&field.expr);
        }
        visit::visit_field_value(self, field);
    }
}

/// Returns the variants of an enum, as serde writes them in snake case.
fn variants(path: &str, name: &str) -> Codes {
    let file = sources(path).next().expect("the file is there");
    let items = parse(&file).items;
    let found = items.into_iter().find_map(|item| match item {
        syn::Item::Enum(item) if item.ident == name => Some(item),
        _ => None,
    });
    let variants = found.expect("the enum is there").variants.into_iter();
    variants
        .map(|variant| snake_case(&variant.ident.to_string()))
        .collect()
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[track_caller]
fn check(heading: &str, in_code: &Codes) {
    let on_page = listed(heading);
    let missing: Vec<_> = in_code.difference(&on_page).collect();
    let gone: Vec<_> = on_page.difference(in_code).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "host/docs/api/errors.md, `{heading}`: add {missing:?}, remove {gone:?}"
    );
}

#[test]
fn the_page_has_every_error_code_for_clients() {
    check("Clients", &ErrorCodes::of("host/proxy/src/base/reply/"));
}

#[test]
fn the_page_has_every_error_code_of_the_admin_pages() {
    check("Admin pages", &ErrorCodes::of("host/admin-pages/src/"));
}

#[test]
fn the_page_has_every_reason_of_the_indexer() {
    check("Indexer", &variants("host/indexer-api/src/refusal.rs", "Reason"));
}
