//! Every configuration that the project shows parses, without a warning.

use tidy::{files, root};

#[test]
fn every_example_configuration_is_valid() {
    let shown = files(&["toml"])
        .into_iter()
        .filter(|file| file.path.starts_with("config/"));
    let mut checked = 0;
    for file in shown {
        let rendered = conductor::check_text(&file.path, &file.text);
        assert!(rendered.is_empty(), "{}:\n{rendered}", file.path);
        checked += 1;
    }
    assert!(checked >= 2, "config/ holds conductor.toml and examples");
}

#[test]
fn the_readme_names_only_files_that_exist() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let links = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
        let path = link.split('#').next().unwrap_or(link);
        assert!(
            root().join(path).exists(),
            "README.md links to `{path}`, which does not exist"
        );
    }
}
