//! Lists of ten thousand, page by page.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;

use serde_json::Value;

use crate::bed::{Setup, get, json};

const LIST: &str = "/api/v1/routers/edge/subscribers";

fn names(told: &Value) -> Vec<String> {
    let rows = told["subscribers"].as_array().unwrap().iter();
    rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn ten_thousand_subscribers_are_told_page_by_page_and_the_router_is_asked_once() {
    let setup = Setup::new();
    setup.target.crowd.store(10_000, Ordering::Relaxed);
    let _router = setup.router();
    let server = setup.serve();
    let at = server.address();
    let first = json(at, LIST);
    assert_eq!((first["total"].as_u64(), first["matching"].as_u64()), (Some(10_002), Some(10_002)));
    assert_eq!((names(&first).len(), names(&first)[0].as_str()), (100, "ann"));
    let asked = || setup.target.told.load(Ordering::Relaxed);
    // Two looks, each of ten parts and what is behind them: nothing.
    let parts = asked() / 2;
    assert_eq!(parts, 11);
    let mut all = BTreeSet::new();
    for page in 0..11 {
        let told = json(at, &format!("{LIST}?sort=name&limit=5000&offset={}", page * 1_000));
        let names = names(&told);
        assert_eq!(names.len(), if page < 10 { 1_000 } else { 2 }, "page {page}");
        all.extend(names);
    }
    assert_eq!(all.len(), 10_002);
    let found = json(at, &format!("{LIST}?search=HOUSE0999&order=desc&sort=name&limit=3"));
    assert_eq!(names(&found), ["house09999", "house09998", "house09997"]);
    assert_eq!((found["matching"].as_u64(), found["total"].as_u64()), (Some(10), Some(10_002)));
    assert_eq!(names(&json(at, &format!("{LIST}?top=1"))), ["ann"]);
    assert_eq!(names(&json(at, &format!("{LIST}?link=wan"))), Vec::<String>::new());
    // Fifteen pages, and on a busy machine it became old meanwhile.
    assert!(asked() <= 5 * parts, "{} parts were asked for", asked());
}

#[test]
fn those_who_sent_most_are_metrics_with_their_names() {
    let setup = Setup::new();
    setup.target.crowd.store(500, Ordering::Relaxed);
    let _router = setup.router();
    let server = setup.serve();
    let told = |path: &str| {
        let (status, text) = get(server.address(), path);
        assert_eq!(status, 200, "{path}: {text}");
        text
    };
    json(server.address(), LIST);
    let text = told("/metrics/subscribers?top=1");
    let ann = "{router=\"edge\",link=\"lan\",subscriber=\"ann\",parent=\"north\"}";
    let has = |line: &str| text.lines().any(|one| one.starts_with(line));
    assert!(has(&format!("evenkeel_subscriber_bits_per_second{ann} ")), "{text}");
    assert!(has(&format!("evenkeel_subscriber_cap_bits_per_second{ann} 10000000")), "{text}");
    assert!(has(&format!("evenkeel_subscriber_rtt_seconds{ann} 0.0235")), "{text}");
    assert!(!text.contains("carol") && text.ends_with("# EOF\n"), "{text}");
    let series = |text: &str| text.lines().filter(|one| one.contains("_waiting_packets{")).count();
    assert_eq!(series(&told("/metrics/subscribers")), 100);
    assert_eq!(series(&told("/metrics/subscribers?top=5000")), 502);
    assert_eq!(told("/metrics/subscribers?top=0"), "# EOF\n");
    for wrong in ["top=-1", "top=x", "most=3"] {
        assert_eq!(get(server.address(), &format!("/metrics/subscribers?{wrong}")).0, 400);
    }
    // The other metrics name nobody.
    assert!(!told("/metrics").contains("ann"));
}

#[test]
fn who_asks_while_a_list_is_read_waits_for_it() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    let at = server.address();
    let all: Vec<_> = (0..20).map(|_| thread::spawn(move || get(at, LIST).0)).collect();
    assert!(all.into_iter().all(|one| one.join().unwrap() == 200));
    // Two looks, each of a part and of what is behind it: nothing. On a busy machine one more.
    let asked = setup.target.told.load(Ordering::Relaxed);
    assert!((4..=6).contains(&asked), "{asked} parts were asked for");
}

#[test]
fn what_no_list_knows_is_refused_with_what_it_knows() {
    let setup = Setup::new();
    let _router = setup.router();
    let server = setup.serve();
    for list in [LIST, "/api/v1/routers/edge/flows"] {
        for query in
            ["sort=size", "order=up", "limit=-1", "offset=x", "page=2", "limit=1&top=1", "%ff=%fe"]
        {
            let (status, why) = get(server.address(), &format!("{list}?{query}"));
            assert_eq!(status, 400, "{query}: {why}");
        }
        let (_, why) = get(server.address(), &format!("{list}?sort=size"));
        assert!(why.contains("only by bps, "), "{why}");
        let none = json(server.address(), &format!("{list}?search=%F0%9F%90%8B&offset=7"));
        assert_eq!((none["matching"].as_u64(), none["offset"].as_u64()), (Some(0), Some(7)));
    }
}
