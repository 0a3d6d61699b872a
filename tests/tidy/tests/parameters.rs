//! The parameters of functions: none is a tuple.

use std::collections::BTreeMap;

use tidy::SourceFile;
use tidy::parameters::{of_file, tuple_parameters};

/// Tuple parameters that are left, by file, with the reason. Numbers may only fall.
const TUPLES_LEFT: &[(&str, usize, &str)] = &[
    (
        "host/conductor/src/app/meters.rs",
        1,
        "to be divided with the composition root",
    ),
    (
        "host/conductor/src/app/mod.rs",
        2,
        "to be divided with the composition root",
    ),
    (
        "host/conductor/src/app/threads.rs",
        2,
        "to be divided with the composition root",
    ),
    (
        "host/conductor/src/certificates.rs",
        1,
        "to be divided with the composition root",
    ),
    (
        "host/conductor/src/external_resources.rs",
        1,
        "to be divided with the composition root",
    ),
    (
        "host/conductor/src/reload/problem.rs",
        1,
        "to be divided with the composition root",
    ),
    (
        "host/conductor/src/reload/resources.rs",
        1,
        "to be divided with the composition root",
    ),
    (
        "host/proxy/src/edge/http2/traffic.rs",
        1,
        "to be divided with its folder",
    ),
    (
        "host/proxy/src/fleet/catalog/news.rs",
        1,
        "to be divided with its folder",
    ),
    (
        "host/proxy/src/fleet/health/mod.rs",
        1,
        "to be divided with its folder",
    ),
    (
        "host/proxy/src/fleet/health/state/mod.rs",
        3,
        "to be divided with its folder",
    ),
    (
        "host/proxy/src/tokens/local.rs",
        1,
        "to be divided with its folder",
    ),
    (
        "host/proxy/src/tokens/threads.rs",
        1,
        "to be divided with its folder",
    ),
    (
        "policy-sdk/src/params/mod.rs",
        1,
        "public to authors of policies: a pair of a value and its name",
    ),
];

#[test]
fn no_parameter_is_a_tuple() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for parameter in tuple_parameters() {
        let place = format!("{}:{}: {}", parameter.file, parameter.line, parameter.function);
        found.entry(parameter.file).or_default().push(place);
    }
    let mut problems = Vec::new();
    for (file, places) in &found {
        let listed = TUPLES_LEFT.iter().find(|(listed, ..)| listed == file);
        if places.len() > listed.map_or(0, |(_, most, _)| *most) {
            problems.extend(places.iter().cloned());
        }
    }
    for (file, most, reason) in TUPLES_LEFT {
        if found.get(*file).map_or(0, Vec::len) < *most {
            problems.push(format!("{file}: lower the exception"));
        }
        if reason.len() < 20 {
            problems.push(format!("{file}: give the exception a reason"));
        }
    }
    assert!(
        problems.is_empty(),
        "name the members of these parameters: a struct, or a parameter for each: {problems:#?}"
    );
}

#[test]
fn a_tuple_parameter_is_found_behind_a_pattern_a_name_or_a_reference() {
    let text = "
        fn pattern((a, b): (u8, u8)) {}
        fn name(pair: (u8, u8)) {}
        fn reference(pair: &(u8, u8)) {}
        impl Owner { fn method(&self, pair: (u8, u8)) {} }
        trait Seam { fn method(&self, pair: (u8, u8)); }
        fn unit(of: ()) {}
        fn closure(list: &[(u8, u8)]) { list.iter().map(|(a, b)| a + b); }
        impl Foreign for Owner { fn method(&self, pair: (u8, u8)) {} }
        #[cfg(test)] mod tests { fn helper(pair: (u8, u8)) {} }
    ";
    let found = of_file(&SourceFile {
        path: "host/some/src/lib.rs".to_owned(),
        text: text.to_owned(),
    });
    let functions: Vec<_> = found.iter().map(|found| found.function.as_str()).collect();
    assert_eq!(functions, ["pattern", "name", "reference", "method", "method"]);
}
