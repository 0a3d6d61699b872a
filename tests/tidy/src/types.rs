//! Types of a crate: where each is defined, and how large its fields or methods make it. Test code is left out.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Fields, TraitItem};

use crate::files;
use crate::modules::{is_test_file, is_test_only};

/// A struct, enum, union, trait or type alias.
#[derive(Debug, Clone)]
pub struct TypeShape {
    /// Name.
    pub name: String,
    /// File of the definition, relative to the root.
    pub file: String,
    /// Fields of a struct, methods of a trait; else 0.
    pub members: usize,
    /// The kind of item.
    pub kind: TypeKind,
}

/// Kinds of items that define a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeKind {
    /// `struct`.
    Struct,
    /// `trait`.
    Trait,
    /// `enum`, `union` or `type`.
    Other,
}

/// Returns the types that the files below a folder define, by crate (the first two folders of the path).
#[must_use]
pub fn by_crate(folder: &str) -> BTreeMap<String, Vec<TypeShape>> {
    let mut found: BTreeMap<String, Vec<TypeShape>> = BTreeMap::new();
    let sources = files(&["rs"]).into_iter();
    for file in sources.filter(|file| file.path.starts_with(folder) && !is_test_file(&file.path)) {
        if !file.path.contains("/src/") {
            continue;
        }
        let owner: Vec<_> = file.path.split('/').take(2).collect();
        let types = found.entry(owner.join("/")).or_default();
        let tree = file.parse();
        Types {
            file: &file.path,
            types,
        }
        .visit_file(&tree);
    }
    found
}

struct Types<'a> {
    file: &'a str,
    types: &'a mut Vec<TypeShape>,
}

impl Types<'_> {
    fn add(&mut self, name: &syn::Ident, kind: TypeKind, members: usize) {
        self.types.push(TypeShape {
            name: name.to_string(),
            file: self.file.to_owned(),
            members,
            kind,
        });
    }
}

impl<'ast> Visit<'ast> for Types<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test_only(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    // Types inside functions are no part of a crate's vocabulary.
    fn visit_block(&mut self, _: &'ast syn::Block) {}

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let members = match &item.fields {
            Fields::Named(fields) => fields.named.len(),
            Fields::Unnamed(fields) => fields.unnamed.len(),
            Fields::Unit => 0,
        };
        self.add(&item.ident, TypeKind::Struct, members);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let methods = item.items.iter().filter(|item| matches!(item, TraitItem::Fn(_)));
        self.add(&item.ident, TypeKind::Trait, methods.count());
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident, TypeKind::Other, 0);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.ident, TypeKind::Other, 0);
    }
}
