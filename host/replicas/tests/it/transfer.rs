//! Contents of feeds as bytes, and their way from one router to another.

use kv_index::{
    CacheSnapshot, Holder, IndexLimits, MOST_CHAIN_BLOCKS, SharedPrefixIndex, SnapshotChain, SnapshotGroup,
    SnapshotHold,
};
use proptest::collection::vec;
use proptest::prelude::*;
use replicas::{
    ContentsPosition, FeedContents, FeedKey, FleetHashes, MOST_CONTENTS_BYTES, PART_BYTES, ReceivedPart,
    RouterId, TransferError, TransferId, TransferReceiver, TransferServer,
};
use routing::{Attention, DpRank, Tier, WorkerId};

const POSITION: ContentsPosition = ContentsPosition {
    sequence: 7,
    fingerprint: 8,
    known_from: 0,
};

fn snapshot() -> impl Strategy<Value = CacheSnapshot> {
    let attention = prop_oneof![
        Just(Attention::Full),
        (1..99_u32).prop_map(|tokens| Attention::Window { tokens }),
        Just(Attention::State),
    ];
    let group =
        (any::<u32>(), attention, any::<u32>()).prop_map(|(index, attention, block_size)| SnapshotGroup {
            index,
            attention,
            block_size,
        });
    let tier = prop_oneof![
        Just(Tier::Device),
        Just(Tier::Host),
        Just(Tier::Disk),
        Just(Tier::Shared)
    ];
    let hold = (
        tier,
        any::<u32>(),
        any::<u32>(),
        vec(any::<u64>(), 0..8),
        vec(any::<(u32, u64)>(), 0..3),
    );
    let hold = hold.prop_map(|(tier, group, start, names, further)| SnapshotHold {
        tier,
        group,
        start,
        names,
        further,
    });
    let chain = (
        any::<Option<u64>>(),
        vec(any::<u64>(), 0..=MOST_CHAIN_BLOCKS),
        vec(hold, 0..4),
    );
    let chain = chain.prop_map(|(parent, contents, holds)| SnapshotChain {
        parent,
        contents,
        holds,
    });
    let parts = (
        any::<u32>(),
        vec(group, 0..4),
        vec(any::<u64>(), 0..4),
        vec(chain, 0..6),
    );
    parts.prop_map(|(base, groups, ambiguous, chains)| CacheSnapshot {
        base,
        groups,
        ambiguous,
        chains,
        is_whole: true,
    })
}

fn contents(caches: Vec<CacheSnapshot>) -> FeedContents {
    FeedContents {
        position: POSITION,
        caches: (0..).map(DpRank).zip(caches).collect(),
    }
}

proptest! {
    #[test]
    fn contents_are_read_back(caches in vec(snapshot(), 0..4)) {
        let contents = contents(caches);
        prop_assert_eq!(FeedContents::decode(&contents.encode()), Ok(contents));
    }

    #[test]
    fn damaged_contents_are_refused_or_harmless(
        caches in vec(snapshot(), 1..3),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut bytes = contents(caches).encode();
        let at = at.index(bytes.len());
        bytes[at] = value;
        import(&bytes);
        import(&bytes[..at]);
    }
}

/// Imports contents, if they are readable.
fn import(bytes: &[u8]) {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 12 });
    for (rank, cache) in FeedContents::decode(bytes)
        .into_iter()
        .flat_map(|contents| contents.caches)
    {
        let holder = Holder {
            worker: WorkerId(0),
            rank,
        };
        index.import(holder, &cache);
    }
}

/// Returns a cache of one long chain.
fn long_cache(blocks: usize) -> CacheSnapshot {
    let contents: Vec<u64> = (0..blocks as u64).collect();
    let chains = contents.chunks(MOST_CHAIN_BLOCKS).map(|contents| SnapshotChain {
        parent: contents[0].checked_sub(1),
        contents: contents.to_vec(),
        holds: vec![SnapshotHold {
            tier: Tier::Device,
            group: 0,
            start: 0,
            names: contents.to_vec(),
            further: Vec::new(),
        }],
    });
    CacheSnapshot {
        base: 16,
        groups: vec![SnapshotGroup {
            index: 0,
            attention: Attention::Full,
            block_size: 16,
        }],
        ambiguous: Vec::new(),
        chains: chains.collect(),
        is_whole: true,
    }
}

#[test]
fn contents_beyond_the_limit_are_cut_and_do_not_reach_back_to_the_start() {
    let bytes = contents(vec![long_cache(900_000), long_cache(64)]).encode();
    assert!(bytes.len() <= MOST_CONTENTS_BYTES + 1024, "{}", bytes.len());
    let read = FeedContents::decode(&bytes).unwrap();
    assert_eq!(read.position.known_from, 1);
    let blocks: Vec<usize> = read
        .caches
        .iter()
        .map(|(_, cache)| cache.chains.iter().map(|chain| chain.contents.len()).sum())
        .collect();
    assert!(blocks[0] > 400_000 && blocks[1] == 64, "{blocks:?}");
    let few = contents(vec![long_cache(640)]);
    assert_eq!(
        FeedContents::decode(&few.encode()),
        Ok(few),
        "all of it, as known before"
    );
}

#[test]
fn contents_arrive_in_parts_although_questions_are_repeated() {
    let (to, id) = (
        RouterId(3),
        TransferId {
            number: 5,
            feed: FeedKey(6),
        },
    );
    let contents: Vec<u8> = (0..3 * PART_BYTES + 5).map(|at| at as u8).collect();
    let (mut server, mut now_ms) = (TransferServer::default(), 0);
    server.begin(to, id, contents.clone(), now_ms);
    let mut receiver = TransferReceiver::new(id, FleetHashes::default(), None);
    loop {
        now_ms += 2_000;
        server.expire(now_ms);
        let request = receiver.request();
        assert_eq!(
            server.part(RouterId(4), &request, now_ms),
            None,
            "it is another router's"
        );
        let part = server.part(to, &request, now_ms).unwrap();
        if request.part < 3 {
            assert_eq!(server.part(to, &request, now_ms), Some(part.clone()));
        }
        match receiver.receive(part.clone()).unwrap() {
            ReceivedPart::All(bytes) => {
                assert!(bytes == contents);
                break;
            }
            step => assert_eq!(step, ReceivedPart::Next),
        }
        assert_eq!(receiver.receive(part), Ok(ReceivedPart::Ignored));
    }
    assert_eq!(
        server.part(to, &receiver.request(), now_ms),
        None,
        "the last part ends it"
    );
}

#[test]
fn parts_that_do_not_fit_end_a_transfer() {
    let id = TransferId {
        number: 5,
        feed: FeedKey(6),
    };
    let part = |part, parts| replicas::TransferPart {
        id,
        part,
        parts,
        bytes: vec![1],
    };
    let mut receiver = TransferReceiver::new(id, FleetHashes::default(), None);
    assert_eq!(
        receiver.receive(part(1, 3)),
        Err(TransferError::Part),
        "part 0 is missing"
    );
    let mut receiver = TransferReceiver::new(id, FleetHashes::default(), None);
    receiver.receive(part(0, 3)).unwrap();
    assert_eq!(
        receiver.receive(part(1, 4)),
        Err(TransferError::Part),
        "there were 3 parts"
    );
}

#[test]
fn a_router_keeps_few_transfers_and_only_for_a_time() {
    let mut server = TransferServer::default();
    for number in 0..9 {
        let id = TransferId {
            number,
            feed: FeedKey(6),
        };
        server.begin(RouterId(1), id, vec![1], 0);
    }
    assert!(!server.has_room());
    server.expire(60_000);
    assert!(server.has_room());
}
