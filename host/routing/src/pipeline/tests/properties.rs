//! Properties of any pipeline.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn it_chooses_one_of_those_that_every_filter_keeps_and_decides_the_same_again(
        loads in vec((0..9_u32, 0..5_u32), 1..30),
        most in 0..9_u32,
        weights in (0.1..5.0_f64, -5.0..-0.1_f64),
        pick in prop_oneof![
            Just(Pick::Max),
            Just(Pick::PowerOfTwo),
            (0.01..2.0_f64).prop_map(|temperature| Pick::Softmax { temperature }),
        ],
        seq in 0..1_000_u64,
    ) {
        let rows: Vec<Vec<_>> = loads
            .iter()
            .map(|(requests, prefix)| {
                let prefix = if *prefix == 0 { f64::NAN } else { f64::from(*prefix) };
                vec![(REQUESTS, f64::from(*requests)), (ANY, prefix)]
            })
            .collect();
        let rows: Vec<&[_]> = rows.iter().map(|row| &**row).collect();
        let terms = vec![scorer(weights.0), feature(REQUESTS, weights.1)];
        let filters = vec![at_most(REQUESTS, f64::from(most), false)];
        let stage = Stage::new(spec(filters, terms, pick), &[Scripted::new(&[ANY])], &rows);
        let (verdict, transcript) = stage.decide(seq, 0);
        prop_assert_eq!(&verdict, &stage.decide(seq, 0).0);
        let Verdict::Route(choice) = verdict else { panic!("{verdict:?}") };
        let weighing = transcript.weighing().unwrap();
        let some_are_kept = loads.iter().any(|(requests, _)| *requests <= most);
        prop_assert_eq!(weighing.ignored == 0, some_are_kept);
        prop_assert!(!some_are_kept || loads[choice.row as usize].0 <= most);
        let figures = weighing.figures.iter().filter(|figure| !figure.is_nan());
        prop_assert!(figures.clone().all(|figure| (0.0..=1.0 + 1e-12).contains(figure)));
        if pick == Pick::Max {
            prop_assert!(figures.clone().all(|figure| *figure <= choice.score));
        }
    }

    #[test]
    fn the_scale_of_the_weights_does_not_matter(
        loads in vec((0..9_u32, 1..5_u32), 1..10),
        weight in 0.1..5.0_f64,
        by in 0.01..100.0_f64,
    ) {
        let rows: Vec<Vec<_>> = loads
            .iter()
            .map(|(requests, prefix)| vec![(REQUESTS, f64::from(*requests)), (ANY, f64::from(*prefix))])
            .collect();
        let rows: Vec<&[_]> = rows.iter().map(|row| &**row).collect();
        let figures = |by: f64| {
            let terms = vec![feature(REQUESTS, -by), feature(ANY, weight * by)];
            let stage = Stage::new(spec(vec![], terms, Pick::Max), &[], &rows);
            stage.decide(1, 0).1.weighing().unwrap().figures.clone()
        };
        for (one, other) in figures(1.0).iter().zip(figures(by)) {
            prop_assert!((one - other).abs() < 1e-9);
        }
    }
}
