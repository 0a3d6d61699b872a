//! Tests of refused components: the error names the cause and the cure.

use std::sync::Arc;

use crate::components::{component, component_for, contract, engine, load, module};
use policy_runtime::{LoadError, PolicySettings, ProbeError};
use routing::FaultKind;

const LEAST: &str = include_str!("../wat/least.wat");

/// Checks that loading these bytes fails with a message that has every one of `parts`.
#[track_caller]
fn check(bytes: &[u8], parts: &[&str]) {
    let error = load(&engine(), bytes).unwrap_err();
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    println!("{message}");
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
}

/// Checks the same for `least.wat` under a changed contract.
#[track_caller]
fn check_changed(wit: impl Fn(String) -> String, wat: impl Fn(String) -> String, parts: &[&str]) {
    check(&component_for(&wit(contract()), &wat(module(LEAST))), parts);
}

fn keep(text: String) -> String {
    text
}

#[test]
fn a_file_that_is_no_component_is_reported_with_its_kind() {
    check(b"", &["read 0 bytes", "is it the right file?"]);
    check(b"#!/bin/sh\necho hello", &["do not begin like WebAssembly"]);
    check(b" (component)", &["WebAssembly text", "wasm-tools parse"]);
    check(b"\0asm\x02\0\0\0", &["version [2, 0, 0, 0]"]);
    let module = wat::parse_str(module(LEAST)).unwrap();
    check(&module, &["core module", "conductor policy build"]);
}

#[test]
fn a_precompiled_component_is_refused_unread() {
    let compiled = wasmtime::Engine::default().precompile_component(&component(LEAST));
    check(
        &compiled.unwrap(),
        &["precompiled `.cwasm`", "give the `.wasm` component"],
    );
}

#[test]
fn a_component_of_more_than_64_mib_is_refused_by_its_size() {
    let mut bytes = component(LEAST);
    bytes.resize((64 << 20) + 1, 0);
    check(&bytes, &["67108865 bytes", "the maximum is 67108864"]);
}

#[test]
fn a_component_that_would_cost_too_much_to_compile_is_refused_before() {
    let functions = "(func)".repeat(100_001);
    let bytes = wat::parse_str(format!("(component (core module {functions}))")).unwrap();
    check(
        &bytes,
        &[
            "compile the component",
            "100001 functions",
            "the most is 100000",
            "`functions`",
        ],
    );
}

#[test]
fn a_truncated_component_may_still_be_on_its_way() {
    let bytes = component(LEAST);
    for length in [bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        check(&bytes[..length], &["was still being written"]);
    }
}

#[test]
fn a_missing_export_is_named() {
    check_changed(
        |wit| wit.replace("  export schedule;\n", ""),
        |wat| wat.replace("(export \"conductor:policy/schedule@0.1.0#schedule\")", ""),
        &["does not export `conductor:policy/schedule@0.1.0`"],
    );
}

#[test]
fn a_misspelt_export_is_recognised() {
    check_changed(
        |wit| {
            wit.replace("interface schedule", "interface shedule")
                .replace("export schedule", "export shedule")
        },
        |wat| wat.replace("policy/schedule@", "policy/shedule@"),
        &[
            "does not export `conductor:policy/schedule@0.1.0`",
            "(`conductor:policy/shedule@0.1.0` is close)",
        ],
    );
    check_changed(
        |wit| wit.replace("configure: func", "configur: func"),
        |wat| wat.replace("#configure", "#configur"),
        &[
            "does not export `configure` of `conductor:policy/policy@0.1.0`",
            "(`configur` is close)",
        ],
    );
}

#[test]
fn another_version_is_named_once() {
    check_changed(
        |wit| wit.replace("policy@0.1.0", "policy@0.2.0"),
        |wat| wat.replace("@0.1.0", "@0.2.0"),
        &["it needs conductor:policy@0.2.0, this router offers 0.1.x"],
    );
}

#[test]
fn a_later_patch_version_is_taken_unless_it_needs_a_new_function() {
    let later = contract().replace("policy@0.1.0", "policy@0.1.7");
    let module = module(LEAST).replace("@0.1.0", "@0.1.7");
    load(&engine(), &component_for(&later, &module)).unwrap();
    let newer = later.replace(
        "random: func() -> u64;",
        "random: func() -> u64;\n  roll: func() -> u32;",
    );
    let import = "(module (import \"conductor:policy/host@0.1.7\" \"roll\" (func (result i32)))";
    check(
        &component_for(&newer, &module.replacen("(module", import, 1)),
        &["`roll` of `conductor:policy/host@0.1.7`, which this router (version 0.1.0) does not have"],
    );
}

#[test]
fn wasi_is_refused_with_the_cure() {
    let clocks = "package wasi:clocks@0.2.0 { interface monotonic-clock { now: func() -> u64; } }";
    let import = "(module (import \"wasi:clocks/monotonic-clock@0.2.0\" \"now\" (func (result i64)))";
    check_changed(
        |wit| {
            let world = "world scheduler {\n  import wasi:clocks/monotonic-clock@0.2.0;";
            format!("{}\n{clocks}", wit.replace("world scheduler {", world))
        },
        |wat| wat.replacen("(module", import, 1),
        &[
            "`wasi:clocks/monotonic-clock@0.2.0`",
            "policies get no WASI",
            "--stub-wasi",
        ],
    );
}

#[test]
fn an_import_that_no_one_offers_is_named() {
    check_changed(
        |wit| {
            wit.replace(
                "interface host {",
                "interface power { watts: func() -> f64; }\ninterface host {",
            )
            .replace("  import host;", "  import host;\n  import power;")
        },
        |wat| {
            let import = "(module (import \"conductor:policy/power@0.1.0\" \"watts\" (func (result f64)))";
            wat.replacen("(module", import, 1)
        },
        &["it imports `conductor:policy/power@0.1.0`, which no policy may import"],
    );
}

#[test]
fn the_right_names_with_other_types_are_refused() {
    check_changed(
        |wit| wit.replace("    prefill: option<u32>,\n", ""),
        keep,
        &[
            "its names fit, its types do not",
            "expected record of 3 fields, found 2 fields",
        ],
    );
}

#[test]
fn harmless_extra_exports_are_ignored() {
    let wit = contract().replace("  export schedule;", "  export schedule;\n  export init: func();");
    let module = module(LEAST).replacen("(module", "(module (func (export \"init\"))", 1);
    load(&engine(), &component_for(&wit, &module)).unwrap();
}

#[test]
fn an_unknown_feature_lists_the_known_ones() {
    let bytes = component_for(
        &contract(),
        &module(LEAST).replace("load.requests", "load.requestz"),
    );
    check(
        &bytes,
        &[
            "unknown feature `load.requestz`",
            "load.requests, ",
            "ends in `?`",
        ],
    );
}

#[test]
fn refused_params_come_with_the_policys_own_words() {
    let refuses = component(include_str!("../wat/refuses.wat"));
    check(&refuses, &["refuses its `params`: weight must be a number"]);
}

#[test]
fn more_memory_than_the_limit_is_refused_at_load() {
    let hungry = module(LEAST).replace(
        "(memory (export \"memory\") 2)",
        "(memory (export \"memory\") 300)",
    );
    check(
        &component_for(&contract(), &hungry),
        &[
            "with 16777216 bytes of memory",
            "minimum size of 300 pages exceeds",
        ],
    );
    let settings = PolicySettings {
        memory_bytes: 1 << 30,
        ..PolicySettings::default()
    };
    let error = engine().load("tested", &component(LEAST), &settings, Arc::default());
    assert!(matches!(error, Err(LoadError::Memory { .. })));
}

#[test]
fn a_policy_that_indexes_the_empty_list_of_an_unknown_prompt_is_not_loaded() {
    let error = load(&engine(), &component(include_str!("../wat/indexes.wat"))).unwrap_err();
    let named = "synthetic candidates and a prompt whose tokens are unknown";
    assert!(error.to_string().contains(named), "{error}");
    let LoadError::Probe {
        candidates, source, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((candidates, source.kind()), (16, FaultKind::Trap));
    assert!(source.what().contains("index_out_of_bounds"), "{source}");
}

#[test]
fn a_policy_that_fails_its_trial_is_not_loaded() {
    let trial = |from: &str, to: &str| {
        let case = include_str!("../wat/behaviours.wat").replace(from, to);
        match load(&engine(), &component(&case)) {
            Err(LoadError::Probe {
                candidates, source, ..
            }) => (candidates, source),
            other => panic!("{other:?}"),
        }
    };
    let (candidates, source) = trial("i64.const 1001", "i64.const 2");
    assert_eq!(candidates, 16);
    assert!(matches!(source, ProbeError::Failed(failure) if failure.kind == FaultKind::Trap));
    let (_, source) = trial("i64.const 1002", "i64.const 1");
    assert!(matches!(source, ProbeError::Failed(failure) if failure.kind == FaultKind::Deadline));
    let (candidates, source) = trial("i64.const 1007", "i64.const 1");
    assert_eq!(candidates, 1);
    assert!(matches!(source, ProbeError::Nonsense(_)));
}
