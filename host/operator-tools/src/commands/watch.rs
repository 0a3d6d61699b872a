//! Commands that show pages once, or again and again.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::fleet_table::TableLook;
use super::screen::LiveScreen;
use crate::admin::{AdminClient, RemoteError, RouterAnswer, RouterSet};
use crate::args::{RouterArgs, WatchArgs};
use crate::{Exit, paint, print};

/// Shows the text of the routers' pages.
pub(super) fn show(
    args: &RouterArgs,
    watch: &WatchArgs,
    query: impl AsyncFn(&AdminClient) -> Result<Value, RemoteError>,
    text: impl Fn(&[RouterAnswer], TableLook) -> String,
) -> Result<Exit> {
    let routers = RouterSet::of(args)?;
    if !watch.watch {
        let look = TableLook {
            is_coloured: paint::on_stdout(),
            width: None,
            is_several: routers.is_several(),
        };
        let answers = routers.every(|client| query(client));
        return routers.print(&answers, &text(&answers, look));
    }
    let pause = Duration::from_secs_f64(watch.interval);
    let mut screen = (!routers.is_json()).then(LiveScreen::open).transpose()?;
    // One listener for all waits: a signal between two of them, or during a query, is not lost.
    let mut interrupts = routers.wait(async { signal(SignalKind::interrupt()) })?;
    let mut shown = 0;
    loop {
        let answers = routers.wait(async {
            tokio::select! {
                answers = routers.each(|client| query(client)) => Some(answers),
                _ = interrupts.recv() => None,
            }
        });
        let Some(answers) = answers else {
            return Ok(Exit::Interrupted);
        };
        let has_reader = match &mut screen {
            Some(screen) => {
                let look = screen.look(routers.is_several());
                screen.show(&format!("{}{}", text(&answers, look), failures(&answers)))?
            }
            None => write_json(&routers, &answers)?,
        };
        shown += 1;
        if !has_reader {
            return Ok(Exit::Success);
        }
        if watch.count.is_some_and(|count| shown >= count) {
            let is_failed = answers.iter().any(|answer| answer.page.is_err());
            return Ok(if is_failed { Exit::Failure } else { Exit::Success });
        }
        let is_interrupted = routers.wait(async {
            tokio::select! {
                () = sleep(pause) => false,
                _ = interrupts.recv() => true,
            }
        });
        if is_interrupted {
            return Ok(Exit::Interrupted);
        }
    }
}

/// Writes the pages as a line. A failure of the only router goes to standard error, in place of a page.
fn write_json(routers: &RouterSet, answers: &[RouterAnswer]) -> Result<bool> {
    let failed = failures(answers);
    if !routers.is_several() && !failed.is_empty() {
        eprint!("conductor: {failed}");
        return Ok(true);
    }
    print::write(format!("{}\n", routers.as_json(answers)))
}

/// Returns a line for each router that did not answer.
pub(super) fn failures(answers: &[RouterAnswer]) -> String {
    let failed = answers.iter().filter_map(|answer| answer.page.as_ref().err());
    failed.map(|error| format!("{error}\n")).collect()
}
