//! Parameters of functions that are tuples. Test code is left out.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, Type};

use crate::modules::{is_test_file, is_test_only};
use crate::{SourceFile, files};

/// A parameter whose type is a tuple, or a reference to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TupleParameter {
    /// File, relative to the root.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// Name of the function.
    pub function: String,
}

/// Returns the tuple parameters of the production code: the `src` folders outside tests and benches.
#[must_use]
pub fn tuple_parameters() -> Vec<TupleParameter> {
    let sources = files(&["rs"]).into_iter();
    let code = sources.filter(|file| file.path.contains("/src/") && !is_test_file(&file.path));
    code.flat_map(|file| of_file(&file)).collect()
}

/// Returns the tuple parameters of one file. Implementations of traits are left out: the trait sets their parameters.
#[must_use]
pub fn of_file(file: &SourceFile) -> Vec<TupleParameter> {
    let mut found = Parameters {
        file: &file.path,
        found: Vec::new(),
    };
    found.visit_file(&file.parse());
    found.found
}

struct Parameters<'a> {
    file: &'a str,
    found: Vec<TupleParameter>,
}

impl<'ast> Visit<'ast> for Parameters<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test_only(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        for input in &signature.inputs {
            if let FnArg::Typed(parameter) = input
                && is_tuple(&parameter.ty)
            {
                self.found.push(TupleParameter {
                    file: self.file.to_owned(),
                    line: parameter.span().start().line,
                    function: signature.ident.to_string(),
                });
            }
        }
    }
}

fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Paren(inner) => is_tuple(&inner.elem),
        Type::Group(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}
