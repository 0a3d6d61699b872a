//! `host/docs/operation/check.md` lists every diagnostic code with its severity.

use std::fs;
use std::path::Path;

use conductor_config::Code;

#[test]
fn the_page_lists_every_code_in_order_with_its_severity() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operation/check.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let (_, section) = page
        .split_once("\n### Codes\n")
        .expect("the page has the section");
    let (section, _) = section.split_once("\n## ").expect("another section follows");
    let listed: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|row| row.split('|').skip(1).take(2).map(str::trim).collect())
        .collect();
    let expected: Vec<Vec<String>> = Code::ALL
        .iter()
        .map(|code| vec![format!("`{code}`"), code.severity().as_str().to_owned()])
        .collect();
    assert_eq!(listed, expected);
}
