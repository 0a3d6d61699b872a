//! Policies that a child of the router compiles: what that does not change, and what a hostile component costs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use policy_runtime::child::{ChildCompiler, ChildError, ChildLimits};
use policy_runtime::{CodeCache, EngineLimits, LoadError, PolicyEngine, PolicySettings};

fn engine(limits: ChildLimits) -> PolicyEngine {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_conductor"));
    let engine = PolicyEngine::new(EngineLimits {
        instances_per_policy: 2,
        instances: 8,
        memory_bytes: 32 << 20,
    });
    engine
        .unwrap()
        .with_child(ChildCompiler::of_program(program, limits))
}

fn load(engine: &PolicyEngine, bytes: &[u8]) -> Result<(), LoadError> {
    let settings = PolicySettings::default();
    engine.load("p", bytes, &settings, Arc::default()).map(drop)
}

fn builtin() -> &'static [u8] {
    conductor::builtin::find("cache-aware").unwrap().bytes
}

fn number(mut value: usize, to: &mut Vec<u8>) {
    while value > 0x7f {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn section(id: u8, content: &[u8], to: &mut Vec<u8>) {
    to.push(id);
    number(content.len(), to);
    to.extend_from_slice(content);
}

/// Returns a function that sets all its locals in loops inside of each other: for the compiler each is a value of each
/// loop.
fn costly(locals: usize, loops: usize) -> Vec<u8> {
    let mut body = vec![1];
    number(locals, &mut body);
    body.push(0x7f); // of type i32
    body.extend([0x03, 0x40].repeat(loops)); // loop
    for local in 0..locals {
        body.push(0x20); // local.get
        number(local, &mut body);
        body.extend([0x41, 1, 0x6a, 0x21]); // i32.const 1, i32.add, local.set
        number(local, &mut body);
    }
    body.extend([0x20, 0, 0x0d, 0, 0x0b].repeat(loops)); // local.get 0, br_if 0, end
    body.push(0x0b);
    body
}

/// Returns a component of such functions, well within every bound.
fn hostile(functions: usize, (locals, loops): (usize, usize)) -> Vec<u8> {
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    section(1, &[1, 0x60, 0, 0], &mut module);
    let mut of_type_0 = Vec::new();
    number(functions, &mut of_type_0);
    of_type_0.resize(of_type_0.len() + functions, 0);
    section(3, &of_type_0, &mut module);
    let (mut code, body) = (Vec::new(), costly(locals, loops));
    number(functions, &mut code);
    for _ in 0..functions {
        number(body.len(), &mut code);
        code.extend_from_slice(&body);
    }
    section(10, &code, &mut module);
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    section(1, &module, &mut component);
    component
}

#[test]
fn a_child_compiles_to_the_code_that_this_process_would_and_it_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    let cached = || engine(ChildLimits::default()).with_cache(CodeCache::open(&path).unwrap());
    let first = cached();
    load(&first, builtin()).unwrap();
    assert_eq!(first.child_results().unwrap(), [("done", 1)]);
    let second = cached();
    load(&second, builtin()).unwrap();
    assert_eq!(
        (
            second.child_results().unwrap(),
            second.cache_stats().unwrap().taken
        ),
        (vec![], 1)
    );
    // The header of the code has the settings: an engine of this process takes it too.
    let here = PolicyEngine::new(EngineLimits::default()).unwrap();
    let here = here.with_cache(CodeCache::open(&path).unwrap());
    load(&here, builtin()).unwrap();
    assert_eq!(here.cache_stats().unwrap().taken, 1);
}

#[test]
fn a_refusal_by_the_compiler_is_reported_in_its_words() {
    // A function of a type that is not there.
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    section(3, &[1, 7], &mut module);
    section(10, &[1, 2, 0, 0x0b], &mut module);
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    section(1, &module, &mut component);
    let engine = engine(ChildLimits::default());
    let refused = load(&engine, &component).unwrap_err();
    let LoadError::Malformed { source, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert!(
        source.to_string().contains("type index out of bounds"),
        "{source}"
    );
    assert_eq!(engine.child_results().unwrap(), [("refused", 1)]);
}

#[test]
fn a_component_that_takes_too_much_memory_ends_with_its_child() {
    let engine = engine(ChildLimits {
        memory_bytes: 512 << 20,
        ..ChildLimits::default()
    });
    let refused = load(&engine, &hostile(16, (5_000, 400))).unwrap_err();
    assert!(
        matches!(refused, LoadError::Compiler(ChildError::Memory { .. })),
        "{refused}"
    );
    load(&engine, builtin()).expect("the next policy has a child of its own");
}

#[test]
fn a_component_that_takes_too_long_ends_with_its_child() {
    let one_second = Duration::from_secs(1);
    let costly = hostile(64, (2_000, 100));
    let engine_of = |cpu, time| {
        engine(ChildLimits {
            cpu,
            time,
            ..ChildLimits::default()
        })
    };
    let long = Duration::from_secs(600);
    let refused = load(&engine_of(one_second, long), &costly).unwrap_err();
    assert!(
        matches!(refused, LoadError::Compiler(ChildError::Cpu { .. })),
        "{refused}"
    );
    let refused = load(&engine_of(long, Duration::from_millis(50)), &costly).unwrap_err();
    assert!(
        matches!(refused, LoadError::Compiler(ChildError::Time { .. })),
        "{refused}"
    );
}
