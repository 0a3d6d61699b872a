//! Policies of a few lines of text, good and bad, as files.

use std::fs;
use std::path::{Path, PathBuf};

use policy_component::componentise;
use tempfile::TempDir;

/// Memory, an allocator and a name: the policies of policy-runtime's tests have it too.
const PRELUDE: &str = include_str!("../../../policy-runtime/tests/wat/prelude.wat");
/// A plan of one column.
const PLAN: &str = include_str!("../../../policy-runtime/tests/wat/plan.wat");
/// A good one: the least of the column.
pub(crate) const LEAST: &str = include_str!("../../../policy-runtime/tests/wat/least.wat");
/// Policy that refuses its parameters.
pub(crate) const REFUSES: &str = include_str!("../../../policy-runtime/tests/wat/refuses.wat");

/// Policy that receives events, and ticks.
pub(crate) const LISTENER: &str = include_str!("../../../policy-runtime/tests/wat/listens.wat");

/// Code that makes a policy describe its parameters.
pub(crate) const PARAMETERS: &str = include_str!("../../../policy-runtime/tests/wat/parameters.wat");

/// Returns a policy that answers each request with these instructions; `$count` is the number of candidates.
pub(crate) fn deciding(instructions: &str) -> String {
    format!(
        r#"(func (export "conductor:policy/schedule@0.1.0#schedule")
  (param $seq i64) (param i32 i64 i32 i32) (param $ids i32) (param $count i32) (param $numbers i32) (param i32)
  (result i32)
  {instructions})"#
    )
}

/// Compiles the module items of a case, with the prelude, to a core module.
pub(crate) fn module(case: &str) -> Vec<u8> {
    let plan = if case.contains("#configure") { "" } else { PLAN };
    wat::parse_str(format!("(module {case} {plan} {PRELUDE})")).unwrap()
}

/// Compiles the module items of a case to a component.
pub(crate) fn component(case: &str) -> Vec<u8> {
    componentise(&module(case)).unwrap()
}

/// Temporary folder of a test, removed at its end.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}
