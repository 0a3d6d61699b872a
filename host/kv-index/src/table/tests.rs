//! The table alone, over ids whose hashes are made up.

use super::*;

/// Keys of ids, for those that were added.
struct Keys(Vec<Option<u64>>);

impl HashesOf for Keys {
    fn tell(&self, id: u32, to: &mut dyn FnMut(u64)) {
        self.0.get(id as usize).copied().flatten().map(to);
    }

    fn end(&self) -> u32 {
        self.0.len() as u32
    }
}

fn ids(table: &IdTable, keys: &Keys, wanted: u64) -> Vec<u32> {
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

/// Adds an id for each key, taking every second one out again some time after.
fn check(all: &[u64]) {
    let mut table = IdTable::new(all.len());
    let mut keys = Keys(vec![None; all.len() + 1]);
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
fn finds_what_was_added_and_not_removed_while_it_grows() {
    check(&(0..3_000).collect::<Vec<_>>());
    check(&(0..3_000).map(|n| (n * n) << 40).collect::<Vec<_>>());
}

/// Fills a table, takes out all but the first `left` ids, and tends it while every seventh id comes back.
fn check_shrinking(keys: &[u64], left: usize) {
    let mut table = IdTable::new(keys.len());
    let mut known = Keys(vec![None; keys.len() + 1]);
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
    while table.tend(&known) {
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
