//! Different changes of one route that routers of a fleet get at once, over a real `nats-server`.

use harness::sends_to;
use http::StatusCode;
use nats_server::NatsSite;
use serde_json::json;

use crate::agreement::{agreed, applied, change, router};
use crate::fast_fleet;

#[tokio::test]
async fn of_different_changes_of_a_route_at_once_all_routers_make_one_and_each_other_is_refused() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else { return };
    let engines = fast_fleet(2).await;
    let mine = sends_to(0, 1).unwrap();
    let one = router(&site, "main", "one", &engines, &mine).await;
    let two = router(&site, "main", "two", &engines, &mine).await;
    let routers = [&one, &two];
    for router in routers {
        router.save_policy("new", &sends_to(1, 1).unwrap()).unwrap();
    }
    agreed(&routers).await;
    for round in 0..4 {
        let percents = [10 + round, 50 + round];
        let sent = [(&one, percents[0]), (&two, percents[1])].map(|(router, percent)| async move {
            let body = json!({ "percent": percent });
            change(router, "/admin/policies/new/canary", &body).await
        });
        let answers = futures_util::future::join_all(sent).await;
        let mut made = Vec::new();
        for ((status, answer), percent) in answers.into_iter().zip(percents) {
            if status == StatusCode::OK {
                made.push(json!({ "new": f64::from(percent) / 100.0 }));
                continue;
            }
            assert_eq!(status, StatusCode::CONFLICT, "round {round}: {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            let why = match answer["error"]["code"].as_str() {
                Some("fleet_changed") => "decided otherwise",
                // The other change was staged before this one began.
                _ => "stages another change",
            };
            assert!(message.contains(why), "round {round}: {answer}");
        }
        applied(&one, "route", 2).await;
        applied(&two, "route", 2).await;
        // Both are made if the second one comes after the first one.
        for router in routers {
            let page = router.admin("/admin/policies").await.unwrap();
            let canaries = &page["routes"][0]["canaries"];
            assert!(made.contains(canaries), "round {round}: {made:?}: {page}");
        }
    }
}
