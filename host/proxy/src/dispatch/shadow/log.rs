//! Decision log of shadows: one line of a file for each decision, if a file is written. The log contains no prompt, and
//! no header but the request's id.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use routing::FaultKind;

use super::Shadow;
use super::captured::CapturedPlacement;
use super::metrics::ResultKind;
use super::record::ShadowVerdict;
use crate::record::{ChoiceLine, ShadowLine, unix_us};

/// Log entry of one decision, besides the captured state.
pub(super) struct LoggedAnswer {
    pub(super) answer: ShadowVerdict,
    pub(super) result: ResultKind,
    /// Version that answered. `None` where none was called.
    pub(super) version: Option<Arc<str>>,
    pub(super) took: Duration,
}

/// Sends a line to the log, where a file is configured.
pub(super) fn write(captured: &CapturedPlacement, shadow: &Shadow, logged: &LoggedAnswer) {
    let request = &captured.request;
    let recorder = &request.settings.record.recorder;
    if !recorder.writes_shadows() {
        return;
    }
    let label = &shadow.record.label;
    let placed = match logged.answer {
        ShadowVerdict::Placed { answers, prefills } => Some((answers, prefills)),
        _ => None,
    };
    recorder.write_shadow(ShadowLine {
        unix_us: unix_us(SystemTime::now()),
        request: String::from_utf8_lossy(request.head.id.as_bytes()).into_owned(),
        seq: request.head.seq,
        attempt: captured.state.attempt,
        pool: label.pool.clone(),
        route: label.route.clone(),
        result: logged.result.as_str(),
        fault: match logged.answer {
            ShadowVerdict::Fault(kind) => Some(FaultKind::as_str(kind)),
            _ => None,
        },
        active: captured.active(),
        shadow: ChoiceLine {
            policy: Some(label.policy.clone()),
            version: logged.version.as_deref().map(str::to_owned),
            ..captured.choice(placed)
        },
        took_us: logged.took.as_nanos() as f64 / 1e3,
    });
}

impl CapturedPlacement {
    /// Returns the active policy's choice: its name, and the workers it chose.
    fn active(&self) -> ChoiceLine {
        let header = self.decided_by.as_ref().and_then(|header| header.to_str().ok());
        let (policy, version) = header.and_then(|header| header.rsplit_once('@')).unzip();
        ChoiceLine {
            policy: policy.map(str::to_owned),
            version: version.map(str::to_owned),
            ..self.choice(self.placed())
        }
    }

    /// Returns the rows of a choice, the prefill worker's second.
    fn choice(&self, placed: Option<(usize, Option<usize>)>) -> ChoiceLine {
        let Some((answers, prefills)) = placed else {
            return ChoiceLine::default();
        };
        let name = |row| self.pick(row).worker.into_string();
        let pick = self.pick(prefills.unwrap_or(answers));
        ChoiceLine {
            worker: Some(name(answers)),
            prefill: prefills.map(name),
            matched_tokens: pick.matched,
            tokens_ahead: Some(pick.ahead),
            predicted_ttft_ms: pick.ttft_ms,
            requests: Some(pick.requests),
            ..ChoiceLine::default()
        }
    }
}
