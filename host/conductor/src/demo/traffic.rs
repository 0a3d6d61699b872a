//! Traffic of the demo: conversations without end, so that the dashboard has something to show.

use std::convert::Infallible;
use std::future;
use std::time::Duration;

use mock_engine::workload::{Driver, Workload};

/// Pause before the next round, if a round ends at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Plays conversations against a router until it is dropped. `None` sends nothing.
pub(super) async fn send(base_url: Option<String>, seed: u64) -> Infallible {
    let Some(base_url) = base_url else {
        return future::pending().await;
    };
    let driver = Driver {
        base_url,
        ..Driver::default()
    };
    for round in 0_u64.. {
        let mut sessions = workload(seed.wrapping_add(round)).multi_turn();
        for session in &mut sessions {
            session.name = format!("round-{round}-{}", session.name);
        }
        // Failures are the router's to show: the dashboard counts them.
        drop(driver.run(&sessions).await);
        tokio::time::sleep(PAUSE).await;
    }
    future::pending().await
}

/// Conversations of some five requests a second together, whose system prompts are shared.
fn workload(seed: u64) -> Workload {
    Workload {
        seed,
        sessions: 24,
        turns: 5,
        system_prompts: 6,
        system_tokens: 400,
        user_tokens: 80,
        answer_tokens: 48,
        think_time: Duration::from_secs(3),
        ramp: Duration::from_secs(6),
        ..Workload::default()
    }
}
