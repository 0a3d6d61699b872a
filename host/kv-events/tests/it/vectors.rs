//! The collected payloads of every layout seen in the field, each with what must become of its events.

use kv_events::{decode_batch, decode_objects};
use routing::{Attention, BlockEvent, Lora, ObjectEvent};

use crate::captures::compare;
use crate::recordings::wire_vectors;

/// Returns one line of an event, with the fields in which the layouts differ.
fn outline(event: &BlockEvent) -> String {
    match event {
        BlockEvent::Stored(stored) => {
            let needs = match stored.attention {
                Attention::Full => "full".into(),
                Attention::Window { tokens } => format!("window {tokens}"),
                Attention::State => "state".into(),
                Attention::Unknown => "unknown".to_owned(),
            };
            let lora = match &stored.lora {
                Some(Lora::Name(name)) => format!(" lora {name}"),
                Some(Lora::Id(id)) => format!(" lora {id}"),
                None => String::new(),
            };
            let keys = stored.extra_keys.iter().map(Vec::len).sum::<usize>();
            let keys = if keys > 0 {
                format!(" {keys} keys")
            } else {
                String::new()
            };
            let (count, tier, group) = (stored.hashes.len(), stored.tier, stored.group);
            format!("+{count} {tier:?} group {group} {needs}{lora}{keys}")
        }
        BlockEvent::Removed(removed) => {
            format!(
                "-{} {:?} group {}",
                removed.hashes.len(),
                removed.tier,
                removed.group
            )
        }
        BlockEvent::Cleared => "cleared".into(),
    }
}

fn object_outline(event: &ObjectEvent) -> String {
    match event {
        ObjectEvent::Stored { object, tier } => {
            format!("+{} {:x} {tier:?}", object.model, object.block.0)
        }
        ObjectEvent::Removed { object, tier } => {
            format!("-{} {:x} {tier:?}", object.model, object.block.0)
        }
        ObjectEvent::Cleared => "cleared".into(),
    }
}

const EXPECTED: &[(&str, &[&str])] = &[
    ("vllm_arr6", &["+2 Device group 0 full"]),
    (
        "vllm_arr7_medium",
        &["+2 Device group 0 full", "-1 Some(Device) group 0", "cleared"],
    ),
    ("vllm_arr8_lora_name", &["+2 Device group 0 full lora adapter-A"]),
    (
        "vllm_arr11_group",
        &["+2 Device group 0 full", "-1 Some(Device) group 0"],
    ),
    ("vllm_arr_bytes_hash", &["+1 Device group 0 full"]),
    (
        "vllm_map_v26",
        &["+2 Device group 0 full", "-1 Some(Device) group 0", "cleared"],
    ),
    ("vllm_map_mla", &["+2 Device group 0 full"]),
    (
        "vllm_map_hybrid_groups",
        &["+2 Device group 0 full", "+2 Device group 1 window 1024"],
    ),
    ("vllm_map_lora", &["+2 Device group 0 full lora adapter-A 2 keys"]),
    (
        "vllm_map_0_32_fields",
        &["+2 Host group 0 full", "-1 Some(Shared) group 0"],
    ),
    ("vllm_map_envelope", &["+2 Device group 0 full"]),
    (
        "sglang_arr5",
        &["+2 Device group 0 full", "-1 None group 0", "cleared"],
    ),
    (
        "sglang_map",
        &["+2 Host group 0 full 1 keys", "-1 Some(Device) group 0"],
    ),
    (
        "mooncake_master_19ffa6e",
        &[
            "+m f0f1f2f3f4f5f6f7 Host",
            "-m f0f1f2f3f4f5f6f7 Some(Host)",
            "cleared",
        ],
    ),
    (
        "mooncake_master_main",
        &[
            "+m f0f1f2f3f4f5f6f7 Host",
            "+ f0f1f2f3f4f5f6f7 Host",
            "- f0f1f2f3f4f5f6f7 Some(Host)",
        ],
    ),
];

#[test]
fn every_collected_payload_has_its_outcome() {
    let Some(vectors) = wire_vectors() else { return };
    for (name, payload, view) in &vectors {
        let outlines: Vec<String> = if name.starts_with("mooncake") {
            let batch = decode_objects(payload).unwrap();
            assert_eq!(batch.rejected.samples(), [], "{name}");
            batch.events.iter().map(object_outline).collect()
        } else {
            let batch = decode_batch(payload).unwrap();
            assert_eq!(batch.rejected.samples(), [], "{name}");
            compare(&batch, view);
            batch.events.iter().map(outline).collect()
        };
        let expected = EXPECTED.iter().find(|(known, _)| known == name);
        assert_eq!(outlines, expected.unwrap().1, "{name}");
    }
    assert_eq!(vectors.len(), EXPECTED.len());
}
