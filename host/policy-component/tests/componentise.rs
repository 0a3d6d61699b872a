//! Tests of componentising a compiler's output, and of its errors.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use policy_component::{CONTRACT, ComponentError, Layer, NotWebAssembly, componentise, dissect};

/// The smallest module for the contract.
const POLICY: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "conductor:policy/policy@0.1.0#describe") (result i32) i32.const 0)
  (func (export "conductor:policy/policy@0.1.0#configure") (param i32 i32) (result i32) i32.const 0)
  (func (export "conductor:policy/schedule@0.1.0#schedule")
    (param i64 i32 i64 i32 i32 i32 i32 i32 i32) (result i32) i32.const 0)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
  (@custom "producers" "\01\08language\01\04Text\011"))"#;

fn module(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[test]
fn a_module_with_the_contracts_names_needs_no_component_type() {
    let module = module(POLICY);
    let anatomy = dissect(&module).unwrap();
    assert_eq!(
        (anatomy.layer, anatomy.has_component_type),
        (Layer::Module, false)
    );
    let component = componentise(&module).unwrap();
    let anatomy = dissect(&component).unwrap();
    assert_eq!(anatomy.layer, Layer::Component);
    assert!(
        anatomy
            .exports
            .contains(&"conductor:policy/schedule@0.1.0".to_owned()),
        "{anatomy:?}"
    );
    assert!(matches!(
        componentise(&component),
        Err(ComponentError::AlreadyOne)
    ));
}

#[test]
fn additional_exports_of_a_module_are_in_its_component() {
    let parameters =
        r#"(module (func (export "conductor:policy/parameters@0.1.0#parameters") (result i32) i32.const 0)"#;
    let component = componentise(&module(&POLICY.replacen("(module", parameters, 1))).unwrap();
    let exports = dissect(&component).unwrap().exports;
    assert!(
        exports.contains(&"conductor:policy/parameters@0.1.0".to_owned()),
        "{exports:?}"
    );
}

#[test]
fn the_producers_of_a_module_are_found_in_its_component() {
    let component = componentise(&module(POLICY)).unwrap();
    let producers = dissect(&component).unwrap().producers;
    let named = |field: &str, name: &str| {
        let mut producers = producers.iter();
        producers.any(|producer| producer.field == field && producer.name == name)
    };
    assert!(
        named("language", "Text") && named("processed-by", "wit-component"),
        "{producers:?}"
    );
}

#[test]
fn each_refusal_names_its_cause() {
    let wasi = r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)) (import "wasi_snapshot_preview1" "proc_exit" (func)))"#;
    let Err(ComponentError::Wasi { first, more }) = componentise(&module(wasi)) else {
        panic!("taken")
    };
    assert_eq!((first.as_str(), more), ("wasi_snapshot_preview1 fd_write", 1));
    let other = componentise(&module("(module)"));
    assert!(matches!(other, Err(ComponentError::NoComponentType)), "{other:?}");
    let misfit = POLICY.replace(
        "(result i32) i32.const 0)\n  (func (export \"conductor:policy/policy@0.1.0#configure\")",
        ")\n  (func (export \"conductor:policy/policy@0.1.0#configure\")",
    );
    let misfit = componentise(&module(&misfit));
    assert!(matches!(misfit, Err(ComponentError::Encode(_))), "{misfit:?}");
    assert!(componentise(b"text").is_err());
    let whole = module(POLICY);
    let cut = dissect(&whole[..whole.len() - 3]).unwrap_err();
    assert!(matches!(cut, NotWebAssembly::Damaged { .. }), "{cut}");
    for junk in [&b"text"[..], b""] {
        let anatomy = dissect(junk).unwrap_err();
        assert!(matches!(anatomy, NotWebAssembly::Other { .. }), "{anatomy}");
    }
}

#[test]
fn the_contract_is_that_of_the_repository() {
    assert!(CONTRACT.starts_with("package conductor:policy@"));
}
