//! Conversion of a core module to a component.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use thiserror::Error;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::CONTRACT;
use crate::anatomy::{Anatomy, Layer, NotWebAssembly, dissect};

/// Export suffixes of a module for the contract, at least one of them, handwritten or from generated bindings.
const DECIDING: [&str; 2] = ["#schedule", "#score"];
/// Prefix of the contract's own exports.
const OURS: &str = "conductor:policy/";

/// A core module cannot be converted to a component.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ComponentError {
    /// Not WebAssembly.
    #[error(transparent)]
    Unreadable(#[from] NotWebAssembly),
    /// The input is a component already.
    #[error("make a component of a component: it is one already")]
    AlreadyOne,
    /// The module imports the system interface.
    #[error(
        "make a component of a core module that imports `{first}`{}: policies get no WASI; build for a target without \
         it (Rust: wasm32-unknown-unknown; C, C++ and Zig: wasm32-freestanding; others: with stubs, `--stub-wasi`)",
        and_more(*.more)
    )]
    Wasi {
        /// The first such import.
        first: String,
        /// Number of further ones.
        more: usize,
    },
    /// The module has no type information.
    #[error(
        "make a component of a core module that has neither a component type nor exports \
         `{OURS}schedule@0.1.0#schedule` (or `score`): generate bindings from `wit/policy.wit` (wit-bindgen), or export those names"
    )]
    NoComponentType,
    /// The contract's text cannot be parsed or embedded.
    #[error("embed `wit/policy.wit` into the core module")]
    Embed(#[source] Box<dyn StdError + Send + Sync>),
    /// The imports and exports do not match the component type.
    #[error("make a component of the core module: its imports and exports do not fit its component type")]
    Encode(#[source] Box<dyn StdError + Send + Sync>),
}

/// Wraps a core module and validates the result. A module with a component type (as wit-bindgen writes it) gets that
/// type. A module that exports the contract's names without a type gets the contract's world. Unused imports are left
/// out.
///
/// # Errors
/// [`ComponentError`] with the cause and the fix.
pub fn componentise(module: &[u8]) -> Result<Vec<u8>, ComponentError> {
    let anatomy = dissect(module)?;
    if anatomy.layer == Layer::Component {
        return Err(ComponentError::AlreadyOne);
    }
    refuse_wasi(&anatomy)?;
    if anatomy.has_component_type {
        return encode(module);
    }
    let decides = |name: &&str| DECIDING.iter().any(|function| name.ends_with(function));
    let ours = || ours(&anatomy);
    if ours().any(|name| decides(&name)) {
        encode(&embed(module, &world(ours()))?)
    } else {
        Err(ComponentError::NoComponentType)
    }
}

fn refuse_wasi(anatomy: &Anatomy) -> Result<(), ComponentError> {
    let is_wasi = |name: &&String| name.starts_with("wasi_") || name.starts_with("wasi:");
    let mut wasi = anatomy.imports.iter().filter(is_wasi);
    match wasi.next() {
        None => Ok(()),
        Some(first) => Err(ComponentError::Wasi {
            first: first.clone(),
            more: wasi.count(),
        }),
    }
}

fn encode(module: &[u8]) -> Result<Vec<u8>, ComponentError> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| ComponentError::Encode(error.into()))
}

/// Returns its exports of the contract.
fn ours(anatomy: &Anatomy) -> impl Iterator<Item = &str> {
    let names = anatomy.exports.iter().map(String::as_str);
    names.filter(|name| name.starts_with(OURS))
}

/// Returns the world of a module that exports these functions of the contract's interfaces.
fn world<'a>(functions: impl Iterator<Item = &'a str>) -> String {
    let interfaces: BTreeSet<&str> = functions
        .filter_map(|function| Some(function.split_once('#')?.0))
        .collect();
    let exports: String = interfaces
        .iter()
        .map(|interface| format!("export {interface}; "))
        .collect();
    format!("package conductor:built; world built {{ include {OURS}imports@0.1.0; {exports}}}")
}

/// Returns the module with the component type of `world`.
fn embed(module: &[u8], world: &str) -> Result<Vec<u8>, ComponentError> {
    let mut resolve = Resolve::default();
    let mut bytes = module.to_owned();
    resolve
        .push_source("policy.wit", CONTRACT)
        .and_then(|_| resolve.push_source("world.wit", world))
        .and_then(|package| resolve.select_world(&[package], None))
        .and_then(|world| embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8))
        .map_err(|error| ComponentError::Embed(error.into()))?;
    Ok(bytes)
}

fn and_more(more: usize) -> String {
    match more {
        0 => String::new(),
        more => format!(" and {more} more of WASI"),
    }
}
