//! Profiles against the figures they stand for.

use super::*;

const FITTED: FittedProfile = FittedProfile {
    prefill_ms: [15.0, 100.0, 5.0],
    transfer_ms: [2.0, 4.0],
    step_ms: [10.0, 0.5, 0.02],
    host_ms: 1.0,
    disk_ms: 20.0,
    kv_tokens: 500_000,
    link_gbps: 400.0,
};

#[track_caller]
fn check(us: u64, seconds: f64, tolerance: f64) {
    let found = us as f64 / 1e6;
    assert!(
        (found - seconds).abs() <= tolerance,
        "{found} s instead of {seconds}"
    );
}

#[test]
fn the_papers_prompts_take_the_times_of_the_table_of_section_9() {
    let profile = Profile::default();
    for (tokens, seconds) in [
        (8_192, 0.85),
        (16_384, 1.83),
        (32_768, 4.2),
        (65_536, 10.7),
        (131_072, 30.6),
    ] {
        check(profile.prefill_us(tokens, 0), seconds, 0.02 * seconds);
    }
    // 95 % of 128k cached.
    check(profile.prefill_us(131_072, 124_518), 2.3, 0.11);
    check(profile.transfer_us(124_518), 0.5, 0.05);
    check(profile.load_us(124_518), 0.4, 0.1);
}

#[test]
fn the_papers_steps_reach_100_ms_about_where_its_memory_ends() {
    let profile = Profile::default();
    check(profile.step_us(1, 0), 0.0267, 1e-9);
    check(profile.step_us(64, profile.kv_capacity_tokens()), 0.098, 0.001);
}

#[test]
fn the_mockers_polynomials_are_dynamos() {
    let profile = Profile::Mocker(MockerProfile::default());
    check(
        profile.prefill_us(10_000, 2_000),
        (26.944 + 121.44 + 16.5) / 1e3,
        1e-5,
    );
    check(
        profile.step_us(9, 16_384 * 32),
        (5.74 + 27.005 - 6.435) / 1e3,
        1e-5,
    );
    assert_eq!(
        profile.step_us(9, 16_384 * 64),
        profile.step_us(9, 16_384 * 128),
        "a full cache is as slow as it gets"
    );
}

#[test]
fn fitted_lines_have_the_terms_of_the_routers_model() {
    let profile = Profile::Fitted(FITTED);
    check(profile.prefill_us(6_000, 4_000), 0.235, 1e-9);
    check(profile.transfer_us(1_000), 0.006, 1e-9);
    check(profile.step_us(8, 100_000), 0.016, 1e-9);
}

#[test]
fn a_prompt_in_pieces_costs_what_it_costs_whole() {
    for profile in [Profile::default(), Profile::Fitted(FITTED)] {
        let pieces = profile.piece_us(512, 3_000, true) + profile.piece_us(3_000, 9_000, false);
        let whole = profile.prefill_us(9_000, 512) as f64;
        assert!((pieces + profile.prefill_fixed_us() - whole).abs() < 1.0);
    }
}

#[test]
fn a_prompt_that_is_cached_to_its_end_still_computes_its_last_token() {
    for profile in [Profile::default(), Profile::Mocker(MockerProfile::default())] {
        assert_eq!(profile.prefill_us(1_024, 1_024), profile.prefill_us(1_024, 1_023));
    }
}
