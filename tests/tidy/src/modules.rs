//! The import graph of a crate: which file uses items of which other file, read from the source with `syn`.
//!
//! Test code is left out. A re-export is transparent: an import through `mod.rs` is an edge to the file that defines
//! the item. Paths inside macro calls are not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::{SourceFile, files};

/// Files of a crate and the imports between them. Paths are relative to the crate's `src/`.
#[derive(Debug, Default)]
pub struct ModuleGraph {
    /// The imports of each file.
    pub imports: BTreeMap<String, BTreeSet<String>>,
}

/// Import of a module that stands to the left of its importer, or of the root of the crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderBreach<'a> {
    /// File that imports.
    pub from: &'a str,
    /// File that is imported.
    pub to: &'a str,
}

impl<'a> OrderBreach<'a> {
    /// Returns the top-level module that imports.
    #[must_use]
    pub fn from_module(&self) -> &'a str {
        top(self.from)
    }

    /// Returns the top-level module that is imported.
    #[must_use]
    pub fn to_module(&self) -> &'a str {
        top(self.to)
    }
}

impl fmt::Display for OrderBreach<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} imports {}", self.from, self.to)
    }
}

type ModulePath = Vec<String>;

/// Roots of a crate.
const ROOTS: [&str; 2] = ["lib", "main"];

/// Longest chain of re-exports that is followed.
const MAX_REEXPORTS: usize = 16;

#[derive(Debug)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// A name and the path that it was imported from.
    bindings: BTreeMap<String, Vec<String>>,
    /// Names that are imported for others only.
    reexports: BTreeSet<String>,
    globs: Vec<Vec<String>>,
    /// Paths in code, by their first two or more segments.
    uses: BTreeSet<Vec<String>>,
    /// Single names in code.
    names: BTreeSet<String>,
}

impl ModuleGraph {
    /// Reads the source files of the crate in the folder `path`, such as `host/proxy`.
    #[must_use]
    pub fn of_crate(path: &str) -> Self {
        let prefix = format!("{path}/src/");
        let sources = files(&["rs"]).into_iter();
        let sources = sources.filter_map(|file| {
            let inner = file.path.strip_prefix(&prefix)?.to_owned();
            Some(SourceFile { path: inner, ..file })
        });
        Self::of_files(&sources.collect::<Vec<_>>())
    }

    /// Reads these files, whose paths are relative to the crate's `src/`.
    #[must_use]
    pub fn of_files(sources: &[SourceFile]) -> Self {
        let mut modules = BTreeMap::new();
        for source in sources.iter().filter(|source| !is_test_file(&source.path)) {
            if source.path == "main.rs" && sources.iter().any(|other| other.path == "lib.rs") {
                continue;
            }
            let tree = source.parse();
            read_module(&mut modules, &source.path, module_path(&source.path), &tree.items);
        }
        let mut graph = Self::default();
        for (path, module) in &modules {
            let found = graph.imports.entry(module.file.clone()).or_default();
            let used = module.uses.iter().filter(|used| used.len() > 1);
            let by_name = module.reexports.intersection(&module.names);
            let by_name: Vec<_> = by_name.map(|name| vec![name.clone()]).collect();
            let imported = module.bindings.iter();
            let imported = imported.filter(|(name, _)| !module.reexports.contains(*name));
            let targets = used.chain(&by_name).chain(imported.map(|(_, target)| target));
            let globs = module.globs.iter();
            let globs = globs.filter_map(|glob| follow(&modules, path, glob, 0)?.into_module());
            let direct = targets.filter_map(|target| follow(&modules, path, target, 0)?.into_item());
            found.extend(direct.chain(globs).filter(|file| *file != module.file));
        }
        graph
    }

    /// Returns the import cycles of at least two files, the largest first.
    #[must_use]
    pub fn cycles(&self) -> Vec<BTreeSet<String>> {
        let reach: BTreeMap<_, _> = self
            .imports
            .keys()
            .map(|file| (file, self.reachable(file)))
            .collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for file in self.imports.keys() {
            if !reach[file].contains(file) || seen.contains(file) {
                continue;
            }
            let mutual = reach[file].iter();
            let mutual = mutual.filter(|other| reach.get(other).is_some_and(|back| back.contains(file)));
            let cycle: BTreeSet<_> = mutual.cloned().collect();
            seen.extend(cycle.iter().cloned());
            cycles.push(cycle);
        }
        cycles.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
        cycles
    }

    /// Returns the imports between files of different top-level modules: from, to.
    pub fn between_folders(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.imports.iter();
        let all = all.flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())));
        all.filter(|(from, to)| top(from) != top(to))
    }

    /// Returns the top-level modules, without the root of the crate.
    #[must_use]
    pub fn modules(&self) -> BTreeSet<&str> {
        let modules = self.imports.keys().map(|file| top(file));
        modules.filter(|module| !ROOTS.contains(module)).collect()
    }

    /// Returns the imports against the order of the modules. `levels` are the modules from the outermost to the
    /// innermost. Modules of one level may import each other, and the root of the crate may import all.
    pub fn breaches(&self, levels: &[&[&str]]) -> impl Iterator<Item = OrderBreach<'_>> {
        let level = |file| levels.iter().position(|level| level.contains(&top(file)));
        self.between_folders()
            .filter(|(from, _)| !ROOTS.contains(&top(from)))
            .filter(move |(from, to)| match (level(from), level(to)) {
                (Some(from), Some(to)) => to < from,
                _ => ROOTS.contains(&top(to)),
            })
            .map(|(from, to)| OrderBreach { from, to })
    }

    fn reachable(&self, start: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut next = vec![start];
        while let Some(file) = next.pop() {
            for imported in self.imports.get(file).into_iter().flatten() {
                if found.insert(imported.clone()) {
                    next.push(imported);
                }
            }
        }
        found
    }
}

/// Returns the top-level module of a file: its first folder, or its name without the ending.
#[must_use]
pub fn top(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// Returns whether a file has test code only, by its path.
#[must_use]
pub fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_test_folder = |folder: &str| folder == "tests" || folder.ends_with("_tests");
    name == "tests.rs" || name.ends_with("_tests.rs") || path.split('/').any(is_test_folder)
}

fn module_path(file: &str) -> ModulePath {
    let inner = file.strip_suffix(".rs").unwrap_or(file);
    let mut path: Vec<_> = inner.split('/').map(str::to_owned).collect();
    if ["lib", "main", "mod"].contains(&path.last().map_or("", String::as_str)) {
        path.pop();
    }
    path
}

/// Target of a path.
enum Target {
    Module(String),
    Item(String),
}

impl Target {
    fn into_item(self) -> Option<String> {
        match self {
            Self::Item(file) => Some(file),
            Self::Module(_) => None,
        }
    }

    fn into_module(self) -> Option<String> {
        match self {
            Self::Module(file) => Some(file),
            Self::Item(_) => None,
        }
    }
}

/// Follows a path from a module; none where it leaves the crate.
fn follow(
    modules: &BTreeMap<ModulePath, Module>,
    from: &ModulePath,
    path: &[String],
    depth: usize,
) -> Option<Target> {
    if depth > MAX_REEXPORTS {
        return None;
    }
    let mut at = from.clone();
    let mut rest = path;
    let mut is_first = true;
    while let Some((segment, after)) = rest.split_first() {
        match segment.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            name => {
                let mut child = at.clone();
                child.push(name.to_owned());
                let module = modules.get(&at)?;
                if modules.contains_key(&child) {
                    at = child;
                } else if module.items.contains(name) {
                    return Some(Target::Item(module.file.clone()));
                } else if let Some(binding) = module.bindings.get(name) {
                    if binding.first().is_some_and(|first| first == name) && binding.len() == 1 {
                        return None;
                    }
                    let whole: Vec<_> = binding.iter().chain(after).cloned().collect();
                    return follow(modules, &at, &whole, depth + 1);
                } else {
                    let mut globs = module.globs.iter();
                    let by_glob = globs.find_map(|glob| {
                        let whole: Vec<_> = glob.iter().chain(rest).cloned().collect();
                        follow(modules, &at, &whole, depth + 1)
                    });
                    return by_glob.or_else(|| {
                        let is_inside = !is_first && !after.is_empty();
                        is_inside.then(|| Target::Item(module.file.clone()))
                    });
                }
            }
        }
        is_first = false;
        rest = after;
    }
    Some(Target::Module(modules.get(&at)?.file.clone()))
}

fn read_module(modules: &mut BTreeMap<ModulePath, Module>, file: &str, path: ModulePath, items: &[Item]) {
    let mut module = Module {
        file: file.to_owned(),
        items: BTreeSet::new(),
        bindings: BTreeMap::new(),
        reexports: BTreeSet::new(),
        globs: Vec::new(),
        uses: BTreeSet::new(),
        names: BTreeSet::new(),
    };
    let live = items.iter().filter(|item| !is_test_only(attributes(item)));
    for item in live {
        match item {
            Item::Use(import) => {
                let is_reexport = !matches!(import.vis, Visibility::Inherited);
                read_use(&mut module, Vec::new(), &import.tree, is_reexport);
            }
            Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    let mut path = path.clone();
                    path.push(inner.ident.to_string());
                    read_module(modules, file, path, items);
                }
            }
            item => {
                if let Some(name) = item_name(item) {
                    module.items.insert(name);
                }
                CodePaths(&mut module).visit_item(item);
            }
        }
    }
    modules.insert(path, module);
}

fn read_use(module: &mut Module, mut prefix: Vec<String>, tree: &UseTree, is_reexport: bool) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            read_use(module, prefix, &path.tree, is_reexport);
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                read_use(module, prefix.clone(), tree, is_reexport);
            }
        }
        UseTree::Glob(_) => module.globs.push(prefix),
        UseTree::Name(name) => {
            let mut bound = name.ident.to_string();
            if bound == "self" {
                bound = prefix.last().cloned().unwrap_or_default();
            } else {
                prefix.push(bound.clone());
            }
            bind(module, bound, prefix, is_reexport);
        }
        UseTree::Rename(rename) => {
            if rename.ident != "self" {
                prefix.push(rename.ident.to_string());
            }
            bind(module, rename.rename.to_string(), prefix, is_reexport);
        }
    }
}

fn bind(module: &mut Module, name: String, path: Vec<String>, is_reexport: bool) {
    if is_reexport {
        module.reexports.insert(name.clone());
    }
    module.bindings.insert(name, path);
}

/// Collects the paths in code.
struct CodePaths<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for CodePaths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if let Some(first) = segments.first() {
            self.0.names.insert(first.clone());
        }
        if path.leading_colon.is_none() && segments.len() > 1 {
            self.0.uses.insert(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, inner: &'ast syn::ItemMod) {
        if !is_test_only(&inner.attrs) {
            visit::visit_item_mod(self, inner);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test_only(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}

/// Returns whether an item is compiled for tests only.
#[must_use]
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|condition| condition == "test")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn item_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
