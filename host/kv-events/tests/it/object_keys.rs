//! The grammars of object keys.

use kv_events::{ObjectKeyError, parse_object_key};
use routing::{EngineBlockHash, Shard};

/// SHA-256 of nothing: its first and last 64 bits differ.
const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const FIRST: u64 = 0xe3b0_c442_98fc_1c14;
const LAST: u64 = 0xa495_991b_7852_b855;

#[track_caller]
fn check(key: &str, model: &str, block: u64, shard: Shard) {
    let object = parse_object_key(key).unwrap_or_else(|error| panic!("{key}: {error}"));
    assert_eq!(&*object.model, model, "{key}");
    assert_eq!(object.block, EngineBlockHash(block), "{key}");
    assert_eq!(object.shard, shard, "{key}");
}

#[track_caller]
fn check_refused(keys: &[String], error: ObjectKeyError) {
    for key in keys {
        assert_eq!(parse_object_key(key), Err(error), "{key}");
    }
}

#[test]
fn reads_vllms_keys_with_and_without_a_group() {
    let shard = Shard {
        tensor: 2,
        prefill_context: 1,
        decode_context: 4,
        pipeline: 3,
        ..Shard::default()
    };
    let ranks = "tp_rank:2@pcp1@dcp4@pp_rank:3";
    check(&format!("org/m@{ranks}@{DIGEST}"), "org/m", LAST, shard);
    let grouped = Shard { group: 7, ..shard };
    check(&format!("m@{ranks}@group:7@{DIGEST}"), "m", LAST, grouped);
    // xxhash digests have 16 bytes, and hexadecimal comes in both cases.
    check(
        &format!("m@{ranks}@group:7@00000000000000000000000000000aBc"),
        "m",
        0xabc,
        grouped,
    );
}

#[test]
fn a_rank_that_a_key_does_not_name_is_the_first() {
    let shard = Shard {
        tensor: 3,
        ..Shard::default()
    };
    check(&format!("m@tp_rank:3@group:0@{DIGEST}"), "m", LAST, shard);
}

#[test]
fn takes_a_prefix_and_a_namespace_for_parts_of_the_model() {
    let tail = format!("tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@{DIGEST}");
    for model in [
        "deployment-a@m",
        "a@b@org/m",
        "m@store_tp:4@store_pp:1@store_format:lbhnc",
        "a@m@store_pp:1@store_format:rank_local_tp2_layout_NHD",
    ] {
        check(&format!("{model}@{tail}"), model, LAST, Shard::default());
    }
}

#[test]
fn reads_vllm_ascends_keys_of_blocks_and_of_layers() {
    let shard = Shard {
        tensor: 5,
        prefill_context: 1,
        pipeline: 2,
        ..Shard::default()
    };
    check(
        &format!("m@pcp1@dcp0@head_or_tp_rank:5@pp_rank:2@{DIGEST}"),
        "m",
        LAST,
        shard,
    );
    let layer = Shard {
        layer: 31,
        pipeline: 0,
        ..shard
    };
    check(
        &format!("m@pcp1@dcp0@head_or_tp_rank:5@{DIGEST}@31"),
        "m",
        LAST,
        layer,
    );
    let later = "group:3@cache_role:kv@cache_family:c4";
    check(
        &format!("m@pcp1@dcp0@head_or_tp_rank:5@pp_rank:2@{later}@{DIGEST}"),
        "m",
        LAST,
        Shard { group: 3, ..shard },
    );
    check(
        &format!("m@pcp:1@dcp:0@head_or_tp_rank:5@{later}@layer_id:31@{DIGEST}"),
        "m",
        LAST,
        Shard { group: 3, ..layer },
    );
}

#[test]
fn reads_sglangs_keys_by_the_end_of_the_digest_that_its_events_announce() {
    for (suffix, tensor, pipeline, part) in [
        ("0_k", 0, 0, 0),
        ("7_v", 7, 0, 1),
        ("7_1_k", 7, 1, 0),
        ("7_1_v", 7, 1, 1),
        // MLA: one object for all ranks, later and earlier.
        ("_k", 0, 0, 0),
        ("k", 0, 0, 0),
    ] {
        let shard = Shard {
            tensor,
            pipeline,
            part,
            ..Shard::default()
        };
        check(&format!("{DIGEST}_{suffix}"), "", FIRST, shard);
        check(
            &format!("tag_org-my_model_{DIGEST}_{suffix}"),
            "tag_org-my_model",
            FIRST,
            shard,
        );
    }
}

#[test]
fn reads_bare_numbers_as_the_block_itself() {
    for (key, block) in [
        ("123456789", 123_456_789),
        ("18446744073709551615", u64::MAX),
        ("0xdeadbeefcafef00d", 0xdead_beef_cafe_f00d),
        ("0X2a", 42),
    ] {
        check(key, "", block, Shard::default());
    }
}

#[test]
fn refuses_keys_of_no_grammar() {
    let keys = [
        String::new(),
        "weights/layer.0".into(),
        "+5".into(),
        "0x".into(),
        "0x+5".into(),
        // One more than 64 bits hold.
        "18446744073709551616".into(),
        "0x10000000000000000".into(),
        format!("sglang_mooncake_store_warmup_key{}", &DIGEST[..32]),
        DIGEST.into(),
        format!("m@{DIGEST}"),
        format!("m@pp_rank:0@{DIGEST}"),
        "@".into(),
    ];
    check_refused(&keys, ObjectKeyError::Unknown);
}

#[test]
fn refuses_hashes_and_ranks_that_cannot_be() {
    let keys = [
        "tiny@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@5f2ac0ffee".into(),
        "m@tp_rank:0@pcp0@dcp0@pp_rank:0@".into(),
        "m@tp_rank:0@pcp0@dcp0@pp_rank:0@not-hexadecimal-at-all".into(),
        format!("@tp_rank:0@pcp0@dcp0@pp_rank:0@{DIGEST}"),
        format!("m@tp_rank:65536@pcp0@dcp0@pp_rank:0@{DIGEST}"),
        format!("m@tp_rank:-1@pcp0@dcp0@pp_rank:0@{DIGEST}"),
        format!("m@tp_rank:@pcp0@dcp0@pp_rank:0@{DIGEST}"),
        format!("m@tp_rank:0@tp_rank:1@{DIGEST}"),
        format!("m@tp_rank:0@head_or_tp_rank:1@{DIGEST}"),
        format!("m@pcp0@dcp0@head_or_tp_rank:5@{DIGEST}@70000"),
        format!("m@group:0:attention@{DIGEST}"),
        format!("{DIGEST}_65536_k"),
    ];
    check_refused(&keys, ObjectKeyError::Bad);
}

#[test]
fn separates_objects_beside_the_blocks() {
    let keys = [
        format!("m@pcp0@dcp0@head_or_tp_rank:0@pp_rank:0@group:0@cache_role:state@cache_family:c1@{DIGEST}"),
        format!("{DIGEST}_0_draft_k"),
        format!("{DIGEST}_0_temporal"),
        format!("{DIGEST}_0_conv_1"),
        format!("{DIGEST}__indexer"),
        format!("m_{DIGEST}_0_swa_v"),
    ];
    check_refused(&keys, ObjectKeyError::Sidecar);
}
