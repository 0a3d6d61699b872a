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
fn a_rust_project_builds_outside_of_a_checkout_and_without_a_network() {
    let files = Files::new();
    let run = policy_in(files.folder(), ["new", "mine", "--lang", "rust"]);
    assert_eq!(run.code, 0, "{run:?}");
    // The project's own test runs the policy without WebAssembly. The folder of compiled libraries stays.
    let output = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--locked"])
        .current_dir(files.folder().join("mine"))
        .env(
            "CARGO_TARGET_DIR",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-project"),
        )
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{warned}");
    assert!(printed.contains("1 passed"), "{printed}");
    assert!(!warned.contains("warning"), "{warned}");
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
fn a_file_in_place_of_the_folder_is_reported_as_one() {
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
    // A Rust compiler is all that Rust needs, and the next test is about it.
    for language in LANGUAGES.into_iter().filter(|language| *language != "rust") {
        let run = policy_in(files.folder(), ["new", language, "--lang", language]);
        assert_eq!(run.code, 0, "{run:?}");
        let script = files.folder().join(language).join("build.sh");
        let installs = |calls: &str| calls.contains("venv") || calls.contains("install");
        let (unprompted, printed) = calls(&script, &[], None);
        assert!(!installs(&unprompted), "{language}: {unprompted}");
        assert!(printed.contains("CONDUCTOR_INSTALL=1"), "{language}: {printed}");
        let (requested, _) = calls(&script, &[], Some("1"));
        assert!(installs(&requested), "{language}: {requested}");
    }
}

#[test]
fn a_rust_project_needs_nothing_but_a_compiler_with_the_target() {
    let files = Files::new();
    let run = policy_in(files.folder(), ["new", "mine", "--lang", "rust"]);
    assert_eq!(run.code, 0, "{run:?}");
    let programs = programs(&["python3", "cargo", "rustup", "apt-get"]);
    let library = programs.write("libstd-0.rlib", "");
    let rustc = programs.write(
        "rustc",
        format!("#!/bin/sh\necho {}\n", programs.folder().display()),
    );
    fs::set_permissions(rustc, fs::Permissions::from_mode(0o755)).unwrap();
    let run = || {
        let output = Command::new(files.folder().join("mine/build.sh"))
            .env("PATH", format!("{}:/usr/bin:/bin", programs.folder().display()))
            .env_remove("CONDUCTOR_INSTALL")
            .output()
            .unwrap();
        let calls = fs::read_to_string(programs.folder().join("calls")).unwrap_or_default();
        (calls, String::from_utf8(output.stderr).unwrap())
    };
    let (calls, _) = run();
    assert_eq!(
        calls,
        "cargo build --release --locked --target wasm32-unknown-unknown\n"
    );
    if !Path::new("/usr/bin/wasm-ld-22").exists() {
        fs::remove_file(library).unwrap();
        let (again, printed) = run();
        assert_eq!(again, calls, "nothing is installed or built");
        assert!(
            printed.contains("CONDUCTOR_INSTALL=1") && printed.contains("rustup target add"),
            "{printed}"
        );
    }
}

#[test]
fn the_toolchain_of_the_shipped_policies_is_installed_only_on_request() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/install-toolchain.sh");
    let (unasked, _) = calls(&script, &[], None);
    assert!(!unasked.contains("apt-get"), "{unasked}");
}
