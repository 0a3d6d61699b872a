//! The explanation for people: a table for each call, the chosen worker first.

use std::fmt;

use routing::Phase;
use serde_json::Value;

use super::page::{CallPage, CandidatePage, ExplainPage};
use operator_tools::table::{Side, Table};

/// Most candidates shown; `--json` has all.
const MOST: usize = 32;

impl fmt::Display for ExplainPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, seq, .. } = self;
        writeln!(f, "request {request} (number {seq})")?;
        if let Some(call) = self.calls.first() {
            let model = if call.model.is_empty() {
                "no model"
            } else {
                &call.model
            };
            let session = call.session.as_deref().unwrap_or("none");
            let CallPage {
                path, pool, route, ..
            } = call;
            writeln!(
                f,
                "  {path}, {model}, session {session}; route {route}, pool {pool}"
            )?;
        }
        for (call, number) in self.calls.iter().zip(1..) {
            write!(f, "\n{number}. {call}")?;
        }
        if self.left_out > 0 {
            writeln!(f, "\n{} more calls are not kept", self.left_out)?;
        }
        match &self.outcome {
            Some(outcome) => writeln!(f, "\noutcome: {}", outcome_line(outcome)),
            None => writeln!(f, "\noutcome: none yet"),
        }
    }
}

impl fmt::Display for CallPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy,
            version,
            attempt,
            ..
        } = self;
        write!(f, "{policy}@{version}")?;
        if let Some(version) = &self.manifest_version {
            write!(f, " ({version})")?;
        }
        if self.fallback {
            write!(f, ", the fallback,")?;
        }
        writeln!(f, " {}, in {} us", self.deed(), shown(&self.took_us))?;
        if let Some(fault) = &self.fault {
            writeln!(f, "   fault: {}: {}", fault.kind, fault.detail)?;
        }
        if let Some(refused) = &self.refused {
            writeln!(f, "   its answer is invalid: it {refused}")?;
        }
        let phase = Phase::from(self.phase).as_str();
        write!(f, "   attempt {attempt}, phase {phase}")?;
        for (name, number) in &self.request_numbers {
            write!(f, ", {name} {}", shown(number))?;
        }
        writeln!(f)?;
        let table = self.table().to_string();
        for line in table.lines() {
            writeln!(f, "   {line}")?;
        }
        if self.candidates.len() > MOST {
            writeln!(f, "   and {} more", self.candidates.len() - MOST)?;
        }
        for part in &self.parts {
            writeln!(f, "   {part}")?;
        }
        let queries = self.queries.iter().map(|line| line.recorded_call());
        for recorded in queries {
            writeln!(f, "   queried {}: {:?}", recorded.call, recorded.result)?;
        }
        Ok(())
    }
}

impl CallPage {
    fn deed(&self) -> String {
        let chosen = |what: &str| {
            let mut candidates = self.candidates.iter();
            let found = candidates.find(|candidate| candidate.chosen.as_deref() == Some(what));
            found.map(|candidate| candidate.worker.as_str())
        };
        let detail = self.detail.unwrap_or_default();
        match self.decided.as_str() {
            "route" => {
                let mut deed = format!("chose {}", chosen("answers").unwrap_or("?"));
                if let Some(prefill) = chosen("prefills") {
                    deed += &format!(" with {prefill} to prefill");
                }
                match &self.score {
                    Some(Value::Null) | None => deed,
                    Some(score) => deed + &format!(", score {}", shown(score)),
                }
            }
            "queue" => format!("held it for {detail} ms at most"),
            "reject" => format!("refused it with status {detail}"),
            _ if self.fault.is_some() => "failed".to_owned(),
            _ if self.refused.is_some() => "answered nonsense".to_owned(),
            _ => "passed".to_owned(),
        }
    }

    fn table(&self) -> Table {
        let mut head = vec![
            ("", Side::Left),
            ("worker", Side::Left),
            ("role", Side::Left),
            ("matched", Side::Right),
        ];
        head.extend(self.columns.iter().map(|name| (name.as_str(), Side::Right)));
        let mut table = Table::new(&head);
        let (chosen, others): (Vec<_>, Vec<_>) = self
            .candidates
            .iter()
            .partition(|candidate| candidate.chosen.is_some());
        for candidate in chosen.into_iter().chain(others).take(MOST) {
            table.row(self.row(candidate));
        }
        table
    }

    fn row(&self, candidate: &CandidatePage) -> Vec<String> {
        let mark = match candidate.chosen.as_deref() {
            Some("answers") => ">",
            Some(_) => "p",
            None => "",
        };
        let matched = candidate
            .matched_tokens
            .as_ref()
            .map_or_else(|| "-".to_owned(), shown);
        let mut cells = vec![
            mark.to_owned(),
            candidate.worker.clone(),
            candidate.role.clone(),
            matched,
        ];
        let numbers = self
            .columns
            .iter()
            .map(|name| candidate.numbers.get(name).map_or_else(String::new, shown));
        cells.extend(numbers);
        cells
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            format!("{number:.4}")
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns an outcome in one line.
fn outcome_line(outcome: &Value) -> String {
    let mut words = vec![shown(&outcome["outcome"])];
    let mut add = |key: &str, before: &str, after: &str| {
        if !outcome[key].is_null() {
            words.push(format!("{before}{}{after}", shown(&outcome[key])));
        }
    };
    add("status", "status ", "");
    add("worker", "by ", "");
    add("prefill", "prefilled by ", "");
    add("ttft-ms", "first token after ", " ms");
    add("duration-ms", "", " ms in all");
    add("prompt-tokens", "", " prompt tokens");
    add("matched-tokens", "", " of them matched");
    add("cached-tokens", "", " cached, as the worker reports");
    add("output-tokens", "", " tokens out");
    words.join(", ")
}
