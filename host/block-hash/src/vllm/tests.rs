//! Serialized bytes and digests from CPython 3.11's `pickle` and `hashlib`, and from vLLM 0.32's hashing module.

use super::*;

const ROOT: &str = "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the pickled form of a block on the default root.
fn pickled(tokens: &[u32], extra_keys: &[ExtraKey<'_>]) -> Vec<u8> {
    let root = VllmHasher::new(Algorithm::Sha256, UNSET_SEED).root();
    let mut bytes = Vec::new();
    write_block(PickleWriter::new(&mut bytes), &root, tokens, extra_keys);
    bytes
}

fn item(identifier: &str, offset: i64) -> ExtraKey<'_> {
    ExtraKey::Multimodal { identifier, offset }
}

#[test]
fn roots_are_vllms_none_hash() {
    let check = |algorithm, seed, root: &str| {
        assert_eq!(VllmHasher::new(algorithm, seed).root().to_string(), root);
    };
    check(Algorithm::Sha256, UNSET_SEED, ROOT);
    check(
        Algorithm::Sha256,
        "0",
        "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c",
    );
    check(
        Algorithm::Sha256Cbor,
        "0",
        "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
    );
    check(Algorithm::Xxhash, "0", "6fb31cc38bba6066183f7f2104b9c051");
    check(Algorithm::XxhashCbor, "0", "1ebe36576dcb573f26b99533a20aaeca");
}

#[test]
fn an_unset_seed_is_vllms_own_text_or_random() {
    let root = |algorithm| VllmHasher::seeded(algorithm, None).map(|hasher| hasher.root().to_string());
    assert_eq!(root(Algorithm::Sha256).as_deref(), Some(ROOT));
    assert_eq!(root(Algorithm::Xxhash), None);
    assert_eq!(root(Algorithm::XxhashCbor), None);
}

#[test]
fn first_blocks_hash_as_vllm_hashes_them() {
    let check = |algorithm, low64: u64| {
        let mut hasher = VllmHasher::new(algorithm, UNSET_SEED);
        let digest = hasher.block(&hasher.root(), &[1, 2, 3, 4], &[]);
        assert_eq!(digest.low64(), low64, "{algorithm:?}");
    };
    check(Algorithm::Sha256, 1_882_140_585_328_457_242);
    check(Algorithm::Sha256Cbor, 9_561_501_211_280_363_793);
    check(Algorithm::Xxhash, 16_027_864_559_667_985_086);
    check(Algorithm::XxhashCbor, 15_832_582_268_029_990_071);
}

#[test]
fn ints_are_pickled_as_short_as_pickle_does() {
    let items = [
        item("id1", 1 << 40),
        item("id2", -1 << 40),
        item("id3", 1 << 31),
        item("i4", -(1 << 31) - 1),
        item("i5", -129 << 32),
        item("i6", i64::MAX),
        item("i7", i64::MIN),
    ];
    let expected = format!(
        "800595b9000000000000004320{ROOT}94284b014b024afdffffff4affffff7f7494288c026d6d948c03696431948a06000000000001\
         879468028c03696432948a060000000000ff879468028c03696433948a050000008000879468028c026934948a05ffffff7fff87946802\
         8c026935948a06000000007fff879468028c026936948a08ffffffffffffff7f879468028c026937948a08000000000000008087947494\
         87942e"
    );
    assert_eq!(
        hex(&pickled(&[1, 2, -3_i32 as u32, 0x7fff_ffff], &items)),
        expected
    );
}

#[test]
fn all_kinds_of_extra_keys_are_tagged() {
    let digest: Vec<u8> = (0..32).collect();
    let keys = [
        ExtraKey::Lora {
            name: "a",
            path: "/p",
        },
        item("x", 0),
        ExtraKey::CacheSalt("q"),
        ExtraKey::PromptEmbeds(&digest),
    ];
    let expected = format!(
        "80059596000000000000004320{ROOT}944b014b028694288c046c6f7261948c0161948c022f709487948c026d6d948c0178944b0087\
         948c0a63616368655f73616c74948c01719486948c0d70726f6d70745f656d62656473944320{}948694749487942e",
        hex(&digest)
    );
    assert_eq!(hex(&pickled(&[1, 2], &keys)), expected);
}

#[test]
fn a_late_word_is_recalled_by_a_long_reference() {
    let texts: Vec<String> = (0..300).map(|number| format!("t{number}")).collect();
    let mut keys: Vec<_> = texts.iter().map(|text| ExtraKey::Text(text)).collect();
    keys.extend([item("a", 1), item("b", 2)]);
    let bytes = pickled(&[1], &keys);
    assert_eq!(bytes.len(), 2072);
    assert_eq!(
        Algorithm::Sha256.digest(&bytes).to_string(),
        "d8f0f5ee2acb838b753c2d6bd092c7c31734b096f364f8a5a883939b116858c9"
    );
}

#[test]
fn frames_are_left_for_large_payloads_and_left_out_where_tiny() {
    let seed = |text: &str| {
        let mut bytes = Vec::new();
        write_seed(PickleWriter::new(&mut bytes), text);
        bytes
    };
    assert_eq!(hex(&seed("")), "80059504000000000000008c00942e");
    let large = seed(&"x".repeat(70_000));
    assert_eq!(large.len(), 70_009);
    assert_eq!(
        Algorithm::Sha256.digest(&large).to_string(),
        "359d6b20d805fe22ce7b02a26a1dcaf721738fe5af46f89f1ad8c79c9eba2685"
    );
    assert_eq!(
        hex(&pickled(&[], &[ExtraKey::Text("")])),
        format!("8005952c000000000000004320{ROOT}94298c0094859487942e")
    );
}

/// Heads as in appendix A of RFC 8949.
#[test]
fn cbor_has_the_shortest_heads() {
    let check = |number: i64, expected: &str| {
        use crate::serial::Serializer;
        let mut bytes = Vec::new();
        CborWriter(&mut bytes).int(number);
        assert_eq!(hex(&bytes), expected, "{number}");
    };
    check(23, "17");
    check(24, "1818");
    check(1000, "1903e8");
    check(1_000_000, "1a000f4240");
    check(1_000_000_000_000, "1b000000e8d4a51000");
    check(-1, "20");
    check(-1000, "3903e7");
    check(i64::MIN, "3b7fffffffffffffff");
}

#[test]
fn batches_of_ints_are_as_single_ones() {
    use crate::serial::Serializer;
    let numbers: Vec<u32> = (0..40)
        .map(|shift| 1_u32.rotate_left(shift).wrapping_sub(u32::from(shift > 20)))
        .collect();
    let (mut batches, mut single) = (Vec::new(), Vec::new());
    CborWriter(&mut batches).ints(&numbers);
    let mut one = CborWriter(&mut single);
    one.open(numbers.len());
    numbers
        .iter()
        .for_each(|&number| one.int(i64::from(number as i32)));
    assert_eq!(hex(&batches), hex(&single));
}
