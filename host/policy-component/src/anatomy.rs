//! What a binary says of itself, without compiling it.

use thiserror::Error;
use wasmparser::{Encoding, KnownCustom, Parser, Payload, ProducersSectionReader};

/// How every binary begins.
const MAGIC: &[u8] = b"\0asm";
/// The section by which a core module tells the component it is meant for; toolchains append names of their own.
const COMPONENT_TYPE: &str = "component-type";

/// The layer of a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// A core module: what a compiler leaves.
    Module,
    /// A component: what the router loads.
    Component,
}

/// One line of the `producers` sections: what had a hand in a binary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Producer {
    /// `language`, `processed-by` or `sdk`.
    pub field: String,
    /// Its name.
    pub name: String,
    /// Its version; may be empty.
    pub version: String,
}

/// What a binary consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anatomy {
    /// What it is.
    pub layer: Layer,
    /// Its imports: of a module `MODULE NAME`, each once; of a component the names of interfaces.
    pub imports: Vec<String>,
    /// Its exports.
    pub exports: Vec<String>,
    /// Whether a core module tells which component it is meant for.
    pub has_component_type: bool,
    /// What made it, sorted, with everything inside of it.
    pub producers: Vec<Producer>,
}

/// Bytes could not be read as WebAssembly.
#[derive(Debug, Error)]
pub enum NotWebAssembly {
    /// They are something else.
    #[error("read {bytes} bytes as WebAssembly: they do not begin like it; is it the right file?")]
    Other {
        /// How many there are.
        bytes: usize,
    },
    /// They begin well.
    #[error("read {bytes} bytes as WebAssembly: they are damaged or cut off")]
    Damaged {
        /// How many there are.
        bytes: usize,
        /// Where and how.
        #[source]
        source: wasmparser::Error,
    },
}

/// Reads a binary from one end to the other.
///
/// # Errors
/// [`NotWebAssembly`].
pub fn dissect(bytes: &[u8]) -> Result<Anatomy, NotWebAssembly> {
    let mut anatomy = Anatomy {
        layer: Layer::Module,
        imports: vec![],
        exports: vec![],
        has_component_type: false,
        producers: vec![],
    };
    let (begins, length) = (bytes.starts_with(MAGIC), bytes.len());
    read(bytes, &mut anatomy).map_err(|source| match begins {
        true => NotWebAssembly::Damaged {
            bytes: length,
            source,
        },
        false => NotWebAssembly::Other { bytes: length },
    })?;
    anatomy.producers.sort();
    anatomy.producers.dedup();
    Ok(anatomy)
}

/// The parser walks into nested modules too: `depth` tells what is the binary's own.
fn read(bytes: &[u8], anatomy: &mut Anatomy) -> wasmparser::Result<()> {
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding, .. } => {
                if depth == 0 && encoding == Encoding::Component {
                    anatomy.layer = Layer::Component;
                }
                depth += 1;
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) => {
                if depth == 1 && section.name().starts_with(COMPONENT_TYPE) {
                    anatomy.has_component_type = true;
                }
                if let KnownCustom::Producers(producers) = section.as_known() {
                    read_producers(producers, &mut anatomy.producers);
                }
            }
            payload if depth == 1 => read_own(payload, anatomy)?,
            _ => {}
        }
    }
    Ok(())
}

/// Imports and exports of the binary itself.
fn read_own(payload: Payload<'_>, anatomy: &mut Anatomy) -> wasmparser::Result<()> {
    match payload {
        Payload::ImportSection(section) => {
            for import in section.into_imports() {
                let import = import?;
                anatomy.imports.push(format!("{} {}", import.module, import.name));
            }
        }
        Payload::ExportSection(section) => {
            for export in section {
                anatomy.exports.push(export?.name.to_owned());
            }
        }
        Payload::ComponentImportSection(section) => {
            for import in section {
                anatomy.imports.push(import?.name.name.to_owned());
            }
        }
        Payload::ComponentExportSection(section) => {
            for export in section {
                anatomy.exports.push(export?.name.name.to_owned());
            }
        }
        _ => {}
    }
    Ok(())
}

/// These sections are hints: a damaged one is passed over.
fn read_producers(section: ProducersSectionReader<'_>, producers: &mut Vec<Producer>) {
    for field in section.into_iter().flatten() {
        for value in field.values.into_iter().flatten() {
            producers.push(Producer {
                field: field.name.to_owned(),
                name: value.name.to_owned(),
                version: value.version.to_owned(),
            });
        }
    }
}
