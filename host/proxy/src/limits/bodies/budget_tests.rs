//! Tests of bodies that exceed the budget, in every order.

use futures_util::FutureExt;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn budget(limit: usize) -> Arc<BodyBudget> {
    let budget = Arc::<BodyBudget>::default();
    budget.set_limit(limit);
    budget
}

fn share(budget: &Arc<BodyBudget>, number: u64) -> Share {
    Share::new(Arc::clone(budget), number, LONG)
}

/// Takes a share that needs no wait.
fn taken(budget: &Arc<BodyBudget>, number: u64, bytes: usize) -> Share {
    let mut share = share(budget, number);
    share.take(bytes).now_or_never().unwrap().unwrap();
    share
}

#[tokio::test]
async fn beyond_the_limit_a_body_waits_until_another_is_dropped() {
    let budget = budget(10);
    let first = taken(&budget, 0, 8);
    let mut second = share(&budget, 1);
    {
        let mut taking = Box::pin(second.take(3));
        assert!(taking.as_mut().now_or_never().is_none());
        assert_eq!(budget.held(), 8);
        drop(first);
        taking.await.unwrap();
    }
    assert_eq!(budget.held(), 3);
    drop(second);
    assert_eq!(budget.held(), 0);
}

#[tokio::test]
async fn bodies_that_hold_parts_and_wait_for_each_other_are_served_from_the_oldest() {
    let budget = budget(10);
    let (mut old, mut young) = (taken(&budget, 0, 5), taken(&budget, 1, 5));
    let mut older = Box::pin(old.take(5));
    assert!(older.as_mut().now_or_never().is_none());
    let refused = young.take(1).now_or_never().unwrap();
    assert!(refused.is_err(), "nothing would ever come back");
    drop(young);
    older.await.unwrap();
}

#[tokio::test]
async fn a_body_that_needs_more_than_there_is_fails_alone() {
    let budget = budget(10);
    let mut alone = taken(&budget, 0, 5);
    assert!(alone.take(6).now_or_never().unwrap().is_err());
    let mut another = share(&budget, 1);
    assert!(another.take(11).await.is_err());
    drop((alone, another));
    assert_eq!((budget.held(), budget.waiters.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn when_its_time_is_up_the_oldest_goes_on_and_the_youngest_fails() {
    let budget = budget(10);
    let served = taken(&budget, 0, 2);
    let (mut old, mut young) = (taken(&budget, 1, 4), taken(&budget, 2, 4));
    old.patience = Duration::from_millis(1);
    let young = async {
        assert!(young.take(1).await.is_err());
        drop(young);
    };
    let (old, ()) = tokio::join!(old.take(4), young);
    old.unwrap();
    drop(served);
}

#[tokio::test]
async fn a_body_whose_time_is_up_fails_where_no_other_can_give_way() {
    let budget = budget(10);
    let _served = taken(&budget, 0, 10);
    let mut late = share(&budget, 1);
    late.patience = Duration::from_millis(1);
    assert!(late.take(1).await.is_err());
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_leaves_nothing_behind() {
    let budget = budget(10);
    let first = taken(&budget, 0, 10);
    let (mut waiting, mut granted) = (share(&budget, 1), share(&budget, 2));
    {
        let mut left = Box::pin(waiting.take(1));
        assert!(left.as_mut().now_or_never().is_none());
        drop(left);
        let mut unheard = Box::pin(granted.take(4));
        assert!(unheard.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(budget.held(), 4);
    }
    assert_eq!((budget.held(), budget.waiters.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn bodies_that_wait_do_not_hold_up_small_ones_as_long_as_what_is_kept_for_those_lasts() {
    const LIMIT: usize = 16 << 10;
    let budget = budget(LIMIT);
    let _first = taken(&budget, 0, LIMIT);
    let mut large = share(&budget, 1);
    let mut taking = Box::pin(large.take(17));
    assert!(taking.as_mut().now_or_never().is_none());
    let small: Vec<_> = (0..64).map(|number| taken(&budget, 2 + number, 16)).collect();
    assert_eq!(budget.held(), LIMIT + LIMIT / KEPT_PART);
    let mut late = share(&budget, 90);
    assert!(late.take(16).now_or_never().is_none());
    drop((small, late));
    assert!(
        taking.as_mut().now_or_never().is_none(),
        "nothing of that is for large ones"
    );
}

#[tokio::test]
async fn a_raised_limit_serves_who_waits() {
    let budget = budget(10);
    let _first = taken(&budget, 0, 10);
    let mut second = share(&budget, 1);
    let mut taking = Box::pin(second.take(5));
    assert!(taking.as_mut().now_or_never().is_none());
    budget.set_limit(15);
    taking.await.unwrap();
}
