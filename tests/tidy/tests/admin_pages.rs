//! Every page of the admin listener is in its index. That every page of the index is there is tested over HTTP.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Expr, Lit};
use tidy::files;

/// The paths of all routes that are written as texts.
#[derive(Default)]
struct Routes(BTreeSet<String>);

impl<'ast> Visit<'ast> for Routes {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let (true, Some(Expr::Lit(path))) = (call.method == "route", call.args.first())
            && let Lit::Str(path) = &path.lit
        {
            self.0.insert(path.value());
        }
        visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn every_page_of_the_admin_listener_is_in_its_index() {
    let (index, others): (Vec<_>, Vec<_>) = files(&["rs"])
        .into_iter()
        .filter(|file| file.path.starts_with("host/admin-pages/src/"))
        .partition(|file| file.path.ends_with("/index_page.rs"));
    let [index] = &index[..] else {
        panic!("the index is one file")
    };
    let mut routes = Routes::default();
    for file in others {
        routes.visit_file(&syn::parse_file(&file.text).expect("it compiles"));
    }
    assert!(routes.0.contains("/admin/config"), "{:?}", routes.0);
    let mut paths = routes.0.into_iter();
    let absent: Vec<_> = paths
        .by_ref()
        .filter(|path| !index.text.contains(&format!("\"{path}\"")))
        .collect();
    assert!(absent.is_empty(), "add to PAGES of {}: {absent:?}", index.path);
}
