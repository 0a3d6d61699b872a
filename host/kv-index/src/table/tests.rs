//! Tests of the table with synthetic ids and hashes.

use super::*;

/// Keys of the added ids.
struct KeyTable(Vec<Option<u64>>);

impl HashesOf for KeyTable {
    fn report(&self, id: u32, to: &mut dyn FnMut(u64)) {
        self.0.get(id as usize).copied().flatten().map(to);
    }

    fn end(&self) -> u32 {
        self.0.len() as u32
    }
}

fn ids(table: &IdTable, keys: &KeyTable, wanted: u64) -> Vec<u32> {
    let mut ids = Vec::new();
    table.find(wanted, |id| {
        if keys.0.get(id as usize).copied().flatten() == Some(wanted) {
            ids.push(id);
        }
        None::<()>
    });
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Adds an id for each key, and removes every second one later.
fn check(all: &[u64]) {
    let mut table = IdTable::new(all.len());
    let mut keys = KeyTable(vec![None; all.len() + 1]);
    for id in 1..=all.len() {
        table.insert(all[id - 1], id as u32, &keys);
        keys.0[id] = Some(all[id - 1]);
        if let Some(gone) = id.checked_sub(40).filter(|gone| gone % 2 == 1) {
            assert!(table.remove(all[gone - 1], gone as u32), "{gone} of {id}");
            assert!(!table.remove(all[gone - 1], gone as u32));
            keys.0[gone] = None;
        }
    }
    for &key in all {
        let left: Vec<u32> = (1..=all.len() as u32)
            .filter(|&id| keys.0[id as usize] == Some(key))
            .collect();
        assert_eq!(ids(&table, &keys, key), left, "under {key}");
    }
}

#[test]
fn a_growing_table_finds_all_ids_that_were_not_removed() {
    check(&(0..3_000).collect::<Vec<_>>());
    check(&(0..3_000).map(|n| (n * n) << 40).collect::<Vec<_>>());
}

/// Fills a table, removes all but the first `left` ids, and shrinks it while every seventh id returns.
fn check_shrinking(keys: &[u64], left: usize) {
    let mut table = IdTable::new(keys.len());
    let mut known = KeyTable(vec![None; keys.len() + 1]);
    for (id, &key) in (1..).zip(keys) {
        table.insert(key, id, &known);
        known.0[id as usize] = Some(key);
    }
    let full = table.bytes();
    for id in left + 1..=keys.len() {
        assert!(table.remove(keys[id - 1], id as u32));
        known.0[id] = None;
    }
    known.0.truncate(left + 1);
    let mut tended = 0;
    while table.gc_step(&known) {
        tended += 1;
        assert!(tended < keys.len(), "it ends");
        if tended % 7 == 0 && known.0.len() <= left + left / 2 {
            let id = known.0.len();
            table.insert(keys[id - 1], id as u32, &known);
            known.0.push(Some(keys[id - 1]));
        }
    }
    assert!(
        table.bytes() * 8 < full,
        "{} of {full} bytes are left",
        table.bytes()
    );
    for (id, &key) in (1..).zip(keys) {
        let wanted = if id < known.0.len() as u32 {
            vec![id]
        } else {
            vec![]
        };
        assert_eq!(ids(&table, &known, key), wanted, "under {key}");
    }
}

#[test]
fn gives_back_memory_when_few_ids_are_left_and_keeps_those() {
    check_shrinking(&(0..200_000).collect::<Vec<_>>(), 1_000);
    check_shrinking(
        &(0..200_000).map(|n| (n * n) << 20 | n).collect::<Vec<_>>(),
        9_000,
    );
    check_shrinking(&(0..50_000).collect::<Vec<_>>(), 0);
}

#[test]
fn keeps_ids_of_equal_hashes_apart() {
    check(&(0..600).map(|n| n % 3).collect::<Vec<_>>());
    check(&[7; 300]);
}

/// Returns the number of lines that a lookup of every key reads.
fn lines_read(keys: &[u64]) -> usize {
    let mut table = IdTable::new(keys.len());
    let mut known = KeyTable(vec![None; keys.len() + 1]);
    for (id, &key) in (1..).zip(keys) {
        table.insert(key, id, &known);
        known.0[id as usize] = Some(key);
    }
    let stirred = keys.iter().map(|&key| table.secret.stir(key));
    let passed = |at: &usize| {
        let segment = table.lines.segments[at / SEGMENT].as_ref();
        segment.is_some_and(|lines| lines[at % SEGMENT].0[PASSED] > 0)
    };
    stirred
        .map(|stirred| table.lines.probe(stirred).take_while(passed).count() + 1)
        .sum()
}

/// Returns keys that one multiplication by 2^64 over the golden ratio maps close together: sums of two Fibonacci
/// numbers' multiples.
fn chosen(count: u64) -> Vec<u64> {
    const STEPS: (u64, u64) = (102_334_155, 165_580_141);
    let side = count.isqrt();
    let key = |at: u64| {
        let sum = (at / side)
            .wrapping_mul(STEPS.0)
            .wrapping_add((at % side).wrapping_mul(STEPS.1));
        sum ^ 0x517c_c1b7_2722_0a95
    };
    (0..side * side).map(key).collect()
}

#[test]
fn chosen_keys_are_read_in_as_few_lines_as_random_ones() {
    let chosen = chosen(1 << 16);
    let random = HashSecret::random();
    let others: Vec<u64> = (0..chosen.len() as u64).map(|at| random.stir(at)).collect();
    let (chosen, random) = (lines_read(&chosen), lines_read(&others));
    assert!(chosen < random * 2, "{chosen} lines, of random keys {random}");
}

#[test]
fn no_two_tables_hash_alike() {
    let keys = [1, 2, 3, 1 << 40];
    let hashed = |table: &IdTable| keys.map(|key| table.secret.stir(key));
    assert_ne!(hashed(&IdTable::new(10)), hashed(&IdTable::new(10)));
}
