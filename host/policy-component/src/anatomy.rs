//! Inspection of WebAssembly binaries without compiling them.

use thiserror::Error;
use wasmparser::{Encoding, KnownCustom, Parser, Payload, ProducersSectionReader};

/// First bytes of every binary.
const MAGIC: &[u8] = b"\0asm";
/// Section of a core module with its component type; toolchains append their own suffix to the name.
const COMPONENT_TYPE: &str = "component-type";

/// The layer of a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// A core module: the output of a compiler.
    Module,
    /// A component: the input of the router.
    Component,
}

/// An entry of the `producers` sections: a tool that made a binary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Producer {
    /// `language`, `processed-by` or `sdk`.
    pub field: String,
    /// Name.
    pub name: String,
    /// Version; may be empty.
    pub version: String,
}

/// Contents of a binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anatomy {
    /// Layer.
    pub layer: Layer,
    /// Imports: of a module `MODULE NAME`, each once; of a component the names of interfaces.
    pub imports: Vec<String>,
    /// Exports.
    pub exports: Vec<String>,
    /// A core module contains its component type.
    pub has_component_type: bool,
    /// Tools that made it, sorted, including those of nested modules.
    pub producers: Vec<Producer>,
}

/// Bytes are not readable as WebAssembly.
#[derive(Debug, Error)]
pub enum NotWebAssembly {
    /// They do not begin like WebAssembly.
    #[error("read {bytes} bytes as WebAssembly: they do not begin like it; is it the right file?")]
    Other {
        /// Number of bytes.
        bytes: usize,
    },
    /// They are damaged or truncated.
    #[error("read {bytes} bytes as WebAssembly: they are damaged or cut off")]
    Damaged {
        /// Number of bytes.
        bytes: usize,
        /// Position and kind of the error.
        #[source]
        source: wasmparser::Error,
    },
}

/// Reads a whole binary.
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

/// Reads the sections. The parser enters nested modules too: `depth` identifies the binary's own sections.
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

/// Reads imports and exports of the binary itself.
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

/// Reads a producers section. It is only a hint: a damaged one is skipped.
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
