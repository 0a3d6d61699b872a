//! Mooncake's trace files (FAST '25, `FAST25-release/traces` in its repository).
//!
//! One JSON object a line: `timestamp` in milliseconds, `input_length` and `output_length` in tokens, `hash_ids` with
//! one id for each 512 tokens of the prompt, the last of which may be part of a block. An id stands for the whole
//! prompt up to the end of its block. Beyond the schema the numbers `session_id` and `tenant_id` are read where they
//! are there. Other fields are ignored.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::request::{Request, Trace};

/// Prompt tokens of a block in these files.
const BLOCK_TOKENS: u32 = 512;

/// Bad lines that an error names; the others it counts.
const LINES_REPORTED: usize = 10;

/// Reason for which a text is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The text has no requests.
    #[error("read trace `{name}`: it has no requests")]
    Empty {
        /// The trace's.
        name: String,
    },
    /// Some lines are no requests.
    #[error("read trace `{name}`: {}", summary(.lines, *.more))]
    Lines {
        /// The trace's.
        name: String,
        /// First of these lines, each with its number (the first line of the text is 1) and its error.
        lines: Vec<(usize, LineError)>,
        /// Number of further bad lines.
        more: usize,
    },
}

/// Fault of a line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is no JSON, or a field is missing or of another type.
    #[error("{message} (column {column})")]
    Json {
        /// Serde's words.
        message: String,
        /// Place in the line.
        column: usize,
    },
    /// The time is too far away to be counted in microseconds.
    #[error("`timestamp` {0} is too large")]
    Late(u64),
    /// A length is more than any model takes.
    #[error("`{name}` is {tokens}, more than {MOST_TOKENS}")]
    Long {
        /// Name of the field.
        name: &'static str,
        /// Meaning.
        tokens: u32,
    },
    /// A length that must be at least 1 is 0.
    #[error("`{0}` is 0")]
    Nothing(&'static str),
    /// The prompt's length needs another number of blocks.
    #[error("`hash_ids` has {found} ids, and an `input_length` of {tokens} has {wanted} blocks")]
    Blocks {
        /// Length of `hash_ids`.
        found: usize,
        /// `input_length`.
        tokens: u32,
        /// Expected number: one for each 512 tokens.
        wanted: usize,
    },
    /// The line has the same id twice, so that this cannot stand for the whole prompt up to it.
    #[error("`hash_ids` has the id {id} twice; each stands for the whole prompt up to its block's end")]
    Twice {
        /// The id.
        id: u64,
    },
    /// An id followed another one before, so that it cannot stand for the whole prompt up to it.
    #[error("id {id} of `hash_ids` follows another id than on an earlier line")]
    Prefix {
        /// The id.
        id: u64,
    },
}

/// Most tokens of a prompt or an answer: ten times the longest contexts there are.
pub(super) const MOST_TOKENS: u32 = 10_000_000;

/// A request as it is in the file.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct Line {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant_id: Option<u32>,
}

impl Trace {
    /// Reads a trace file's text. Empty lines are skipped; requests are put in the order of their arrival, and the
    /// first arrives at 0.
    ///
    /// # Errors
    /// Where a line is no request, or there is none. Every bad line is counted, and the first ten are reported.
    pub fn from_mooncake(name: &str, text: &str) -> Result<Self, TraceError> {
        let mut requests = Vec::new();
        let mut bad = Vec::new();
        let mut more = 0;
        let mut predecessors = HashMap::new();
        // Some editors put a mark of the encoding before the text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            match request(line, &mut predecessors) {
                Ok(request) => requests.push(request),
                Err(error) if bad.len() < LINES_REPORTED => bad.push((index + 1, error)),
                Err(_) => more += 1,
            }
        }
        let name = name.to_owned();
        if !bad.is_empty() {
            return Err(TraceError::Lines {
                name,
                lines: bad,
                more,
            });
        }
        requests.sort_by_key(|request| request.at_us);
        let Some(start_us) = requests.first().map(|first| first.at_us) else {
            return Err(TraceError::Empty { name });
        };
        for request in &mut requests {
            request.at_us -= start_us;
        }
        Ok(Self {
            name,
            block_tokens: BLOCK_TOKENS,
            requests,
        })
    }

    /// Returns the text of a trace file. Arrivals are cut to whole milliseconds, since the format has no others.
    ///
    /// The format does not define the size of a block: readers take it for 512 tokens, which is what the generators
    /// make.
    #[cfg(test)]
    pub(crate) fn to_mooncake(&self) -> String {
        let mut text = String::new();
        for request in &self.requests {
            let line = Line {
                timestamp: request.at_us / 1000,
                input_length: request.prompt_tokens,
                output_length: request.output_tokens,
                hash_ids: request.blocks.to_vec(),
                session_id: request.session,
                tenant_id: request.tenant,
            };
            text += &serde_json::to_string(&line).expect("numbers and a list of them are always JSON");
            text.push('\n');
        }
        text
    }
}

/// Returns a line's request. `predecessors` has for each id seen so far the one before it, `None` for a first one.
fn request(line: &str, predecessors: &mut HashMap<u64, Option<u64>>) -> Result<Request, LineError> {
    let line: Line = serde_json::from_str(line).map_err(|error| json_error(&error))?;
    let at_us = line
        .timestamp
        .checked_mul(1000)
        .ok_or(LineError::Late(line.timestamp))?;
    for (name, tokens) in [
        ("input_length", line.input_length),
        ("output_length", line.output_length),
    ] {
        if tokens > MOST_TOKENS {
            return Err(LineError::Long { name, tokens });
        }
    }
    if line.input_length == 0 {
        return Err(LineError::Nothing("input_length"));
    }
    if line.output_length == 0 {
        return Err(LineError::Nothing("output_length"));
    }
    let wanted = line.input_length.div_ceil(BLOCK_TOKENS) as usize;
    if line.hash_ids.len() != wanted {
        return Err(LineError::Blocks {
            found: line.hash_ids.len(),
            tokens: line.input_length,
            wanted,
        });
    }
    let mut before = None;
    for (at, &id) in line.hash_ids.iter().enumerate() {
        if *predecessors.entry(id).or_insert(before) != before {
            return Err(match line.hash_ids[..at].contains(&id) {
                true => LineError::Twice { id },
                false => LineError::Prefix { id },
            });
        }
        before = Some(id);
    }
    Ok(Request {
        at_us,
        prompt_tokens: line.input_length,
        output_tokens: line.output_length,
        blocks: line.hash_ids.into(),
        session: line.session_id,
        after: None,
        grown_blocks: Box::default(),
        model: "".into(),
        tenant: line.tenant_id,
    })
}

/// Returns the error without serde's own line number, which is 1 on every line.
fn json_error(error: &serde_json::Error) -> LineError {
    let words = error.to_string();
    let message = words.split(" at line ").next().unwrap_or_default().to_owned();
    LineError::Json {
        message,
        column: error.column(),
    }
}

fn summary(lines: &[(usize, LineError)], more: usize) -> String {
    let mut text = String::new();
    for (number, error) in lines {
        let separator = if text.is_empty() { "" } else { "; " };
        write!(text, "{separator}line {number}: {error}").expect("a string takes all that is written to it");
    }
    if more > 0 {
        write!(text, "; and {more} more").expect("a string takes all that is written to it");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        Trace::from_mooncake("t", text).unwrap_err().to_string()
    }

    fn line(timestamp: u64, input: u32, output: u32, ids: &str) -> String {
        format!(
            r#"{{"timestamp": {timestamp}, "input_length": {input}, "output_length": {output}, "hash_ids": [{ids}]}}"#
        ) + "\n"
    }

    #[test]
    fn reads_requests_in_the_order_of_their_arrival_and_starts_at_0() {
        let text = line(5_000, 513, 7, "0, 1") + "\n" + &line(2_000, 512, 1, "0");
        let trace = Trace::from_mooncake("two", &text).unwrap();
        let request = |at_us, prompt_tokens, output_tokens, blocks: &[u64]| Request {
            at_us,
            prompt_tokens,
            output_tokens,
            blocks: blocks.into(),
            session: None,
            grown_blocks: Box::default(),
            model: "".into(),
            after: None,
            tenant: None,
        };
        assert_eq!(trace.name, "two");
        assert_eq!(trace.block_tokens, 512);
        assert_eq!(
            trace.requests,
            [request(0, 512, 1, &[0]), request(3_000_000, 513, 7, &[0, 1])]
        );
    }

    #[test]
    fn reports_every_bad_line_with_its_number() {
        let text = line(0, 512, 1, "0")
            + "{\"timestamp\": \"now\"}\n"
            + &line(u64::MAX, 512, 1, "0")
            + &line(0, 0, 1, "")
            + &line(0, 1, 0, "2")
            + &line(0, 513, 1, "0")
            + &line(0, 1000, 1, "3, 0")
            + &line(0, 1000, 1, "4, 4");
        assert_eq!(
            refused(&text),
            "read trace `t`: line 2: invalid type: string \"now\", expected u64 (column 19); \
             line 3: `timestamp` 18446744073709551615 is too large; line 4: `input_length` is 0; \
             line 5: `output_length` is 0; \
             line 6: `hash_ids` has 1 ids, and an `input_length` of 513 has 2 blocks; \
             line 7: id 0 of `hash_ids` follows another id than on an earlier line; \
             line 8: `hash_ids` has the id 4 twice; each stands for the whole prompt up to its block's end"
        );
    }

    #[test]
    fn a_mark_of_the_encoding_is_no_part_of_the_first_line() {
        let text = "\u{feff}".to_owned() + &line(0, 512, 1, "0");
        assert_eq!(Trace::from_mooncake("t", &text).unwrap().requests.len(), 1);
    }

    #[test]
    fn counts_the_bad_lines_beyond_ten() {
        let refusal = refused(&"no\n".repeat(12));
        assert_eq!(refusal.matches("line ").count(), 10);
        assert!(refusal.ends_with("; and 2 more"), "{refusal}");
    }

    #[test]
    fn refuses_a_text_without_requests() {
        assert_eq!(refused(" \n\n"), "read trace `t`: it has no requests");
    }

    fn any_trace() -> impl Strategy<Value = Trace> {
        let request = (
            0..100_u64,
            1..3_000_u32,
            1..50_u32,
            proptest::option::of(0..5_u64),
        );
        proptest::collection::vec(request, 1..20).prop_map(|shapes| {
            let mut at_us = 0;
            let requests = shapes.into_iter().enumerate().map(|(index, shape)| {
                let (gap, prompt_tokens, output_tokens, session) = shape;
                at_us += if index == 0 { 0 } else { gap * 1000 };
                let first = index as u64 * 10;
                let blocks = (first..first + u64::from(prompt_tokens.div_ceil(512))).collect();
                Request {
                    at_us,
                    prompt_tokens,
                    output_tokens,
                    blocks,
                    session,
                    after: None,
                    grown_blocks: Box::default(),
                    model: "".into(),
                    tenant: session.map(|session| (session % 7) as u32),
                }
            });
            Trace {
                name: "any".to_owned(),
                block_tokens: 512,
                requests: requests.collect(),
            }
        })
    }

    proptest! {
        #[test]
        fn mooncake_traces_round_trip(trace in any_trace()) {
            prop_assert_eq!(Trace::from_mooncake("any", &trace.to_mooncake()).unwrap(), trace);
        }

        #[test]
        fn never_panics_on_any_text(text in ".{0,200}") {
            let _ = Trace::from_mooncake("any", &text);
        }
    }
}
