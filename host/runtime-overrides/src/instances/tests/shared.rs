//! States of instances that routers share, over files that change.

use super::*;

/// Returns `d0` drained, and its state for other routers.
fn drained() -> (Overlays, SharedInstance) {
    let overlays = made(FILE, &[(drain("pd", "d0", true), Changed::Drained)]);
    let shared = overlays.share(&file(FILE), "http://d0:1").unwrap();
    (overlays, shared)
}

#[test]
fn a_state_of_another_router_counts_only_for_the_same_entry_of_the_file() {
    let (overlays, shared) = drained();
    let none = Overlays::default();
    assert_eq!(none.adopt(&file(FILE), &shared).as_ref(), Ok(&overlays));
    let heavier = file(&FILE.replace("weight = 2.0", "weight = 3.0"));
    assert_eq!(none.adopt(&heavier, &shared), Err(NotShared::OtherFile));
}

#[test]
fn an_instance_that_the_file_dropped_comes_back_as_the_file_has_it() {
    let (overlays, _) = drained();
    let d0 = "[[pools.pd.workers]]\nname = \"d0\"\nurl = \"http://d0:1\"\nrole = \"decode\"\nweight = 2.0\n";
    let without = file(&FILE.replace(d0, ""));
    let (left, ended) = overlays.under(&without);
    assert_eq!(ended[0].url_with_new_entry(&without), Some("http://d0:1"));
    let shared = left.share(&without, "http://d0:1").unwrap();
    let back = left.adopt(&file(FILE), &shared).unwrap();
    assert_eq!(back, Overlays::default());
}

#[test]
fn an_instance_that_another_router_lost_and_got_back_is_as_the_file_has_it_here_too() {
    let (overlays, shared) = drained();
    let lost = SharedInstance {
        file: None,
        now: None,
        ..shared
    };
    let back = overlays.adopt(&file(FILE), &lost).unwrap();
    assert_eq!(back, Overlays::default());
}

#[test]
fn an_added_instance_whose_pool_is_gone_is_no_news_for_the_others() {
    let overlays = made(
        FILE,
        &[(
            Add(Addition {
                pool: Some("plain".to_owned()),
                ..add("m1", Role::Mixed)
            }),
            Changed::Added,
        )],
    );
    let moved = FILE.replace("plain", "other");
    let (_, ended) = overlays.under(&file(&moved));
    assert_eq!(ended[0].url_with_new_entry(&file(&moved)), None);
}

#[test]
fn a_state_with_a_bootstrap_server_that_cannot_be_queried_is_refused() {
    let secure = Addition {
        bootstrap: Some("https://p9:8998".to_owned()),
        ..add("p9", Role::Prefill)
    };
    let overlays = made(FILE, &[(Add(secure), Changed::Added)]);
    let shared = overlays.share(&file(FILE), "http://p9:1").unwrap();
    let refused = Overlays::default().adopt(&file(FILE), &shared);
    assert_eq!(
        refused,
        Err(NotShared::Invalid("its bootstrap server is invalid"))
    );
}
