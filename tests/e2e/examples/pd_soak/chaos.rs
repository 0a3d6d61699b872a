//! Faults of one engine: it alternates between health and some fault.

use std::sync::Arc;

use harness::Random;
use http::StatusCode;
use mock_engine::{EngineGone, PdDialect, RequestFault, Times};

use crate::pool::{Pool, Trouble};

/// A prompt stays well within the router's timeouts.
const SLOW_FACTOR: f64 = 4.0;

/// Plays faults until it is dropped.
pub(crate) async fn play(pool: Arc<Pool>, engine: usize, seed: u64) {
    let mut random = Random::new(seed);
    loop {
        tokio::time::sleep(random.ms(500, 6_000)).await;
        let trouble = pick(&pool, engine, &mut random);
        pool.begins(engine, trouble);
        // The soak's engines are there to its end.
        let begun = begin(&pool, engine, trouble, &mut random).await;
        if trouble != Trouble::Restart {
            tokio::time::sleep(random.ms(100, 2_000)).await;
        }
        let ended = end(&pool, engine, trouble).await;
        pool.ends(engine);
        if begun.and(ended).is_err() {
            return;
        }
    }
}

fn pick(pool: &Pool, engine: usize, random: &mut Random) -> Trouble {
    const ANY: [Trouble; 5] = [
        Trouble::Restart,
        Trouble::Outage,
        Trouble::Busy,
        Trouble::Cut,
        Trouble::Slow,
    ];
    const PREFILL: [Trouble; 2] = [Trouble::Bootstrap, Trouble::Lapse];
    let further = match pool.dialect {
        _ if !Pool::is_prefill(engine) => &[],
        PdDialect::Mooncake => &PREFILL[..],
        PdDialect::Sglang => &PREFILL[..1],
        PdDialect::Nixl | PdDialect::Store => &PREFILL[1..],
    };
    let at = random.below(ANY.len() + further.len());
    ANY.iter()
        .chain(further)
        .nth(at)
        .copied()
        .unwrap_or(Trouble::Restart)
}

async fn begin(pool: &Pool, engine: usize, trouble: Trouble, random: &mut Random) -> Result<(), EngineGone> {
    let faults = pool.engine(engine).faults();
    match trouble {
        Trouble::Restart => return faults.restart(None).await,
        Trouble::Outage => return faults.refuse_connections().await,
        Trouble::Bootstrap => return faults.bootstrap_down(true).await,
        Trouble::Busy => {
            let fault = RequestFault::Status {
                status: StatusCode::SERVICE_UNAVAILABLE,
                retry_after: Some(1),
            };
            faults.on_requests(fault, Times::UntilCleared);
        }
        Trouble::Cut => {
            let after_tokens = 1 + random.below(20) as u32;
            let times = Times::Next(1 + random.below(4) as u32);
            faults.on_requests(RequestFault::Cut { after_tokens }, times);
        }
        Trouble::Slow => faults.slow_down(SLOW_FACTOR),
        Trouble::Lapse => {
            faults.lose_transfer_params(true);
            faults.stop_at_first_token(true);
        }
    }
    Ok(())
}

async fn end(pool: &Pool, engine: usize, trouble: Trouble) -> Result<(), EngineGone> {
    let faults = pool.engine(engine).faults();
    faults.clear();
    match trouble {
        Trouble::Outage => {
            faults.restart(None).await?;
            faults.accept_connections().await
        }
        Trouble::Bootstrap => faults.bootstrap_down(false).await,
        _ => Ok(()),
    }
}
