//! Compile bounds: counts the parts of a component before the compiler reads it. Cranelift's time and memory grow with
//! these counts, some of them faster than linearly.

use std::fmt;

use thiserror::Error;
use wasmparser::{FunctionBody, Operator, Parser, Payload};

use crate::load_error::LoadError;

/// Deepest nesting of components.
const NESTED_COMPONENTS: u64 = 16;
/// Imports, exports, aliases, globals, memories, tags and adapted functions; each costs little.
const ITEMS: u64 = 200_000;

/// Maximum counts of a component. Totals include the modules inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileBounds {
    /// Modules and components inside it.
    pub modules: u64,
    /// Instances created from them.
    pub instances: u64,
    /// Types in total.
    pub types: u64,
    /// Functions in total.
    pub functions: u64,
    /// Bytes of one function.
    pub function_bytes: u64,
    /// Locals of one function.
    pub function_locals: u64,
    /// Nesting depth of blocks in one function.
    pub function_nesting: u64,
    /// Bytes of functions in total.
    pub code_bytes: u64,
    /// Tables in total.
    pub tables: u64,
    /// Data and element segments in total.
    pub segments: u64,
}

impl Default for CompileBounds {
    /// More than twice the counts of the largest interpreter, CPython: 13,512 functions, 427 KB and 781 nested blocks
    /// in one of them, 271 locals, 6.5 MB of functions, 1,468 types, 117 instances of 41 modules.
    fn default() -> Self {
        Self {
            modules: 256,
            instances: 1_024,
            types: 50_000,
            functions: 100_000,
            function_bytes: 1 << 20,
            function_locals: 10_000,
            function_nesting: 10_000,
            code_bytes: 48 << 20,
            tables: 1_024,
            segments: 100_000,
        }
    }
}

/// A counted quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantity {
    /// [`CompileBounds::modules`].
    Modules,
    /// Nesting depth of components.
    NestedComponents,
    /// [`CompileBounds::instances`].
    Instances,
    /// [`CompileBounds::types`].
    Types,
    /// [`CompileBounds::functions`].
    Functions,
    /// [`CompileBounds::function_bytes`].
    FunctionBytes,
    /// [`CompileBounds::function_locals`].
    FunctionLocals,
    /// [`CompileBounds::function_nesting`].
    FunctionNesting,
    /// [`CompileBounds::code_bytes`].
    CodeBytes,
    /// [`CompileBounds::tables`].
    Tables,
    /// [`CompileBounds::segments`].
    Segments,
    /// Everything else with an index.
    Items,
}

impl Quantity {
    /// Returns the key of `[policy-compile]` that sets the bound, if any.
    fn key(self) -> Option<&'static str> {
        match self {
            Self::Functions => Some("functions"),
            Self::FunctionBytes => Some("function-size"),
            Self::FunctionLocals => Some("function-locals"),
            _ => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modules => "modules and components",
            Self::NestedComponents => "components inside of each other",
            Self::Instances => "instances",
            Self::Types => "types",
            Self::Functions => "functions",
            Self::FunctionBytes => "bytes in one function",
            Self::FunctionLocals => "locals in one function",
            Self::FunctionNesting => "blocks inside of each other in one function",
            Self::CodeBytes => "bytes of functions",
            Self::Tables => "tables",
            Self::Segments => "segments of data and elements",
            Self::Items => "imports, exports, aliases, globals, memories and adapted functions",
        })
    }
}

/// A component exceeds a compile bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("it has {found} {what}, and the most is {most}: {}", cure(.what))]
pub struct Excess {
    /// The quantity.
    pub what: Quantity,
    /// The count so far.
    pub found: u64,
    /// The bound.
    pub most: u64,
}

fn cure(what: &Quantity) -> String {
    match what.key() {
        Some(key) => format!(
            "build it smaller (optimise for size, remove what is not used), or raise `{key}` of `[policy-compile]`"
        ),
        None => "build it smaller: optimise for size, remove what is not used".to_owned(),
    }
}

impl CompileBounds {
    /// Counts the parts of a component.
    ///
    /// # Errors
    /// [`LoadError::TooMuch`] for the first exceeded bound; [`LoadError::Malformed`] if the component cannot be parsed
    /// to its end.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), LoadError> {
        let malformed = |error: wasmparser::Error| LoadError::Malformed {
            bytes: bytes.len(),
            source: error.into(),
        };
        let mut count = ComponentCount::new(self);
        for payload in Parser::new(0).parse_all(bytes) {
            match count.payload(payload.map_err(malformed)?) {
                Ok(()) => {}
                Err(BoundFault::Excess(excess)) => return Err(LoadError::TooMuch(excess)),
                Err(BoundFault::Malformed(error)) => return Err(malformed(error)),
            }
        }
        Ok(())
    }
}

enum BoundFault {
    Excess(Excess),
    Malformed(wasmparser::Error),
}

impl From<wasmparser::Error> for BoundFault {
    fn from(error: wasmparser::Error) -> Self {
        Self::Malformed(error)
    }
}

/// Counts so far.
struct ComponentCount<'b> {
    bounds: &'b CompileBounds,
    depth: u64,
    modules: u64,
    instances: u64,
    types: u64,
    functions: u64,
    code_bytes: u64,
    tables: u64,
    segments: u64,
    items: u64,
}

impl<'b> ComponentCount<'b> {
    fn new(bounds: &'b CompileBounds) -> Self {
        Self {
            bounds,
            depth: 0,
            modules: 0,
            instances: 0,
            types: 0,
            functions: 0,
            code_bytes: 0,
            tables: 0,
            segments: 0,
            items: 0,
        }
    }

    fn payload(&mut self, payload: Payload<'_>) -> Result<(), BoundFault> {
        let bounds = self.bounds;
        let (total, more, what, most) = match payload {
            Payload::ModuleSection { .. } => {
                self.depth += 1;
                (&mut self.modules, 1, Quantity::Modules, bounds.modules)
            }
            Payload::ComponentSection { .. } => {
                self.depth += 1;
                within(Quantity::NestedComponents, self.depth, NESTED_COMPONENTS)?;
                (&mut self.modules, 1, Quantity::Modules, bounds.modules)
            }
            Payload::End(_) => {
                self.depth = self.depth.saturating_sub(1);
                return Ok(());
            }
            Payload::CodeSectionEntry(body) => {
                let size = function(&body, bounds)?;
                (&mut self.code_bytes, size, Quantity::CodeBytes, bounds.code_bytes)
            }
            Payload::FunctionSection(section) => {
                let more = section.count();
                (
                    &mut self.functions,
                    more.into(),
                    Quantity::Functions,
                    bounds.functions,
                )
            }
            Payload::TableSection(section) => {
                let more = section.count();
                (&mut self.tables, more.into(), Quantity::Tables, bounds.tables)
            }
            other => return self.other(&other),
        };
        *total += more;
        within(what, *total, most)
    }

    fn other(&mut self, payload: &Payload<'_>) -> Result<(), BoundFault> {
        let bounds = self.bounds;
        let (total, what, most) = match payload {
            Payload::TypeSection(_) | Payload::CoreTypeSection(_) | Payload::ComponentTypeSection(_) => {
                (&mut self.types, Quantity::Types, bounds.types)
            }
            Payload::InstanceSection(_) | Payload::ComponentInstanceSection(_) => {
                (&mut self.instances, Quantity::Instances, bounds.instances)
            }
            Payload::ElementSection(_) | Payload::DataSection(_) => {
                (&mut self.segments, Quantity::Segments, bounds.segments)
            }
            _ => (&mut self.items, Quantity::Items, ITEMS),
        };
        *total += u64::from(section_count(payload));
        within(what, *total, most)
    }
}

/// Returns the number of entries of a section.
fn section_count(payload: &Payload<'_>) -> u32 {
    match payload {
        Payload::TypeSection(section) => section.count(),
        Payload::CoreTypeSection(section) => section.count(),
        Payload::ComponentTypeSection(section) => section.count(),
        Payload::InstanceSection(section) => section.count(),
        Payload::ComponentInstanceSection(section) => section.count(),
        Payload::ElementSection(section) => section.count(),
        Payload::DataSection(section) => section.count(),
        Payload::ImportSection(section) => section.count(),
        Payload::MemorySection(section) => section.count(),
        Payload::TagSection(section) => section.count(),
        Payload::GlobalSection(section) => section.count(),
        Payload::ExportSection(section) => section.count(),
        Payload::ComponentAliasSection(section) => section.count(),
        Payload::ComponentCanonicalSection(section) => section.count(),
        Payload::ComponentImportSection(section) => section.count(),
        Payload::ComponentExportSection(section) => section.count(),
        _ => 0,
    }
}

/// Checks one function; returns its size.
fn function(body: &FunctionBody<'_>, bounds: &CompileBounds) -> Result<u64, BoundFault> {
    let range = body.range();
    let size = (range.end - range.start) as u64;
    within(Quantity::FunctionBytes, size, bounds.function_bytes)?;
    let mut locals = 0_u64;
    for group in body.get_locals_reader()? {
        locals += u64::from(group?.0);
        within(Quantity::FunctionLocals, locals, bounds.function_locals)?;
    }
    let mut operators = body.get_operators_reader()?;
    let mut nesting = 0_u64;
    while !operators.eof() {
        match operators.read()? {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. } => {
                nesting += 1;
                within(Quantity::FunctionNesting, nesting, bounds.function_nesting)?;
            }
            Operator::End => nesting = nesting.saturating_sub(1),
            _ => {}
        }
    }
    Ok(size)
}

fn within(what: Quantity, found: u64, most: u64) -> Result<(), BoundFault> {
    if found > most {
        return Err(BoundFault::Excess(Excess { what, found, most }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Bounds so small that a handful of anything exceeds them.
    const SMALL: CompileBounds = CompileBounds {
        modules: 3,
        instances: 3,
        types: 3,
        functions: 3,
        function_bytes: 100,
        function_locals: 3,
        function_nesting: 3,
        code_bytes: 200,
        tables: 3,
        segments: 3,
    };

    #[track_caller]
    fn excess(text: &str) -> Excess {
        let bytes = wat::parse_str(text).unwrap();
        match SMALL.check(&bytes) {
            Err(LoadError::TooMuch(excess)) => excess,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[track_caller]
    fn check(text: &str, what: Quantity, (found, most): (u64, u64)) {
        assert_eq!(excess(text), Excess { what, found, most }, "{text}");
    }

    fn module(fields: &str) -> String {
        format!("(component (core module {fields}))")
    }

    #[test]
    fn each_bound_is_held() {
        use Quantity::{
            CodeBytes, FunctionBytes, FunctionLocals, FunctionNesting, Functions, Modules, Segments, Tables,
            Types,
        };
        let of_three = (4, 3);
        check(&module(&"(func)".repeat(4)), Functions, of_three);
        check(
            &module("(func (local i32 i64 f32 f64))"),
            FunctionLocals,
            of_three,
        );
        let nested = format!("(func {}{})", "(block ".repeat(4), ")".repeat(4));
        check(&module(&nested), FunctionNesting, of_three);
        check(&module(&"(table 1 funcref)".repeat(4)), Tables, of_three);
        check(
            &module(&format!("(memory 1){}", "(data \"x\")".repeat(4))),
            Segments,
            of_three,
        );
        check(&module(&"(type (func))".repeat(4)), Types, of_three);
        check(
            &format!("(component {})", "(core module)".repeat(4)),
            Modules,
            of_three,
        );
        let long = excess(&module(&format!("(func {})", "nop ".repeat(200))));
        assert_eq!((long.what, long.most), (FunctionBytes, 100));
        let items = module(&"(memory 0)".repeat(200_001));
        check(&items, Quantity::Items, (200_001, ITEMS));
        let many = module(&format!("(func {})", "nop ".repeat(90)).repeat(3));
        assert_eq!(excess(&many).what, CodeBytes);
    }

    #[test]
    fn modules_of_one_component_are_counted_together() {
        let two = format!("(component {})", "(core module (func) (func))".repeat(2));
        check(&two, Quantity::Functions, (4, 3));
        let instances = format!(
            "(component (core module $m) {})",
            "(core instance (instantiate $m))".repeat(4)
        );
        check(&instances, Quantity::Instances, (4, 3));
    }

    #[test]
    fn components_are_nested_only_so_deep() {
        let deep = format!("{}{}", "(component ".repeat(40), ")".repeat(40));
        let bytes = wat::parse_str(deep).unwrap();
        let refused = CompileBounds::default().check(&bytes).unwrap_err();
        assert!(
            matches!(&refused, LoadError::TooMuch(excess) if excess.what == Quantity::NestedComponents),
            "{refused}"
        );
        // Siblings are not nested.
        let flat = format!("(component {})", "(component (core module))".repeat(100));
        CompileBounds::default()
            .check(&wat::parse_str(flat).unwrap())
            .unwrap();
    }

    #[test]
    fn a_message_names_the_figures_and_the_key() {
        let refused = LoadError::TooMuch(excess(&module(&"(func)".repeat(4)))).to_string();
        for part in [
            "4 functions",
            "the most is 3",
            "`functions` of `[policy-compile]`",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn bytes_that_end_early_are_malformed() {
        let bytes = wat::parse_str(module("(func)")).unwrap();
        let refused = CompileBounds::default().check(&bytes[..bytes.len() - 3]);
        assert!(matches!(refused, Err(LoadError::Malformed { .. })), "{refused:?}");
    }

    #[test]
    fn every_shipped_policy_stays_a_tenth_below_every_bound() {
        let default = CompileBounds::default();
        let tenth = CompileBounds {
            modules: default.modules / 10,
            instances: default.instances / 10,
            types: default.types / 10,
            functions: default.functions / 10,
            function_bytes: default.function_bytes / 10,
            function_locals: default.function_locals / 10,
            function_nesting: default.function_nesting / 10,
            code_bytes: default.code_bytes / 10,
            tables: default.tables / 10,
            segments: default.segments / 10,
        };
        let folders = ["../../policies/prebuilt", "tests/languages"];
        let folders = folders.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let files = files.map(|file| file.unwrap().path());
        let components: Vec<_> = files
            .filter(|file| file.extension().is_some_and(|ending| ending == "wasm"))
            .collect();
        assert!(components.len() > 20);
        for file in components {
            if let Err(refused) = tenth.check(&fs::read(&file).unwrap()) {
                panic!("{}: {refused}", file.display());
            }
        }
    }
}
