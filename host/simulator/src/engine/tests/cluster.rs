//! Tests of transfers between workers, and of the loss of a worker.

use super::*;

/// Returns a cluster whose worker 0 has computed blocks 1 to 10.
fn warm(transfers: Transfers, workers: usize) -> Cluster {
    let spec = ClusterSpec {
        transfers,
        ..prefill_only(workers)
    };
    let mut cluster = Cluster::new(&spec, BLOCK);
    cluster.submit(0, 0, job(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
    finish(&mut cluster);
    cluster
}

fn fetching(request: usize, last: u64) -> Job {
    Job {
        fetch: Some(Fetch { from: 0, blocks: 10 }),
        ..job(request, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, last])
    }
}

const START: u64 = 1_000 * MS;

#[test]
fn a_transfer_that_holds_its_receiver_holds_no_other_worker() {
    let mut cluster = warm(Transfers::HoldReceiver, 3);
    cluster.submit(START, 1, fetching(1, 21));
    cluster.submit(START, 1, job(3, &[31]));
    cluster.submit(START, 2, fetching(2, 22));
    let events = finish(&mut cluster);
    // 10 ms for 100 tokens, 11 for the rest.
    assert_eq!(
        computed(&events),
        [(1, 1_021, 100), (2, 1_021, 100), (3, 1_032, 0)]
    );
}

#[test]
fn transfers_share_their_senders_link_while_others_compute() {
    let mut cluster = warm(Transfers::ShareSender, 3);
    cluster.submit(START, 1, fetching(1, 21));
    cluster.submit(START, 2, fetching(2, 22));
    cluster.submit(START, 1, job(3, &[31]));
    let events = finish(&mut cluster);
    // Both arrive after 20 ms. Worker 1 has computed the other prompt meanwhile.
    assert_eq!(
        computed(&events),
        [(3, 1_011, 0), (1, 1_031, 100), (2, 1_031, 100)]
    );
}

#[test]
fn only_what_is_missing_here_and_present_there_is_sent() {
    let mut cluster = warm(Transfers::ShareSender, 2);
    cluster.submit(500 * MS, 1, job(1, &[1, 2, 3, 4]));
    finish(&mut cluster);
    let fetch = Some(Fetch { from: 0, blocks: 99 });
    cluster.submit(
        START,
        1,
        Job {
            fetch,
            ..fetching(2, 21)
        },
    );
    assert_eq!(cluster.next_at(), Some(START + 6 * MS), "60 tokens");
    assert_eq!(computed(&finish(&mut cluster)), [(2, 1_017, 100)]);
    cluster.submit(
        2 * START,
        1,
        Job {
            fetch,
            ..job(3, &[71])
        },
    );
    assert_eq!(
        computed(&finish(&mut cluster)),
        [(3, 2_011, 0)],
        "worker 0 does not have it"
    );
}

#[test]
fn a_decode_worker_gets_the_prompt_over_the_prefill_workers_link() {
    let mut spec = mixed(2);
    spec.workers[0].role = Role::Prefill;
    spec.workers[1].role = Role::Decode;
    let mut cluster = Cluster::new(&spec, BLOCK);
    let whole = fetching(1, 11);
    cluster.submit(
        0,
        0,
        Job {
            kind: JobKind::Prefill,
            fetch: None,
            ..whole.clone()
        },
    );
    assert_eq!(computed(&finish(&mut cluster)), [(1, 111, 0)]);
    let fetch = Some(Fetch { from: 0, blocks: 11 });
    cluster.submit(
        111 * MS,
        1,
        Job {
            kind: JobKind::Decode { first_us: None },
            fetch,
            ..whole
        },
    );
    // 11 ms on the link, a step of 10 ms and 110 µs.
    assert_eq!(finish(&mut cluster)[0].at_us, 132_110);
    let found = cluster.workers()[1].cache().matched(&[1, 2, 3]);
    assert_eq!(found.any, 3, "it has the prompt now");
}

#[test]
fn a_worker_that_fails_loses_its_requests_and_its_cache() {
    let mut cluster = warm(Transfers::ShareSender, 2);
    cluster.submit(START, 0, job(5, &[51]));
    cluster.submit(START, 0, job(4, &[41]));
    assert_eq!(cluster.fail(START + MS, 0), [4, 5]);
    assert_eq!(cluster.next_at(), None);
    assert_eq!(cluster.workers()[0].cache().matched(&[1]).any, 0);
    cluster.submit(START + MS, 0, job(6, &[1]));
    assert_eq!(computed(&finish(&mut cluster)), [(6, 1_012, 0)]);
}

#[test]
fn a_prompt_whose_source_fails_is_computed_and_an_answer_without_its_prompt_is_lost() {
    let mut cluster = warm(Transfers::ShareSender, 3);
    cluster.submit(START, 1, fetching(1, 21));
    cluster.submit(
        START,
        2,
        Job {
            kind: JobKind::Decode { first_us: None },
            ..fetching(2, 22)
        },
    );
    cluster.submit(START, 0, job(3, &[31]));
    assert_eq!(cluster.fail(START + MS, 0), [2, 3]);
    assert_eq!(computed(&finish(&mut cluster)), [(1, 1_112, 0)]);
}

#[test]
fn the_link_of_a_receiver_that_fails_is_free_again() {
    let mut cluster = warm(Transfers::ShareSender, 3);
    cluster.submit(START, 1, fetching(1, 21));
    cluster.submit(START, 2, fetching(2, 22));
    assert_eq!(cluster.fail(START + 10 * MS, 1), [1]);
    // Half was sent in 10 ms, the rest takes 5.
    assert_eq!(computed(&finish(&mut cluster)), [(2, 1_026, 100)]);
}
