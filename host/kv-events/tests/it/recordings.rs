//! Recordings of real publishers, kept beside the project. A test whose recording is absent does nothing.

use std::fs;
use std::path::{Path, PathBuf};

use routing::EngineBlockHash;
use serde_json::Value;

/// Returns the shared data folder, if it is there.
pub(crate) fn data() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)?
        .join("shared/data");
    let present = data.is_dir();
    if !present {
        println!("skipped: no captures at {}", data.display());
    }
    present.then_some(data)
}

pub(crate) fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings
            .iter()
            .any(|ending| path.to_string_lossy().ends_with(ending))
        {
            found.push(path);
        }
    }
    found
}

pub(crate) fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

pub(crate) fn frames(value: &Value) -> Vec<Vec<u8>> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| unhex(frame.as_str().unwrap()))
        .collect()
}

/// Returns a block hash in the JSON view: a number, or bytes in one of the spellings of three tools.
pub(crate) fn hash(view: &Value) -> EngineBlockHash {
    let number = view.as_u64().or_else(|| view.as_i64().map(i64::cast_unsigned));
    EngineBlockHash(number.unwrap_or_else(|| {
        let bytes = match view {
            Value::String(base64) => unbase64(base64),
            _ => unhex(
                view.get("$bin")
                    .or_else(|| view.get("__bytes__"))
                    .unwrap()
                    .as_str()
                    .unwrap(),
            ),
        };
        u64::from_be_bytes(*bytes.last_chunk().unwrap())
    }))
}

fn unbase64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |digit: u8| DIGITS.iter().position(|&known| known == digit).unwrap() as u32;
    let (mut bits, mut width, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes().filter(|&digit| digit != b'=') {
        (bits, width) = ((bits << 6) | value(digit), width + 6);
        if width >= 8 {
            width -= 8;
            bytes.push((bits >> width) as u8);
            bits &= (1 << width) - 1;
        }
    }
    bytes
}

/// Returns the collected payloads by name, each with its JSON view.
pub(crate) fn wire_vectors() -> Option<Vec<(String, Vec<u8>, Value)>> {
    let text = fs::read_to_string(data()?.join("fixtures/wire_vectors.json")).unwrap();
    let vectors: Value = serde_json::from_str(&text).unwrap();
    let vector = |vector: &Value| {
        let part = |name: &str| vector[name].as_str().unwrap().to_owned();
        (part("name"), unhex(&part("hex")), vector["decoded"].clone())
    };
    Some(vectors.as_array().unwrap().iter().map(vector).collect())
}
