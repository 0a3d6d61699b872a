//! Every layout of a store of blocks, from payloads written here by hand: these claims hold without the captures.

use kv_events::decode_batch;
use routing::{Attention, BlockEvent, EngineBlockHash, ExtraKey, Lora, Tier};

use crate::encode::{Value, array, bin, ints, map, nil, text};
use crate::event::{check_stored, stored_array, stored_map};

#[test]
fn reads_arrays_of_every_length_the_engines_ever_sent() {
    let (gpu, cpu) = (text("GPU"), text("CPU"));
    check_stored(stored_array(&[]), |_| {});
    check_stored(stored_array(&[nil()]), |_| {});
    check_stored(stored_array(&[nil(), gpu]), |_| {});
    check_stored(stored_array(&[Value::Int(3), cpu.clone()]), |stored| {
        stored.lora = Some(Lora::Id(3));
        stored.tier = Tier::Host;
    });
    check_stored(stored_array(&[Value::Int(3), cpu, text("ad")]), |stored| {
        stored.lora = Some(Lora::Name("ad".into()));
        stored.tier = Tier::Host;
    });
}

#[test]
fn reads_the_later_fields_of_an_array_and_steps_over_those_it_does_not_know() {
    let keys = array([array([text("salt")]), nil()]);
    let fields = [
        nil(),
        text("GPU"),
        nil(),
        keys,
        Value::Int(1),
        text("sliding_window"),
        Value::Int(128),
        text("later"),
        map([("later still", ints(&[1]))]),
    ];
    // Nine to thirteen fields and two unknown ones: each version only appended.
    for count in 4..=fields.len() {
        check_stored(stored_array(&fields[..count]), |stored| {
            stored.extra_keys = vec![vec![ExtraKey::Text("salt".into())], vec![]];
            stored.group = u32::from(count > 4);
            stored.attention = match count {
                0..=5 => Attention::Full,
                6 => Attention::Unknown,
                _ => Attention::Window { tokens: 128 },
            };
        });
    }
}

#[test]
fn reads_maps_in_any_order_and_ignores_keys_it_does_not_know() {
    check_stored(stored_map(&[]), |_| {});
    check_stored(
        stored_map(&[
            ("locality", text("LOCAL")),
            ("ownership", text("fs")),
            ("session_id", text("s")),
            ("new", map([("a", ints(&[1]))])),
        ]),
        |_| {},
    );
    let names = [("lora_name", text("ad")), ("lora_id", Value::Int(1))];
    check_stored(stored_map(&names), |stored| {
        stored.lora = Some(Lora::Name("ad".into()));
    });
}

#[test]
fn ignores_map_keys_that_are_no_text() {
    let Value::Map(pairs) = stored_map(&[]) else {
        unreachable!("stored_map makes a map")
    };
    let mut pairs: Vec<_> = pairs
        .into_iter()
        .map(|(name, value)| (text(&name), value))
        .collect();
    pairs.insert(1, (Value::Int(7), ints(&[1, 2])));
    pairs.push((array([nil()]), nil()));
    check_stored(Value::Pairs(pairs), |_| {});
}

#[test]
fn puts_media_on_tiers_in_any_case() {
    let media = [
        ("GPU", Tier::Device),
        ("gpu", Tier::Device),
        ("CPU", Tier::Host),
        ("cpu", Tier::Host),
        ("CPU_PINNED", Tier::Host),
        ("cpu_pinned", Tier::Host),
        ("DISK", Tier::Disk),
        ("Disk", Tier::Disk),
        ("STORAGE", Tier::Shared),
        ("EXTERNAL", Tier::Shared),
        ("external", Tier::Shared),
    ];
    for (medium, tier) in media {
        check_stored(stored_map(&[("medium", text(medium))]), |stored| {
            stored.tier = tier;
        });
    }
    check_stored(stored_map(&[("medium", nil())]), |_| {});
}

#[test]
fn the_attention_of_each_kind_of_cache_group_is_known() {
    let window = Some(4096);
    let wide = Attention::Window { tokens: 4096 };
    for (kind, width, needed) in [
        ("full_attention", None, Attention::Full),
        ("full_attention", window, Attention::Full),
        ("mla_attention", None, Attention::Full),
        ("sink_full_attention", None, Attention::Full),
        ("sliding_window", window, wide),
        ("sliding_window", None, Attention::Unknown),
        ("sliding_window", Some(0), Attention::Unknown),
        ("sliding_window_mla", window, wide),
        ("chunked_local_attention", None, Attention::Unknown),
        ("chunked_local_attention", window, wide),
        ("mamba", None, Attention::State),
        ("encoder_only_attention", None, Attention::Unknown),
        ("cross_attention", None, Attention::Unknown),
        ("unknown", None, Attention::Unknown),
        ("newer", None, Attention::Unknown),
    ] {
        let width = width.map_or_else(nil, Value::Int);
        let event = stored_map(&[
            ("kv_cache_spec_kind", text(kind)),
            ("kv_cache_spec_sliding_window", width),
            ("group_idx", Value::Int(2)),
        ]);
        check_stored(event, |stored| {
            stored.attention = needed;
            stored.group = 2;
        });
    }
}

#[test]
fn keeps_every_extra_key_with_its_block_and_lays_nested_ones_flat() {
    // An adapter's name, an image with its offset (which may lie before the block), and a digest of embeddings.
    let keys = array([
        array([text("ad"), array([text("image"), Value::Int(-4)]), bin(&[9])]),
        nil(),
    ]);
    check_stored(stored_map(&[("extra_keys", keys)]), |stored| {
        let first = vec![
            ExtraKey::Text("ad".into()),
            ExtraKey::Text("image".into()),
            ExtraKey::Int(-4),
            ExtraKey::Bytes([9].into()),
        ];
        stored.extra_keys = vec![first, vec![]];
    });
}

#[test]
fn keeps_no_lists_of_extra_keys_where_no_block_has_any() {
    check_stored(stored_map(&[("extra_keys", array([nil(), nil()]))]), |_| {});
    check_stored(stored_map(&[("extra_keys", array([array([]), nil()]))]), |_| {});
}

#[test]
fn moves_a_salt_of_the_event_into_the_first_block_of_a_chain() {
    check_stored(stored_map(&[("cache_salt", text("s"))]), |stored| {
        stored.extra_keys = vec![vec![ExtraKey::Text("s".into())], vec![]];
    });
    let inside = [("cache_salt", text("s")), ("parent_block_hash", Value::Int(-10))];
    check_stored(stored_map(&inside), |stored| {
        stored.parent = Some(EngineBlockHash((-10_i64).cast_unsigned()));
    });
}

/// SGLang 0.5.18 and 0.5.19 append a map to the array of a salted request's store, where vLLM has the adapter's name.
#[test]
fn reads_the_salt_of_a_map_behind_the_medium() {
    let other = ("other", Value::Int(1));
    let metadata = map([other.clone(), ("cache_salt", text("s"))]);
    check_stored(stored_array(&[nil(), text("GPU"), metadata]), |stored| {
        stored.extra_keys = vec![vec![ExtraKey::Text("s".into())], vec![]];
    });
    let unsalted = stored_array(&[nil(), text("GPU"), map([other])]);
    check_stored(unsalted, |_| {});
}

#[test]
fn takes_an_adapter_number_that_is_not_positive_for_the_base_model() {
    check_stored(stored_array(&[Value::Int(0)]), |_| {});
    check_stored(stored_array(&[Value::Int(-1)]), |_| {});
    check_stored(stored_map(&[("lora_name", text(""))]), |_| {});
}

#[test]
fn reads_pages_of_one_token() {
    let pages = [
        ("block_hashes", ints(&[11, 12, 13, 14])),
        ("block_size", Value::Int(1)),
    ];
    check_stored(stored_map(&pages), |stored| {
        stored.hashes = (11..=14).map(EngineBlockHash).collect();
        stored.block_size = 1;
    });
}

/// vLLM 0.32 announces the checkpoint of a state-space group inside a block as a block of its own, as long as its
/// tokens, whose parent is the hash one hash unit before it.
#[test]
fn reads_a_partial_block_as_a_block_of_its_own_size() {
    let partial = [
        ("block_hashes", ints(&[13])),
        ("parent_block_hash", Value::Int(12)),
        ("token_ids", ints(&[5])),
        ("block_size", Value::Int(1)),
        ("kv_cache_spec_kind", text("mamba")),
    ];
    check_stored(stored_map(&partial), |stored| {
        stored.hashes = vec![EngineBlockHash(13)];
        stored.parent = Some(EngineBlockHash(12));
        stored.tokens = vec![5];
        stored.block_size = 1;
        stored.attention = Attention::State;
    });
}

#[test]
fn a_store_of_nothing_is_one() {
    let nothing = [("block_hashes", array([])), ("token_ids", array([]))];
    check_stored(stored_map(&nothing), |stored| {
        stored.hashes.clear();
        stored.tokens.clear();
    });
}

#[test]
fn reads_token_ids_in_every_width_of_integer() {
    let mut payload = vec![0x92, 0xc0, 0x91, 0x95, 0xab];
    payload.extend(b"BlockStored");
    payload.extend([0x91, 11, 0xc0, 0x99, 1]);
    payload.extend([
        0xcc, 2, 0xcd, 0, 3, 0xce, 0, 0, 0, 4, 0xcf, 0, 0, 0, 0, 0, 0, 0, 5,
    ]);
    payload.extend([
        0xd0, 6, 0xd1, 0, 7, 0xd2, 0, 0, 0, 8, 0xd3, 0, 0, 0, 0, 0, 0, 0, 9,
    ]);
    payload.push(9);
    let batch = decode_batch(&payload).unwrap();
    let [BlockEvent::Stored(stored)] = &batch.events[..] else {
        panic!("{batch:?}")
    };
    assert_eq!(stored.tokens, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}
