//! The parameters of functions: none is a tuple.

use tidy::SourceFile;
use tidy::parameters::{TupleParameter, of_file, tuple_parameters};

/// Tuple parameters that are left, by path prefix, with the reason. Numbers may only fall.
const TUPLES_LEFT: &[(&str, usize, &str)] = &[(
    "policy-sdk/",
    1,
    "public to authors of policies: a pair of a value and its name",
)];

#[test]
fn no_parameter_is_a_tuple() {
    let mut sums = vec![0; TUPLES_LEFT.len()];
    let mut problems = Vec::new();
    for TupleParameter { file, line, function } in tuple_parameters() {
        match TUPLES_LEFT
            .iter()
            .position(|(prefix, ..)| file.starts_with(prefix))
        {
            Some(at) => sums[at] += 1,
            None => problems.push(format!("{file}:{line}: {function}")),
        }
    }
    for ((prefix, most, reason), sum) in TUPLES_LEFT.iter().zip(sums) {
        assert!(reason.len() > 20, "give the exception {prefix} a reason");
        if sum > *most {
            problems.push(format!("{prefix}: {sum}, and {most} were left"));
        } else if sum == 0 {
            problems.push(format!("{prefix}: none is left, remove the entry"));
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
