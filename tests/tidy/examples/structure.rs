//! Prints the structure of the crates of `host/`: lines and files, the sizes of their import cycles, and the files of
//! the largest. `cargo run -p tidy --example structure [CRATE]` prints the imports between the modules of one crate and
//! inside its cycles too.

use std::collections::BTreeMap;

use tidy::files;
use tidy::idioms::per_thousand;
use tidy::modules::{ModuleGraph, top};
use tidy::prose::prose;
use tidy::types::{TypeKind, TypeShape, by_crate};

fn main() {
    let only = std::env::args().nth(1);
    let mut lines: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in files(&["rs"]) {
        let mut parts = file.path.splitn(3, '/');
        let crate_path = match (parts.next(), parts.next()) {
            (Some("host"), Some(name)) => format!("host/{name}"),
            _ => continue,
        };
        let count = lines.entry(crate_path).or_default();
        count.0 += 1;
        count.1 += file.text.lines().count();
    }
    let (types, prose) = (by_crate("host/"), prose());
    let (idioms, words) = per_thousand(prose.iter());
    println!("prose of the repository: {words} words, {idioms:.1} idioms per 1,000");
    for (path, (count, total)) in lines {
        if only.as_ref().is_some_and(|only| path != format!("host/{only}")) {
            continue;
        }
        let graph = ModuleGraph::of_crate(&path);
        let cycles = graph.cycles();
        let sizes: Vec<_> = cycles.iter().map(|cycle| cycle.len()).collect();
        println!("{path}: {total} lines in {count} files, import cycles of {sizes:?} files");
        println!("    {}", describe(types.get(&path).map_or(&[], Vec::as_slice)));
        let (idioms, words) = per_thousand(
            prose
                .iter()
                .filter(|line| line.file.starts_with(&format!("{path}/"))),
        );
        println!("    prose: {words} words, {idioms:.1} idioms per 1,000");
        if only.is_some() {
            let mut between: BTreeMap<(&str, &str), usize> = BTreeMap::new();
            for (from, to) in graph.between_folders() {
                *between.entry((top(from), top(to))).or_default() += 1;
            }
            println!("\nimports between top-level modules:");
            for ((from, to), count) in between {
                println!("  {from} -> {to}: {count}");
            }
            for cycle in &cycles {
                println!("\ncycle of {} files:", cycle.len());
                for file in cycle {
                    let inside = graph.imports[file].intersection(cycle);
                    let inside: Vec<_> = inside.map(String::as_str).collect();
                    println!("  {file} -> {}", inside.join(", "));
                }
            }
        }
    }
}

/// Describes the shapes of a crate's types.
fn describe(types: &[TypeShape]) -> String {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for shape in types {
        *names.entry(&shape.name).or_default() += 1;
    }
    let again = names.values().filter(|count| **count > 1).count();
    let one_word = types.iter().filter(|shape| is_one_word(&shape.name)).count();
    let wide = |kind, most| {
        let wide = types
            .iter()
            .filter(|shape| shape.kind == kind && shape.members > most);
        let wide: Vec<_> = wide
            .map(|shape| format!("{} {}", shape.name, shape.members))
            .collect();
        wide.join(", ")
    };
    format!(
        "types: {}, of one word {one_word}, names defined again {again}; structs over 10 fields: {}; traits over 6 methods: {}",
        types.len(),
        wide(TypeKind::Struct, 10),
        wide(TypeKind::Trait, 6),
    )
}

fn is_one_word(name: &str) -> bool {
    name.chars().skip(1).all(|c| !c.is_ascii_uppercase())
}
