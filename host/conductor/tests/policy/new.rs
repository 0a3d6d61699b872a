//! `policy new`: a project that builds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use policy_component::CONTRACT;

use crate::binary::policy_in;
use crate::components::Files;

const LANGUAGES: [&str; 8] = [
    "rust",
    "c",
    "cpp",
    "zig",
    "go",
    "javascript",
    "python",
    "assemblyscript",
];

#[test]
fn every_language_has_a_project_with_the_contract_and_its_name_throughout() {
    let files = Files::new();
    for language in LANGUAGES {
        let name = format!("my-{language}");
        let run = policy_in(files.folder(), ["new", &name, "--lang", language, "--json"]);
        assert_eq!(run.code, 0, "{run:?}");
        let folder = files.folder().join(&name);
        let contract = fs::read_to_string(folder.join("wit/policy.wit")).unwrap();
        assert_eq!(contract, CONTRACT);
        let mode = fs::metadata(folder.join("build.sh"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o111, 0o111, "{language}");
        for file in run.json()["files"].as_array().unwrap() {
            let text = fs::read_to_string(folder.join(file.as_str().unwrap())).unwrap();
            let old = ["least-queued", "least_queued", "LeastQueued"];
            assert!(!old.iter().any(|old| text.contains(old)), "{language}: {file}");
        }
    }
}

#[test]
fn nothing_is_overwritten() {
    let files = Files::new();
    let kept = files.write("mine/notes.txt", "mine");
    let run = policy_in(files.folder(), ["new", "mine", "--lang", "c"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("not empty") && run.stderr.contains("--dir"),
        "{run:?}"
    );
    assert_eq!(fs::read_dir(kept.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_file_in_place_of_the_folder_is_said_to_be_one() {
    let files = Files::new();
    files.write("mine", "text");
    std::os::unix::fs::symlink("nowhere", files.folder().join("link")).unwrap();
    for name in ["mine", "link"] {
        let run = policy_in(files.folder(), ["new", name, "--lang", "c"]);
        assert_eq!(run.code, 1);
        assert!(
            run.stderr.contains("a file of that name") && run.stderr.contains("--dir"),
            "{run:?}"
        );
    }
}

#[test]
fn a_name_that_the_configuration_would_refuse_is_refused() {
    let files = Files::new();
    for name in ["a b", "-a", "2nd", "../a", ""] {
        let run = policy_in(files.folder(), ["new", "--lang", "c", "--", name]);
        assert_eq!(run.code, 1, "{name}: {run:?}");
    }
    assert_eq!(fs::read_dir(files.folder()).unwrap().count(), 0);
}

/// Returns a folder of programs that only note that they were called.
fn programs(names: &[&str]) -> Files {
    let files = Files::new();
    for name in names {
        let note = files.folder().join("calls");
        let text = format!("#!/bin/sh\necho \"{name} $*\" >> {}\n", note.display());
        let program = files.write(name, text);
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    files
}

/// Runs a script where these programs come before the system's. Returns the programs' calls, and the script's output.
fn calls(script: &Path, args: &[&str], install: Option<&str>) -> (String, String) {
    let programs = programs(&[
        "python3", "npm", "cargo", "rustc", "apt-get", "pip", "rustup", "curl",
    ]);
    let path = format!("{}:/usr/bin:/bin", programs.folder().display());
    let mut command = Command::new(script);
    command
        .args(args)
        .env("PATH", path)
        .env_remove("CONDUCTOR_INSTALL");
    command.env("CONDUCTOR_TOOLS", programs.folder().join("tools"));
    command.envs(install.map(|install| ("CONDUCTOR_INSTALL", install)));
    let output = command.output().unwrap();
    let calls = fs::read_to_string(programs.folder().join("calls")).unwrap_or_default();
    (calls, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn no_build_installs_anything_without_a_request() {
    let files = Files::new();
    for language in LANGUAGES {
        let run = policy_in(files.folder(), ["new", language, "--lang", language]);
        assert_eq!(run.code, 0, "{run:?}");
        let script = files.folder().join(language).join("build.sh");
        let installs = |calls: &str| calls.contains("venv") || calls.contains("install");
        let (unprompted, said) = calls(&script, &[], None);
        assert!(!installs(&unprompted), "{language}: {unprompted}");
        assert!(said.contains("CONDUCTOR_INSTALL=1"), "{language}: {said}");
        let (requested, _) = calls(&script, &[], Some("1"));
        assert!(installs(&requested), "{language}: {requested}");
    }
}

#[test]
fn the_toolchain_of_the_shipped_policies_is_installed_only_when_asked_for() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/install-toolchain.sh");
    let (unasked, _) = calls(&script, &[], None);
    assert!(!unasked.contains("apt-get"), "{unasked}");
}
