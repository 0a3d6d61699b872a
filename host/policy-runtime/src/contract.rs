//! Contract check: compares a component's imports and exports with `wit/policy.wit` before linking. wasmtime's own
//! messages contain neither the cause nor the fix.

use std::fmt;

use thiserror::Error;
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

/// Package of the contract.
const PACKAGE: &str = "conductor:policy";
/// The version this host implements. It accepts every `0.1.x` whose functions it has.
pub(crate) const VERSION: &str = "0.1.0";
/// Prefix of every compatible version.
const TRACK: &str = "0.1.";
/// Most differences in one message.
const MOST_LISTED: usize = 6;

/// An interface and its functions.
pub(crate) type ContractInterface = (&'static str, &'static [&'static str]);

/// Required exports of every policy. A test compares this and the other lists with the WIT.
pub(crate) const REQUIRED: &[ContractInterface] = &[("policy", &["configure", "describe"])];

/// Alternatives: at least one is required. If none is exported, the first is reported as missing.
pub(crate) const ONE_OF: &[ContractInterface] = &[("schedule", &["schedule"]), ("score", &["score"])];

/// Optional exports.
pub(crate) const OPTIONAL: &[ContractInterface] = &[
    ("events", &["handle", "subscribe"]),
    ("parameters", &["parameters"]),
    ("tick", &["tick"]),
];

/// Available imports.
pub(crate) const OFFERED: &[ContractInterface] = &[
    ("host", &["log", "now-us", "random"]),
    ("index", &["holders", "matched"]),
    ("inspect", &["header", "model", "path"]),
    ("queue", &["ahead", "wait-for"]),
    ("sessions", &["forget", "recall", "remember"]),
    ("state", &["add", "delete", "get", "set"]),
    ("types", &[]),
    ("workers", &["describe"]),
];

/// A difference between a component and the contract.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Built for another version.
    #[error("it needs {PACKAGE}@{needed}, this router offers {TRACK}x; rebuild it against this router's WIT")]
    OtherVersion {
        /// The version in its names.
        needed: String,
    },
    /// An export is missing.
    #[error("it does not export `{missing}`{}", hint(nearest))]
    MissingExport {
        /// The interface, or the function of one.
        missing: String,
        /// An export with a similar name.
        nearest: Option<String>,
    },
    /// The component imports the system interface.
    #[error(
        "it imports {}: policies get no WASI; build with stubs (`--stub-wasi`, or for Rust the target \
         wasm32-unknown-unknown)", and_more(first, *more)
    )]
    Wasi {
        /// The first such import.
        first: String,
        /// Number of further ones.
        more: usize,
    },
    /// The component imports something unknown.
    #[error("it imports `{name}`, which no policy may import{}", hint(nearest))]
    UnknownImport {
        /// The import's name.
        name: String,
        /// An available import with a similar name.
        nearest: Option<String>,
    },
    /// The component imports a function of a later version.
    #[error("it imports `{function}` of `{interface}`, which this router (version {VERSION}) does not have")]
    UnknownFunction {
        /// The interface as imported.
        interface: String,
        /// The function.
        function: String,
    },
}

/// All differences of a component; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatches(Vec<Mismatch>);

impl Mismatches {
    /// Returns the differences.
    #[must_use]
    pub fn as_slice(&self) -> &[Mismatch] {
        &self.0
    }
}

impl fmt::Display for Mismatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, mismatch) in self.0.iter().take(MOST_LISTED).enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            write!(f, "{separator}{mismatch}")?;
        }
        match self.0.len().saturating_sub(MOST_LISTED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Compares a component with the contract.
pub(crate) fn compare(engine: &Engine, component: &Component) -> Result<(), Mismatches> {
    let component = component.component_type();
    let imports: Vec<_> = component
        .imports(engine)
        .map(|(name, import)| FoundInterface::new(engine, name, &import.ty))
        .collect();
    let exports: Vec<_> = component
        .exports(engine)
        .map(|(name, export)| FoundInterface::new(engine, name, &export.ty))
        .collect();
    let mut mismatches = other_versions(imports.iter().chain(&exports));
    if mismatches.is_empty() {
        missing_exports(&exports, &mut mismatches);
    }
    unknown_imports(&imports, &mut mismatches);
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(Mismatches(mismatches))
    }
}

/// An import or export of a component.
pub(crate) struct FoundInterface {
    pub(crate) name: String,
    /// Functions; empty unless it is an interface.
    pub(crate) functions: Vec<String>,
}

impl FoundInterface {
    pub(crate) fn new(engine: &Engine, name: &str, item: &ComponentItem) -> Self {
        let functions = match item {
            ComponentItem::ComponentInstance(instance) => instance
                .exports(engine)
                .filter(|(_, export)| matches!(export.ty, ComponentItem::ComponentFunc(_)))
                .map(|(function, _)| function.to_owned())
                .collect(),
            _ => vec![],
        };
        Self {
            name: name.to_owned(),
            functions,
        }
    }

    /// Returns interface and version if it belongs to the contract's package.
    fn ours(&self) -> Option<(&str, &str)> {
        let rest = self.name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
        Some(rest.split_once('@').unwrap_or((rest, "(no version)")))
    }

    fn is(&self, interface: &str) -> bool {
        self.ours()
            .is_some_and(|(name, version)| name == interface && version.starts_with(TRACK))
    }
}

fn other_versions<'a>(found: impl Iterator<Item = &'a FoundInterface>) -> Vec<Mismatch> {
    let mut versions: Vec<_> = found
        .filter_map(FoundInterface::ours)
        .map(|(_, version)| version)
        .filter(|version| !version.starts_with(TRACK))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions
        .into_iter()
        .map(|version| Mismatch::OtherVersion {
            needed: version.to_owned(),
        })
        .collect()
}

fn missing_exports(exports: &[FoundInterface], mismatches: &mut Vec<Mismatch>) {
    let present = |interface: &ContractInterface| exports.iter().any(|export| export.is(interface.0));
    let one = ONE_OF.iter().find(|interface| present(interface));
    let chosen = one.or(ONE_OF.first());
    let others = ONE_OF
        .iter()
        .chain(OPTIONAL)
        .filter(|interface| present(interface));
    let mut seen: Vec<&str> = vec![];
    for interface in REQUIRED.iter().chain(chosen).chain(others) {
        if !seen.contains(&interface.0) {
            seen.push(interface.0);
            missing_of(interface, exports, mismatches);
        }
    }
}

fn missing_of(
    (interface, functions): &ContractInterface,
    exports: &[FoundInterface],
    mismatches: &mut Vec<Mismatch>,
) {
    let name = full_name(interface);
    let Some(export) = exports.iter().find(|export| export.is(interface)) else {
        mismatches.push(Mismatch::MissingExport {
            nearest: nearest(&name, exports.iter().map(|export| export.name.as_str())),
            missing: name,
        });
        return;
    };
    let missing = functions
        .iter()
        .filter(|function| !export.functions.iter().any(|present| present == *function));
    mismatches.extend(missing.map(|function| Mismatch::MissingExport {
        missing: format!("{function}` of `{}", export.name),
        nearest: nearest(function, export.functions.iter().map(String::as_str)),
    }));
}

/// Returns `true` if a component exports an interface of the contract.
pub(crate) fn exports(engine: &Engine, component: &Component, interface: &str) -> bool {
    let component = component.component_type();
    component
        .exports(engine)
        .any(|(name, export)| FoundInterface::new(engine, name, &export.ty).is(interface))
}

fn unknown_imports(imports: &[FoundInterface], mismatches: &mut Vec<Mismatch>) {
    let (wasi, others): (Vec<_>, Vec<_>) = imports
        .iter()
        .partition(|import| import.name.starts_with("wasi:") || import.name.starts_with("wasi_"));
    if let Some(first) = wasi.first() {
        mismatches.push(Mismatch::Wasi {
            first: first.name.clone(),
            more: wasi.len() - 1,
        });
    }
    for import in others {
        match OFFERED.iter().find(|(interface, _)| import.is(interface)) {
            Some((_, offered)) => {
                let unknown = import
                    .functions
                    .iter()
                    .filter(|function| !offered.contains(&function.as_str()));
                mismatches.extend(unknown.map(|function| Mismatch::UnknownFunction {
                    interface: import.name.clone(),
                    function: function.clone(),
                }));
            }
            // Another version of the package is reported once for all of them.
            None if import
                .ours()
                .is_some_and(|(_, version)| !version.starts_with(TRACK)) => {}
            None => {
                let offered: Vec<_> = OFFERED.iter().map(|(name, _)| full_name(name)).collect();
                mismatches.push(Mismatch::UnknownImport {
                    name: import.name.clone(),
                    nearest: nearest(&import.name, offered.iter().map(String::as_str)),
                });
            }
        }
    }
}

fn full_name(interface: &str) -> String {
    format!("{PACKAGE}/{interface}@{VERSION}")
}

/// Returns the most similar name if it may be a misspelling. Package and version are ignored.
pub(crate) fn nearest<'a>(wanted: &str, present: impl Iterator<Item = &'a str>) -> Option<String> {
    let bare = bare_name(wanted);
    present
        .map(|name| (strsim::damerau_levenshtein(bare, bare_name(name)), name))
        .filter(|&(distance, name)| name != wanted && distance <= 1 + bare_name(name).len() / 5)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name.to_owned())
}

fn bare_name(name: &str) -> &str {
    let interface = name.rsplit_once('/').map_or(name, |(_, interface)| interface);
    interface.split_once('@').map_or(interface, |(bare, _)| bare)
}

fn hint(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |name| format!(" (`{name}` is close)"))
}

fn and_more(first: &str, more: usize) -> String {
    match more {
        0 => format!("`{first}`"),
        more => format!("`{first}` and {more} more of WASI"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use wit_parser::{Resolve, WorldItem, WorldKey};

    use super::*;

    #[test]
    fn the_interfaces_here_are_those_of_the_wit() {
        let mut resolve = Resolve::default();
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
        let (package, _) = resolve.push_path(wit).unwrap();
        let world = resolve.select_world(&[package], Some("everything")).unwrap();
        let interfaces = |items: Vec<(&WorldKey, &WorldItem)>| {
            let mut interfaces: Vec<_> = items
                .iter()
                .map(|(key, _)| {
                    let WorldKey::Interface(id) = key else {
                        panic!("{key:?}")
                    };
                    let mut functions: Vec<_> = resolve.interfaces[*id].functions.keys().cloned().collect();
                    functions.sort_unstable();
                    (resolve.name_world_key(key), functions)
                })
                .collect();
            interfaces.sort_unstable();
            interfaces
        };
        let here = |table: &[ContractInterface]| -> Vec<(String, Vec<String>)> {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            table
                .iter()
                .map(|(name, functions)| (full_name(name), owned(functions)))
                .collect()
        };
        let world = &resolve.worlds[world];
        let mut exports = [REQUIRED, ONE_OF, OPTIONAL].concat();
        exports.sort_unstable();
        assert_eq!(interfaces(world.exports.iter().collect()), here(&exports));
        assert_eq!(interfaces(world.imports.iter().collect()), here(OFFERED));
    }
}
