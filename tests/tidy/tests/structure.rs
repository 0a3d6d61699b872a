//! The structure between the modules of a crate: cycles of imports, one layout for folders.

use std::collections::BTreeSet;

use tidy::modules::ModuleGraph;
use tidy::{SourceFile, files};

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_import_through_a_re_export_is_an_edge_to_the_file_that_defines_the_item() {
    let graph = ModuleGraph::of_files(&[
        file("lib.rs", "mod a; mod b; pub use a::Thing;"),
        file("a/mod.rs", "mod inner; pub(crate) use inner::Thing;"),
        file(
            "a/inner.rs",
            "use crate::b::Other; pub(crate) struct Thing(Other);",
        ),
        file(
            "b.rs",
            "pub(crate) struct Other; fn make() -> crate::Thing { todo() }",
        ),
    ]);
    assert_eq!(graph.imports["a/inner.rs"], set(&["b.rs"]));
    assert_eq!(graph.imports["b.rs"], set(&["a/inner.rs"]));
    assert_eq!(graph.imports["a/mod.rs"], set(&[]), "a re-export is no import");
    assert_eq!(graph.cycles(), [set(&["a/inner.rs", "b.rs"])]);
}

#[test]
fn imports_of_tests_are_no_edges() {
    let graph = ModuleGraph::of_files(&[
        file("lib.rs", "mod a; mod b;"),
        file(
            "a.rs",
            "pub(crate) struct A; #[cfg(test)] mod tests { use crate::b::B; }",
        ),
        file("b.rs", "use crate::a::A; pub(crate) struct B(A);"),
        file("b_tests.rs", "use crate::a::A;"),
    ]);
    assert_eq!(graph.imports["a.rs"], set(&[]));
    assert_eq!(graph.imports["b.rs"], set(&["a.rs"]));
    assert!(graph.cycles().is_empty());
}

#[test]
fn a_path_through_an_imported_module_is_an_edge() {
    let graph = ModuleGraph::of_files(&[
        file("lib.rs", "mod a; mod b;"),
        file("a.rs", "pub(crate) fn run() {}"),
        file("b.rs", "use crate::a; fn go() { a::run(); }"),
    ]);
    assert_eq!(graph.imports["b.rs"], set(&["a.rs"]));
}

#[test]
fn a_module_with_files_of_its_own_is_a_folder_with_mod_rs() {
    let sources = files(&["rs"]);
    let paths: BTreeSet<_> = sources.iter().map(|file| file.path.as_str()).collect();
    let beside = paths.iter().filter(|path| {
        let Some(stem) = path.strip_suffix(".rs") else {
            return false;
        };
        let folder = format!("{stem}/");
        let is_module = path.contains("/src/") && !path.contains("/src/bin/");
        is_module
            && paths
                .range(folder.as_str()..)
                .next()
                .is_some_and(|next| next.starts_with(&folder))
    });
    let beside: Vec<_> = beside.collect();
    assert!(
        beside.is_empty(),
        "move these to `mod.rs` in their folders: {beside:#?}"
    );
}

/// Most files of an import cycle.
const MAX_CYCLE: usize = 3;

/// Crates with a larger cycle: its files, and the reason.
const LARGER_CYCLES: &[(&str, usize, &str)] = &[
    (
        "kv-index",
        5,
        "`IndexCore` and the files with its methods, by table",
    ),
    (
        "proxy",
        5,
        "the admission controller with its permits and queue entries, which hold it",
    ),
    (
        "tokenize",
        5,
        "`Model` and the probes that run it while it is built",
    ),
];

#[test]
fn no_import_cycle_is_larger_than_3_files() {
    assert!(LARGER_CYCLES.iter().all(|(.., reason)| reason.len() > 20));
    let folders = std::fs::read_dir(tidy::root().join("host")).expect("the crates are there");
    let mut crates = 0;
    let mut problems = Vec::new();
    for folder in folders {
        let path = folder.expect("a readable folder").path();
        if !path.join("Cargo.toml").exists() {
            continue;
        }
        crates += 1;
        let name = path
            .file_name()
            .expect("a named folder")
            .to_string_lossy()
            .into_owned();
        let cycles = ModuleGraph::of_crate(&format!("host/{name}")).cycles();
        let largest = cycles.first().map_or(0, BTreeSet::len);
        let listed = LARGER_CYCLES.iter().find(|(listed, ..)| *listed == name);
        let most = listed.map_or(MAX_CYCLE, |(_, most, _)| *most);
        if largest > most {
            problems.push(format!(
                "{name}: a cycle of {largest} files, at most {most}: {:?}",
                cycles[0]
            ));
        } else if listed.is_some() && largest < most {
            problems.push(format!(
                "{name}: its largest cycle has {largest} files, lower the exception"
            ));
        }
    }
    assert!(crates > 10, "{crates} crates were found");
    assert!(problems.is_empty(), "cut these imports: {problems:#?}");
}
