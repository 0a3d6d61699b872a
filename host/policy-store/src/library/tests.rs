//! Policies as configurations name them, and what the library keeps of them.

use std::sync::Weak;

use policy_runtime::{EngineLimits, WasmPolicy};
use routing::{Admission, Circuit, CircuitSpec, hex};

use super::*;

fn library() -> PolicyLibrary {
    let limits = EngineLimits {
        instances_per_policy: 2,
        instances: 16,
        memory_bytes: 32 << 20,
    };
    PolicyLibrary::new(PolicyEngine::new(limits).unwrap(), Arc::default())
}

/// Returns a policy called `p` that has the bytes of a built-in.
fn wanted(builtin: &str) -> WantedPolicy {
    WantedPolicy::of_builtin("p", builtin)
}

fn tuned(builtin: &str, params: &str) -> WantedPolicy {
    let mut wanted = wanted(builtin);
    wanted.settings.params_json = params.to_owned();
    wanted
}

fn digest(builtin: &str) -> Digest {
    component::read(&wanted(builtin).source).unwrap().digest()
}

const A: &str = "round-robin";
const B: &str = "load-weighted";
const C: &str = "cache-aware";
const D: &str = "pd-pairing";

/// Applies a wanted policy like a reload. Returns true if another version is active then.
fn apply(library: &mut PolicyLibrary, wanted: WantedPolicy) -> bool {
    let prepared = library.prepare(vec![wanted]);
    !library.commit(prepared).swapped.is_empty()
}

fn entry(library: &PolicyLibrary) -> &PolicyEntry {
    &library.entries["p"]
}

/// Returns the built-in policies whose bytes are in the chain.
fn in_chain(library: &PolicyLibrary) -> Vec<&'static str> {
    let name = |version: &LoadedVersion| {
        let named = |name: &&&str| digest(name) == version.digest;
        *[A, B, C, D].iter().find(named).unwrap()
    };
    entry(library).chain.iter().map(name).collect()
}

fn policy(library: &PolicyLibrary) -> Arc<WasmPolicy> {
    Arc::clone(&entry(library).chain[0].policy)
}

/// Checks that the chain of the routes begins with these ids.
#[track_caller]
fn check_routes(library: &PolicyLibrary) {
    let versions = library.versions("p", None).unwrap();
    let ids: Vec<_> = versions.iter().map(|version| Arc::clone(&version.id)).collect();
    let kept: Vec<_> = entry(library)
        .chain
        .iter()
        .map(|version| Arc::clone(&version.id))
        .collect();
    assert_eq!(ids, kept);
}

#[test]
fn the_last_three_versions_are_kept_and_older_ones_freed() {
    let mut library = library();
    apply(&mut library, wanted(A));
    let first: Weak<WasmPolicy> = Arc::downgrade(&policy(&library));
    for builtin in [B, C] {
        assert!(apply(&mut library, wanted(builtin)));
        check_routes(&library);
        assert!(first.upgrade().is_some());
    }
    assert!(apply(&mut library, wanted(D)));
    assert_eq!(in_chain(&library), [D, C, B]);
    check_routes(&library);
    assert!(first.upgrade().is_none(), "it is freed");
}

#[test]
fn bytes_that_come_back_are_the_version_that_was_kept() {
    let mut library = library();
    apply(&mut library, wanted(A));
    let (first, circuit) = (policy(&library), Arc::clone(&entry(&library).chain[0].circuit));
    apply(&mut library, wanted(B));
    assert!(apply(&mut library, wanted(A)));
    assert!(Arc::ptr_eq(&first, &policy(&library)), "not compiled again");
    assert!(Arc::ptr_eq(&circuit, &entry(&library).chain[0].circuit));
    assert_eq!(in_chain(&library), [A, B]);
    assert!(!apply(&mut library, wanted(A)), "it is active");
}

#[test]
fn a_version_keeps_its_own_parameters() {
    let mut library = library();
    apply(&mut library, tuned(C, r#"{"backlog-price":0.5}"#));
    let first = policy(&library);
    assert!(apply(&mut library, tuned(C, r#"{"backlog-price":0.7}"#)));
    assert!(!Arc::ptr_eq(&first, &policy(&library)));
    check_routes(&library);
    let reports = library.report().remove(0).counted().versions;
    let prices: Vec<_> = reports
        .iter()
        .map(|version| version.params["backlog-price"].as_f64())
        .collect();
    assert_eq!(prices, [Some(0.7), Some(0.5)]);
    assert_ne!(reports[0].id, reports[1].id);
    assert_eq!(reports[0].sha256, reports[1].sha256);
}

#[test]
fn two_names_with_the_same_bytes_and_other_parameters_are_two_policies() {
    let mut library = library();
    let (one, mut other) = (
        tuned(C, r#"{"backlog-price":0.5}"#),
        tuned(C, r#"{"backlog-price":0.7}"#),
    );
    other.name = "q".to_owned();
    let prepared = library.prepare(vec![one, other]);
    library.commit(prepared);
    let [p, q] = ["p", "q"].map(|name| &library.entries[name].chain[0]);
    assert_eq!(p.digest, q.digest);
    assert_ne!(p.id, q.id);
    assert!(!Arc::ptr_eq(&p.policy, &q.policy) && !Arc::ptr_eq(&p.circuit, &q.circuit));
    assert!(!Arc::ptr_eq(&library.memory.of("p"), &library.memory.of("q")));
    open(&p.circuit);
    assert!(!p.decides() && q.decides());
}

fn open(circuit: &Circuit) {
    for _ in 0..CircuitSpec::default().faults {
        circuit.failed(Admission::Regular, 0);
    }
}

#[test]
fn another_circuit_is_no_reason_to_compile_and_no_new_version() {
    let mut library = library();
    apply(&mut library, wanted(A));
    let (policy_before, circuit) = (policy(&library), Arc::clone(&entry(&library).chain[0].circuit));
    let mut other = wanted(A);
    other.circuit.faults = 1;
    let (swaps, since) = (entry(&library).swaps, entry(&library).chain[0].since);
    assert!(!apply(&mut library, other.clone()), "it is no new version");
    assert_eq!(
        (entry(&library).swaps, entry(&library).chain[0].since),
        (swaps, since)
    );
    assert!(Arc::ptr_eq(&policy_before, &policy(&library)));
    assert!(!Arc::ptr_eq(&circuit, &entry(&library).chain[0].circuit));
    assert_eq!(in_chain(&library), [A]);
    assert!(!apply(&mut library, other));
}

#[test]
fn a_rolled_back_version_is_held_back_until_other_bytes_come() {
    let mut library = library();
    apply(&mut library, wanted(A));
    apply(&mut library, wanted(B));
    library.roll_back("p").unwrap();
    assert_eq!(in_chain(&library), [A]);
    check_routes(&library);
    for _ in 0..3 {
        assert!(!apply(&mut library, wanted(B)), "held back");
    }
    let report = library.report().remove(0).counted();
    assert_eq!(report.held_back, [hex(&digest(B))]);
    assert_eq!(report.problem, None);
    assert_eq!(report.versions.len(), 2);

    assert!(apply(&mut library, wanted(C)));
    assert_eq!(in_chain(&library), [C, A]);
    assert!(apply(&mut library, wanted(B)), "held no more");
}

#[test]
fn the_file_put_back_to_what_is_in_force_ends_the_hold() {
    let mut library = library();
    apply(&mut library, wanted(A));
    apply(&mut library, wanted(B));
    library.roll_back("p").unwrap();
    assert!(!apply(&mut library, wanted(A)));
    assert!(entry(&library).held.is_empty());
    assert!(apply(&mut library, wanted(B)));
}

#[test]
fn rolled_back_parameters_are_held_and_others_are_not() {
    let mut library = library();
    let params = |price: f64| tuned(C, &format!(r#"{{"backlog-price":{price}}}"#));
    apply(&mut library, params(0.5));
    apply(&mut library, params(0.7));
    library.roll_back("p").unwrap();
    assert!(!apply(&mut library, params(0.7)));
    assert!(apply(&mut library, params(0.9)));
}

#[test]
fn the_active_component_is_that_of_its_source_or_the_kept_one_after_a_rollback() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.wasm");
    let of_file = || WantedPolicy {
        source: PolicySource::File(file.clone()),
        ..wanted(A)
    };
    let bytes = |builtin| component::read(&wanted(builtin).source).unwrap().bytes;
    for (state, is_kept) in [(None, false), (Some(folder.path().join("state")), true)] {
        let memory = Arc::new(PolicyMemory::new(state));
        let mut library = library();
        library.memory = memory;
        let origin = |library: &PolicyLibrary| library.report().remove(0).active_origin();
        for builtin in [A, B] {
            std::fs::write(&file, bytes(builtin)).unwrap();
            while !apply(&mut library, of_file()) {}
        }
        let second = ComponentOrigin::Bytes(Arc::new(bytes(B)));
        assert_eq!(origin(&library), Some(second));
        library.roll_back("p").unwrap();
        let first = ComponentOrigin::Bytes(Arc::new(bytes(A)));
        assert_eq!(origin(&library), is_kept.then_some(first));
    }
    let mut library = library();
    apply(&mut library, wanted(A));
    let origin = library.report().remove(0).active_origin();
    assert_eq!(origin, Some(ComponentOrigin::Builtin(A.to_owned())));
}

#[test]
fn each_rollback_goes_one_version_further_back_until_there_is_none() {
    let mut library = library();
    for builtin in [A, B, C] {
        apply(&mut library, wanted(builtin));
    }
    library.roll_back("p").unwrap();
    let undo = library.roll_back("p").unwrap();
    assert!(!apply(&mut library, wanted(C)));
    assert_eq!(in_chain(&library), [A]);
    let error = library.roll_back("p").unwrap_err();
    assert!(matches!(error, RollbackError::NothingBefore(_)), "{error}");
    let error = library.roll_back("q").unwrap_err();
    assert!(matches!(error, RollbackError::NoSuchPolicy(_)), "{error}");
    library.undo(undo);
    assert_eq!(in_chain(&library), [B, A]);
}

#[test]
fn resuming_puts_what_the_file_holds_back_in_force_with_its_circuit_closed() {
    let mut library = library();
    apply(&mut library, wanted(A));
    apply(&mut library, wanted(B));
    let rolled_back = policy(&library);
    open(&entry(&library).chain[0].circuit);
    library.roll_back("p").unwrap();
    library.resume("p").unwrap();
    library.close_circuits("p");
    assert!(apply(&mut library, wanted(B)));
    assert!(Arc::ptr_eq(&rolled_back, &policy(&library)), "not compiled again");
    assert!(entry(&library).chain[0].decides());
    assert_eq!(in_chain(&library), [B, A]);
}

#[test]
fn an_opened_circuit_with_a_version_before_is_a_rollback_and_counted_once() {
    let mut library = library();
    apply(&mut library, wanted(A));
    open(&entry(&library).chain[0].circuit);
    assert!(library.new_rollbacks().is_empty(), "nothing else decides");
    apply(&mut library, wanted(B));
    open(&entry(&library).chain[0].circuit);
    assert!(library.new_rollbacks().is_empty(), "the version before rests too");
    apply(&mut library, wanted(C));
    apply(&mut library, wanted(D));
    open(&entry(&library).chain[0].circuit);
    assert_eq!(library.new_rollbacks(), [("p".to_owned(), 1)]);
    assert!(library.new_rollbacks().is_empty());
    let report = library.report().remove(0).counted();
    assert_eq!(report.decides.as_deref(), Some(&*entry(&library).chain[1].id));
    assert_eq!(report.versions[0].circuit.state, "open");
    assert_eq!(
        report.versions[0].counts.faults["invalid-verdict"], 5,
        "found by the router"
    );
}

#[test]
fn only_pinned_bytes_are_loaded_and_the_last_good_version_stays() {
    let mut library = library();
    apply(&mut library, wanted(A));
    let mut pinned = wanted(B);
    pinned.permit = Permit::Pinned(digest(C));
    let prepared = library.prepare(vec![pinned.clone()]);
    assert!(!prepared.policies[0].accepted);
    let Outcome::Failed(problem) = &prepared.policies[0].outcome else {
        panic!("{prepared:?}")
    };
    assert!(problem.to_string().contains(&hex(&digest(B))), "{problem}");

    pinned.permit = Permit::Pinned(digest(B));
    assert!(apply(&mut library, pinned.clone()));
    // The same pin, and a file that changed.
    let other = WantedPolicy {
        source: PolicySource::Builtin(C.to_owned()),
        ..pinned
    };
    library.entries.get_mut("p").unwrap().wanted.source = other.source.clone();
    let prepared = library.prepare(vec![other]);
    assert!(
        prepared.policies[0].accepted,
        "no reason to refuse the configuration"
    );
    let committed = library.commit(prepared);
    assert_eq!(committed.failed.len(), 1);
    assert_eq!(in_chain(&library), [B, A]);
    assert!(
        entry(&library)
            .problem
            .as_ref()
            .is_some_and(|problem| problem.contains(&hex(&digest(C))))
    );
}

#[test]
fn bytes_taken_off_the_list_do_not_even_stand_in() {
    let mut library = library();
    let listed = |builtin: &str, list: &[&str]| WantedPolicy {
        permit: Permit::Listed(list.iter().map(|name| digest(name)).collect()),
        ..wanted(builtin)
    };
    apply(&mut library, listed(A, &[A, B]));
    apply(&mut library, listed(B, &[A, B]));
    assert_eq!(in_chain(&library), [B, A]);
    let prepared = library.prepare(vec![listed(B, &[B])]);
    let versions = library.versions("p", Some(&prepared)).unwrap();
    assert_eq!(versions.iter().count(), 1, "routes are made before the commit");
    library.commit(prepared);
    assert_eq!(in_chain(&library), [B]);
}

/// Returns `B` where the list has these built-ins.
fn listed(list: &[&str]) -> WantedPolicy {
    WantedPolicy {
        permit: Permit::Listed(list.iter().map(|name| digest(name)).collect()),
        ..wanted(B)
    }
}

#[test]
fn a_rollback_holds_whatever_the_list_has_by_now() {
    let mut library = library();
    apply(&mut library, wanted(A));
    apply(&mut library, listed(&[A, B]));
    library.roll_back("p").unwrap();
    for list in [&[A, B][..], &[A], &[A, B]] {
        assert!(!apply(&mut library, listed(list)));
        assert_eq!(in_chain(&library), [A], "{list:?}");
    }
    library.resume("p").unwrap();
    library.close_circuits("p");
    assert!(apply(&mut library, listed(&[A, B])));
}

#[test]
fn a_list_of_nothing_but_what_was_rolled_back_is_refused_until_it_is_resumed() {
    let mut library = library();
    apply(&mut library, wanted(A));
    apply(&mut library, listed(&[A, B]));
    library.roll_back("p").unwrap();
    let prepared = library.prepare(vec![listed(&[B])]);
    assert!(!prepared.policies[0].accepted);
    let Outcome::Failed(problem) = &prepared.policies[0].outcome else {
        panic!("{prepared:?}")
    };
    assert!(matches!(**problem, PolicyProblem::HeldBack), "{problem}");
    assert_eq!(in_chain(&library), [A], "the configuration is refused");
    library.resume("p").unwrap();
    library.close_circuits("p");
    assert!(apply(&mut library, listed(&[B])));
    assert_eq!(in_chain(&library), [B]);
}

#[test]
fn a_resume_does_not_restore_a_rolled_back_version_no_longer_listed() {
    let mut library = library();
    apply(&mut library, wanted(A));
    apply(&mut library, listed(&[A, B]));
    library.roll_back("p").unwrap();
    apply(&mut library, listed(&[A]));
    library.resume("p").unwrap();
    library.close_circuits("p");
    assert!(!apply(&mut library, listed(&[A])));
    assert_eq!(in_chain(&library), [A]);
}
