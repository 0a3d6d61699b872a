//! Every layout of a removal, and every form of a block's hash.

use routing::{BlockEvent, EngineBlockHash, RemovedBlocks, Tier};

use crate::encode::{Value, array, bin, ints, map, nil, text};
use crate::event::check;

#[track_caller]
fn check_removed(event: Value, hashes: &[u64], tier: Option<Tier>, group: u32) {
    let hashes = hashes.iter().copied().map(EngineBlockHash).collect();
    check(event, BlockEvent::Removed(RemovedBlocks { hashes, tier, group }));
}

#[test]
fn reads_arrays_of_every_length_and_maps_in_any_order() {
    let fields = [
        text("BlockRemoved"),
        ints(&[7, 8]),
        text("GPU"),
        Value::Int(3),
        text("later"),
    ];
    check_removed(array(fields[..2].to_vec()), &[7, 8], None, 0);
    check_removed(array(fields[..3].to_vec()), &[7, 8], Some(Tier::Device), 0);
    check_removed(array(fields[..4].to_vec()), &[7, 8], Some(Tier::Device), 3);
    check_removed(array(fields.to_vec()), &[7, 8], Some(Tier::Device), 3);
    let type_last = map([
        ("medium", text("Disk")),
        ("locality", text("LOCAL")),
        ("block_hashes", ints(&[7])),
        ("group_idx", nil()),
        ("type", text("BlockRemoved")),
    ]);
    check_removed(type_last, &[7], Some(Tier::Disk), 0);
    check_removed(array([text("BlockRemoved"), array([])]), &[], None, 0);
}

#[test]
fn a_removal_that_names_no_medium_is_from_every_tier() {
    // Dynamo's mocker has a number in the medium's place.
    for medium in [nil(), Value::Int(0)] {
        check_removed(array([text("BlockRemoved"), ints(&[7]), medium]), &[7], None, 0);
    }
}

#[test]
fn unknown_fields_of_a_clear_event_are_ignored() {
    check(array([text("AllBlocksCleared")]), BlockEvent::Cleared);
    check(
        array([text("AllBlocksCleared"), text("later")]),
        BlockEvent::Cleared,
    );
    check(map([("type", text("AllBlocksCleared"))]), BlockEvent::Cleared);
    check(
        map([("medium", text("TAPE")), ("type", text("AllBlocksCleared"))]),
        BlockEvent::Cleared,
    );
}

#[test]
fn reduces_every_form_of_hash_to_the_same_64_bits() {
    let digest: Vec<u8> = (0..32).collect();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let high = [0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8];
    let forms = [
        (Value::Int(5), 5),
        (Value::Int(-5), 0xffff_ffff_ffff_fffb),
        (Value::Int(i64::MIN), 1 << 63),
        (Value::Uint(u64::MAX), u64::MAX),
        (bin(&digest), 0x1819_1a1b_1c1d_1e1f),
        (bin(&digest[..16]), 0x0809_0a0b_0c0d_0e0f),
        (bin(&digest[..8]), 0x0001_0203_0405_0607),
        (bin(&high), 0xfffe_fdfc_fbfa_f9f8),
        // Bytes in an encoder that has no binary type, and digests spelt out.
        (Value::RawText(digest[..8].to_vec()), 0x0001_0203_0405_0607),
        (Value::RawText(high.to_vec()), 0xfffe_fdfc_fbfa_f9f8),
        (text(&hex), 0x1819_1a1b_1c1d_1e1f),
        (text(&format!("0x{hex}")), 0x1819_1a1b_1c1d_1e1f),
        (text(&hex[..16]), 0x0001_0203_0405_0607),
    ];
    for (form, expected) in forms {
        check_removed(array([text("BlockRemoved"), array([form])]), &[expected], None, 0);
    }
}
