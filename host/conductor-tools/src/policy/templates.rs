//! The projects of `policy-sdk/templates`, one a language: each is the policy `least-queued`, to be renamed.

use super::sdk::SDK;
use crate::args::Language;

/// A project to start from.
#[derive(Debug)]
pub(super) struct Template {
    /// Name of the language.
    pub(super) language: &'static str,
    /// The files by path, as text.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Library sources by path, which are the same under every name.
    pub(super) vendored: &'static [(&'static str, &'static str)],
}

/// The files of a folder of templates: named one by one, so that nothing that was built there gets into the binary.
macro_rules! template {
    ($language:literal, $folder:literal, [$($file:literal),+ $(,)?]) => {
        Template {
            language: $language,
            files: &[$((
                $file,
                include_str!(concat!("../../../../policy-sdk/templates/", $folder, "/", $file)),
            )),+],
            vendored: &[],
        }
    };
    // Files that every template has, and its own files.
    ($language:literal, $folder:literal, $($own:literal),+ $(,)?) => {
        template!($language, $folder, ["README.md", ".gitignore", "build.sh", $($own),+])
    };
}

static RUST: Template = Template {
    vendored: SDK,
    ..template!(
        "Rust",
        "rust",
        "Cargo.toml",
        "Cargo.lock",
        "sdk/Cargo.toml",
        "src/lib.rs"
    )
};
static C: Template = template!("C", "c", "policy.c");
static CPP: Template = template!("C++", "cpp", "policy.cpp");
static ZIG: Template = template!("Zig", "zig", "policy.zig");
static GO: Template = template!("Go", "go", "go.mod", "conductor.go", "policy.go", "wasi.wat");
static JAVASCRIPT: Template = template!("JavaScript", "javascript", "policy.mjs");
static PYTHON: Template = template!("Python", "python", "policy.py");
static ASSEMBLYSCRIPT: Template = template!(
    "AssemblyScript",
    "assemblyscript",
    "policy.ts",
    "conductor.ts",
    "exports.ts"
);

/// Returns the project of a language.
pub(super) fn of(language: Language) -> &'static Template {
    match language {
        Language::Rust => &RUST,
        Language::C => &C,
        Language::Cpp => &CPP,
        Language::Zig => &ZIG,
        Language::Go => &GO,
        Language::JavaScript => &JAVASCRIPT,
        Language::Python => &PYTHON,
        Language::AssemblyScript => &ASSEMBLYSCRIPT,
    }
}

/// Returns a path or text with another name in place of the template's, in every form of the name.
pub(super) fn renamed(text: &str, name: &str) -> String {
    text.replace("least-queued", name)
        .replace("least_queued", &name.replace('-', "_"))
        .replace("LeastQueued", &camel_case(name))
}

/// Returns a name in camel case, as of a type.
fn camel_case(name: &str) -> String {
    name.split(['-', '_'])
        .flat_map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_ascii_uppercase())
                .into_iter()
                .chain(letters)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    const FOLDERS: [(&str, &Template); 8] = [
        ("rust", &RUST),
        ("c", &C),
        ("cpp", &CPP),
        ("zig", &ZIG),
        ("go", &GO),
        ("javascript", &JAVASCRIPT),
        ("python", &PYTHON),
        ("assemblyscript", &ASSEMBLYSCRIPT),
    ];
    /// Files that a build creates or fetches.
    const BUILT: [&str; 8] = [
        ".tools",
        "build",
        "target",
        "wit",
        "node_modules",
        "__pycache__",
        ".zig-cache",
        "gen",
    ];

    fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            let is_built = BUILT.iter().any(|built| name == *built);
            if is_built || path.extension().is_some_and(|extension| extension == "wasm") {
                continue;
            }
            if path.is_dir() {
                sources(&path, into);
            } else {
                into.push(path);
            }
        }
    }

    #[test]
    fn every_source_of_a_template_is_in_the_binary() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policy-sdk/templates");
        for (language, template) in FOLDERS {
            let folder = root.join(language);
            let mut found = Vec::new();
            sources(&folder, &mut found);
            let found: BTreeSet<_> = found
                .iter()
                .map(|path| path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned())
                .collect();
            let embedded: BTreeSet<_> = template
                .files
                .iter()
                .map(|(path, _)| (*path).to_owned())
                .collect();
            assert_eq!(embedded, found, "{language}");
        }
    }

    #[test]
    fn a_name_is_written_as_each_language_writes_it() {
        let text = "least-queued least_queued struct LeastQueued;";
        assert_eq!(
            renamed(text, "my-own_one"),
            "my-own_one my_own_one struct MyOwnOne;"
        );
    }
}
