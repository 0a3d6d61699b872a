//! Eligible workers.

use placement::{Candidates, Eligibility, EligibleSet, FleetVersion, NoCandidate, PlacementPart};
use routing::Role::{self, Decode, Mixed, Prefill};
use routing::{LeastLoaded, WorkerId};

use crate::fixed::FixedView;

fn view(roles: &[Role]) -> FixedView {
    FixedView::of(roles, std::sync::Arc::new(LeastLoaded::default()))
}

#[test]
fn workers_that_drain_were_tried_or_serve_another_model_are_no_candidates() {
    let mut view = view(&[Mixed; 4]);
    view.workers[0].drains = true;
    view.workers[1].serves = false;
    assert_eq!(view.candidates(&[WorkerId(2)]), Ok(vec![3]));
}

#[test]
fn a_returning_worker_is_a_candidate_where_no_worker_of_its_role_is_healthy() {
    let mut view = view(&[Prefill, Prefill, Decode]);
    view.workers[0].eligibility = Eligibility::Returning;
    view.workers[2].eligibility = Eligibility::Returning;
    assert_eq!(view.candidates(&[]), Ok(vec![1, 2]));
}

#[test]
fn workers_out_of_service_are_candidates_for_want_of_others() {
    let mut view = view(&[Mixed, Mixed]);
    view.workers[0].eligibility = Eligibility::OutOfService;
    assert_eq!(view.candidates(&[]), Ok(vec![1]));
    view.workers[1].eligibility = Eligibility::OutOfService;
    assert_eq!(view.candidates(&[]), Ok(vec![0, 1]));
}

#[test]
fn workers_out_of_service_do_the_part_that_no_other_can_and_no_more() {
    let mut view = view(&[Prefill, Prefill, Decode]);
    for member in [1, 2] {
        view.workers[member].eligibility = Eligibility::OutOfService;
    }
    assert_eq!(view.candidates(&[]), Ok(vec![0, 2]));
}

#[test]
fn a_list_without_a_worker_that_just_went_out_of_service_is_not_kept() {
    let mut view = view(&[Mixed, Mixed]);
    view.fleet = Some(FleetVersion::unique());
    let mut candidates = Candidates::default();
    let everyone = EligibleSet::find(&view, PlacementPart::Request, &[]).unwrap();
    view.workers[1].eligibility = Eligibility::OutOfService;
    candidates.list(&view, &[], everyone);
    assert_eq!(candidates.members, [0]);
    view.workers[1].eligibility = Eligibility::Healthy;
    candidates.list(&view, &[], everyone);
    assert_eq!(candidates.members, [0, 1]);
}

#[test]
fn a_request_that_cannot_be_split_goes_to_one_worker() {
    let mut view = view(&[Prefill, Decode, Mixed]);
    view.allowed.pair = false;
    assert_eq!(view.candidates(&[]), Ok(vec![2]));
    view.workers[2].drains = true;
    assert_eq!(view.candidates(&[]), Ok(vec![1]));
    view.allowed.alone = false;
    assert_eq!(view.candidates(&[]), Err(NoCandidate::CannotSplit));
}

#[test]
fn each_lack_of_candidates_has_its_reason() {
    assert_eq!(view(&[]).candidates(&[]), Err(NoCandidate::EmptyPool));
    let mut one = view(&[Mixed]);
    assert_eq!(one.candidates(&[WorkerId(0)]), Err(NoCandidate::AllTried));
    one.workers[0].drains = true;
    assert_eq!(one.candidates(&[]), Err(NoCandidate::AllTried));
    one.workers[0].serves = false;
    assert_eq!(one.candidates(&[]), Err(NoCandidate::NotServed));
    let missing = |roles| view(roles).candidates(&[]);
    let mut only_decode = view(&[Decode]);
    only_decode.allowed.alone = false;
    let expected = Err(NoCandidate::MissingRole { missing: Prefill });
    assert_eq!(only_decode.candidates(&[]), expected);
    let expected = Err(NoCandidate::MissingRole { missing: Decode });
    assert_eq!(missing(&[Prefill]), expected);
}
