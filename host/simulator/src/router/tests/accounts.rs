//! Bookings are returned at every end of a request.

use proptest::prelude::*;

use super::*;
use crate::router::CostSource;

const REQUESTS: usize = 12;

/// Event that may happen to a request, at any time and however often.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Placed,
    FirstToken(usize),
    Finished,
    Lost(usize),
    Left,
}

fn happening() -> impl Strategy<Value = (usize, Happening)> {
    use Happening::{Finished, FirstToken, Left, Lost, Placed};
    let what = prop_oneof![
        4 => Just(Placed),
        4 => (0..4_usize).prop_map(FirstToken),
        2 => Just(Finished),
        1 => (0..4_usize).prop_map(Lost),
        1 => Just(Left),
    ];
    (0..REQUESTS, what)
}

proptest! {
    #[test]
    fn nothing_stays_booked_or_held(happenings in prop::collection::vec(happening(), 0..200)) {
        let policy = Scripted::new(&[], &["worker.role"], |input| match input.request.seq % 3 {
            0 => Verdict::Pass,
            1 => hold(1.0, 10),
            _ => Verdict::Route(Choice {
                row: input.ids.len() as u32 - 1,
                prefill: Some(0),
                score: 0.0,
            }),
        });
        let cluster = roles(&[Role::Prefill, Role::Prefill, Role::Mixed, Role::Decode]);
        let spec = RouterSpec {
            costs: CostSource::Exact(Profile::default()),
            ..RouterSpec::default()
        };
        let mut router = router(&cluster, &policy, &spec);
        let mut in_flight = [false; REQUESTS];
        let mut now_us = 0;
        for (number, what) in happenings {
            now_us += 7_000;
            match what {
                // A request that is on its way is not placed again.
                Happening::Placed if in_flight[number] => {}
                Happening::Placed => {
                    let placement = router.place(now_us, arrives(number, &some_request()), 0);
                    in_flight[number] = matches!(placement, Placement::Dispatch { .. });
                }
                Happening::FirstToken(worker) => drop(router.first_token(now_us, number, worker)),
                Happening::Finished => {
                    router.finished(now_us, number, 20);
                    in_flight[number] = false;
                }
                Happening::Lost(worker) => {
                    if in_flight[number] {
                        router.lost(now_us, number, worker);
                        in_flight[number] = false;
                    }
                }
                Happening::Left => {
                    router.left(now_us, number);
                    in_flight[number] = false;
                }
            }
        }
        for number in 0..REQUESTS {
            router.left(now_us, number);
        }
        prop_assert_eq!(router.held(), 0);
        for worker in 0..4 {
            let load = router.load(worker);
            let booked = (load.requests, load.decoding, load.prefill_tokens, load.prompt_tokens);
            prop_assert_eq!(booked, (0, 0, 0, 0));
            prop_assert_eq!(router.state.backlogs[worker].left_us(now_us), 0);
        }
    }
}
