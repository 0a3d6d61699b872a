//! Tests of `Call::least`: a candidate without a cost is never chosen, and ties follow the salt.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use conductor_policy_sdk::{Call, LeastCost, Plan, Request};

fn least(costs: &[f64], salt: u64) -> Option<LeastCost> {
    let mut plan = Plan::default();
    let cost = plan.column("cost");
    let ids: Vec<u32> = (0..costs.len() as u32).collect();
    let call = Call::new(Request::default(), &ids, costs, &plan).unwrap();
    call.least(|| salt, |row| row.get(cost))
}

#[test]
fn takes_the_least_and_never_an_unknown_cost() {
    let row = |costs: &[f64]| least(costs, 0).map(|least| least.row);
    assert_eq!(row(&[3.0, 1.0, 2.0]), Some(1));
    assert_eq!(row(&[f64::NAN, 5.0, f64::INFINITY]), Some(1));
    assert_eq!(row(&[f64::NAN, f64::NAN]), None);
    assert_eq!(row(&[f64::INFINITY]), Some(0));
}

#[test]
fn ties_are_broken_evenly_and_by_the_salt_alone() {
    let costs = [1.0, 2.0, 1.0, 1.0];
    let mut counts = [0_u32; 4];
    for salt in 0..3_000 {
        let taken = least(&costs, salt).unwrap().row;
        assert_eq!(least(&costs, salt).unwrap().row, taken);
        counts[taken] += 1;
    }
    assert_eq!(counts[1], 0);
    assert!(
        counts
            .iter()
            .all(|&count| count == 0 || (900..1_100).contains(&count)),
        "{counts:?}"
    );
}

#[test]
fn the_salt_is_computed_only_in_a_tie() {
    let mut plan = Plan::default();
    let cost = plan.column("cost");
    let call = Call::new(Request::default(), &[7, 8], &[1.0, 2.0], &plan).unwrap();
    let least = call.least(|| panic!("no tie"), |row| row.get(cost));
    assert_eq!(least, Some(LeastCost { row: 0, cost: 1.0 }));
}
