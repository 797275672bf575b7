//! LCT-UC where several workers share a link: each class is held over all of them as over one, and
//! all classes that are due are sent as many packets.

use crate::shared::{RATE, Router, STEP};
use evenkeel_core::link::LinkConfig;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::schedule::lct::{LctConfig, MultiBacklog};
use evenkeel_core::settings::{Change, PerClass, Value};
use evenkeel_core::share::SharedLink;
use evenkeel_core::{BitRate, Bytes, Class, Nanos, Scheduler as _};

fn lct(x_delay: &[Nanos]) -> LctConfig {
    LctConfig { limit: PerClass::all(100), ..LctConfig::with_delays(x_delay) }
}

fn router(workers: usize, config: LctConfig) -> Router {
    let classes = usize::from(config.classes);
    Router::with(workers, &DisciplineConfig::Lct(config), &vec![1; classes], RATE)
}

/// No two packets of a class are nearer than X, whoever sends them; beyond the scheduler each may
/// stay for as long as ring and wire hold three long packets.
fn check_spacing(router: &Router, x_delay: &[Nanos]) {
    let behind = RATE.time_for(Bytes(1_538)).0 * 3;
    for (class, x) in x_delay.iter().enumerate() {
        let mut times = router.times_of(class as u16);
        times.sort_unstable();
        // Over any time, so that lateness is not made up for.
        let mut least = i64::MAX;
        for (count, at) in times.iter().enumerate() {
            let ahead = (count as u64 * x.0) as i64 - at.0 as i64;
            assert!(ahead - behind as i64 <= least, "class {class}: packet {count} at {at}, X {x}");
            least = least.min(ahead);
        }
    }
}

#[test]
fn a_class_is_held_over_all_workers_as_over_one() {
    let window = SharedLink::window_at(RATE);
    // Longer than a window, as long as many, and shorter than one.
    let x = [Nanos::ZERO, Nanos::from_micros(500), Nanos::from_millis(2), Nanos(window.0 / 3)];
    let greedy = [
        (0, 0, 1_500),
        (1, 0, 1_500),
        (2, 0, 1_500),
        (0, 1, 1_500),
        (1, 1, 1_500),
        // The others visit it without packets.
        (2, 2, 700),
        (0, 3, 100),
        (1, 3, 100),
        (2, 3, 100),
    ];
    let mut router = router(3, lct(&x));
    let time = Nanos::from_millis(300);
    router.run(time, &greedy, &[]);
    check_spacing(&router, &x);
    let mut alone = self::router(1, lct(&x));
    alone.run(time, &greedy.map(|(_, class, bytes)| (0, class, bytes)), &[]);
    for class in 1..4_u16 {
        let (sent, most) = (router.times_of(class).len() as u64, time.0 / x[usize::from(class)].0);
        let by_one = alone.times_of(class).len() as u64;
        assert!(sent + most / 50 + 1 >= by_one, "class {class} was sent {sent} of {most}");
    }
    // Workers have the same part of each class that all of them have.
    for class in [0, 1, 3] {
        let sent = [0, 1, 2].map(|worker| router.outs[worker].packets_of(class) as f64);
        let workers = if class == 1 { &sent[..2] } else { &sent[..] };
        let (least, most) = (
            workers.iter().copied().fold(f64::MAX, f64::min),
            workers.iter().copied().fold(0.0, f64::max),
        );
        assert!(most / least < 1.02 || most - least <= 2.0, "class {class}: {sent:?}");
    }
    let wire = RATE.bytes_in(time).0 as f64;
    assert!((router.total() as f64 / wire - 1.0).abs() < 0.005, "{} of {wire}", router.total());
    router.check_conservation();
}

#[test]
fn a_worker_that_stands_still_does_not_hold_a_class_for_the_others() {
    let x = [Nanos::ZERO, Nanos::from_millis(1)];
    let mut router = router(3, lct(&x));
    let greedy: Vec<_> = (0..3).flat_map(|at| [(at, 0, 1_500), (at, 1, 300)]).collect();
    router.run(Nanos::from_millis(20), &greedy, &[]);
    let before = router.times_of(1).len();
    router.run(Nanos::from_millis(200), &greedy, &[1]);
    // One comes half a window late for each that it waits for in vain.
    let least = 200_000 / (1_000 + SharedLink::window_at(RATE).0 / 1_000) as usize;
    let sent = router.times_of(1).len() - before;
    assert!((least..=201).contains(&sent), "{sent} of at least {least}");
    check_spacing(&router, &x);
}

#[test]
fn classes_that_are_due_are_sent_as_many_packets_however_long_and_wherever_they_are() {
    let x = [Nanos::ZERO; 4];
    // One class on all workers, three on one each; a worker that has one has it with others.
    let greedy =
        [(0, 0, 1_500), (1, 0, 1_500), (2, 0, 1_500), (0, 1, 1_500), (0, 2, 700), (2, 3, 100)];
    for workers in [1, 3] {
        let mut router = router(workers, lct(&x));
        let greedy = greedy.map(|(worker, class, bytes)| (worker % workers, class, bytes));
        router.run(Nanos::from_millis(20), &greedy, &[]);
        let counts = |router: &Router| [0, 1, 2, 3].map(|class| router.times_of(class).len());
        let before = counts(&router);
        router.run(Nanos::from_millis(200), &greedy, &[]);
        let sent: Vec<f64> =
            counts(&router).iter().zip(before).map(|(now, before)| (now - before) as f64).collect();
        let mean = sent.iter().sum::<f64>() / 4.0;
        assert!(
            sent.iter().all(|sent| (sent / mean - 1.0).abs() < 0.02),
            "{workers} workers: {sent:?}"
        );
    }
}

/// How long packets waited that come to a class now and then, each at another worker.
fn waits(workers: usize, config: LctConfig) -> Vec<Nanos> {
    let mut router = router(workers, config);
    let greedy: Vec<_> = (0..workers).map(|worker| (worker, 0, 1_500)).collect();
    let mut waits = Vec::new();
    let mut state = 7_u64;
    for turn in 0..150 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pause = STEP * (500 + (state >> 33) % 500);
        router.run(pause, &greedy, &[]);
        let came = router.now;
        router.offer(turn % workers, 1, 200);
        let before = router.times_of(1).len();
        while router.times_of(1).len() == before {
            router.step(&greedy, &[]);
            assert!(router.now - came < Nanos::from_millis(50), "it waits for ever");
        }
        waits.push(router.times_of(1).into_iter().max().unwrap() - came);
    }
    waits
}

#[test]
fn the_first_packet_after_a_pause_waits_as_it_does_with_one_worker() {
    let x = Nanos::from_millis(5);
    let window = SharedLink::window_at(RATE);
    for rearm_empty in [true, false] {
        let config = || LctConfig { rearm_empty, ..lct(&[Nanos::ZERO, x]) };
        let means = [1, 2, 3].map(|workers| {
            let waits = waits(workers, config());
            let most = waits.iter().max().unwrap();
            assert!(*most <= x + window * 3 + STEP * 2, "{workers} workers: {most}");
            waits.iter().map(|wait| wait.0).sum::<u64>() / waits.len() as u64
        });
        for (workers, mean) in means.into_iter().enumerate() {
            // Anywhere between two visits of the empty class; or at once, with its grant.
            let (least, most) = if rearm_empty {
                (x.0 * 4 / 10, x.0 * 6 / 10 + window.0)
            } else {
                (0, window.0 * 2 + STEP.0 * 2)
            };
            assert!((least..=most).contains(&mean), "{} workers: {mean} ns", workers + 1);
        }
    }
}

#[test]
fn a_class_alone_is_held_and_workers_sleep_meanwhile() {
    let x = [Nanos::from_millis(4)];
    let mut router = router(2, lct(&x));
    (0..40).for_each(|turn| router.offer(turn % 2, 0, 1_000));
    let mut wakes = 0;
    while router.links.iter().any(|link| link.held().queued > 0) {
        router.step(&[], &[]);
        let now = router.now;
        let is_soon = |wake: Nanos| wake <= now + STEP;
        wakes += router.links.iter().filter(|link| link.next_wake().is_some_and(is_soon)).count();
        assert!(now < Nanos::from_millis(200), "it takes too long");
    }
    router.run(Nanos::from_millis(1), &[], &[]);
    check_spacing(&router, &x);
    assert_eq!(router.times_of(0).len(), 40);
    // 39 waits of 4 ms: at their end both ask for a grant, see a window end, and look again.
    assert!(router.now >= x[0] * 39 && wakes < 40 * 2 * 12, "{} wakes in {}", wakes, router.now);
}

#[test]
fn what_is_held_goes_when_its_time_is_shortened_and_when_the_link_has_no_rate() {
    let x = [Nanos::from_millis(800), Nanos::from_millis(2)];
    let mut router = router(2, lct(&x));
    for turn in 0..8 {
        router.offer(turn % 2, 0, 1_000);
        router.offer(turn % 2, 1, 1_000);
    }
    router.run(Nanos::from_millis(30), &[], &[]);
    assert_eq!([0, 1].map(|class| router.times_of(class).len()), [1, 8]);
    set_delay(&mut router, 0, Nanos::from_millis(1));
    router.run(Nanos::from_millis(10), &[], &[]);
    assert_eq!(router.times_of(0).len(), 8);
    // Without a rate there are no grants; each class is held all the same.
    router.shared.set_rate(None);
    for at in 0..2 {
        let config = LinkConfig { rate: None, ..LinkConfig::paced(RATE) };
        let (now, out) = (router.now, &mut router.outs[at]);
        router.links[at].reconfigure(now, config, out).unwrap();
    }
    let begin = router.now;
    (0..8).for_each(|turn| router.offer(turn % 2, 1, 1_000));
    let wakes = router.links.iter().map(|link| link.next_wake().unwrap());
    assert!(wakes.into_iter().all(|wake| wake >= begin + Nanos::from_millis(1)));
    router.run(Nanos::from_millis(30), &[], &[]);
    let times: Vec<_> = router.times_of(1).into_iter().filter(|at| *at >= begin).collect();
    assert_eq!(times.len(), 8);
    assert!(times.iter().max().unwrap().0 - times.iter().min().unwrap().0 >= x[1].0 * 7);
    router.check_conservation();
}

#[test]
fn a_worker_with_nothing_but_a_held_class_has_its_grants_in_time() {
    let x = [Nanos::ZERO, Nanos::from_micros(500)];
    let mut router = router(2, lct(&x));
    let time = Nanos::from_millis(200);
    router.run(time, &[(0, 0, 1_500), (1, 1, 700)], &[]);
    let (sent, most) = (router.times_of(1).len(), 400);
    assert!((most * 95 / 100..=most + 1).contains(&sent), "{sent} of {most}");
}

#[test]
fn what_is_not_held_does_not_wait_for_what_is() {
    let x = [Nanos::ZERO, Nanos::from_millis(800)];
    let mut router = router(2, lct(&x));
    (0..4).for_each(|turn| router.offer(turn % 2, 1, 1_000));
    router.run(Nanos::from_millis(20), &[], &[]);
    router.offer(0, 0, 1_000);
    router.run(SharedLink::window_at(RATE) * 2, &[], &[]);
    assert_eq!([0, 1].map(|class| router.times_of(class).len()), [1, 1]);
}

/// At both workers, as a command does it.
fn set_delay(router: &mut Router, class: u16, x: Nanos) {
    let change = Change::of("x_delay", Class(class), Value::Time(x));
    for at in 0..2 {
        let (now, out) = (router.now, &mut router.outs[at]);
        router.links[at].set(now, &change, out).unwrap();
    }
}

#[test]
fn a_class_whose_delay_goes_has_its_share_at_once_and_one_whose_delay_comes_is_held() {
    let x = [Nanos::ZERO, Nanos::from_millis(800)];
    for is_busy in [false, true] {
        let mut router = router(2, lct(&x));
        let greedy: &[_] = if is_busy { &[(0, 0, 1_500)] } else { &[] };
        router.offer(0, 1, 1_500);
        router.run(Nanos::from_millis(1), greedy, &[]);
        (0..60).for_each(|_| router.offer(1, 1, 1_500));
        router.run(Nanos::from_millis(20), greedy, &[]);
        assert_eq!(router.times_of(1).len(), 1);
        set_delay(&mut router, 1, Nanos::ZERO);
        // 60 packets take 0.74 ms, and twice that beside the other class.
        router.run(Nanos::from_millis(2), greedy, &[]);
        assert_eq!(router.times_of(1).len(), 61, "beside others: {is_busy}");
        (0..60).for_each(|_| router.offer(1, 1, 1_500));
        set_delay(&mut router, 1, Nanos::from_millis(5));
        router.run(Nanos::from_millis(50), greedy, &[]);
        let sent = router.times_of(1).len() - 61;
        assert!((9..=12).contains(&sent), "{sent} in 50 ms, one in 5");
        router.check_conservation();
    }
}

#[test]
fn a_discipline_that_has_just_begun_holds_nothing() {
    let x = [Nanos::from_millis(800); 2];
    let mut router = router(2, lct(&x));
    (0..4).for_each(|turn| router.offer(turn % 2, 0, 1_000));
    for round in 1..3 {
        router.run(Nanos::from_millis(20), &[], &[]);
        // Each worker begins for itself, and sends one.
        assert!((round..=2 * round - 1).contains(&router.times_of(0).len()));
        for at in 0..2 {
            let part = DisciplineConfig::Lct(lct(&x));
            let part = part.build_part(2, std::sync::Arc::clone(&router.shared), at).unwrap();
            let (now, out) = (router.now, &mut router.outs[at]);
            router.links[at].swap(now, part, out);
        }
    }
}

/// Classes beyond the columns of the link are held together.
#[test]
fn more_classes_than_columns_are_no_harm() {
    let x = vec![Nanos::from_millis(1); 40];
    let shared = std::sync::Arc::new(SharedLink::new(2, 2, Nanos::from_millis(5)));
    shared.set_rate(Some(RATE));
    let mut router = router(2, lct(&x));
    for at in 0..2 {
        let part = DisciplineConfig::Lct(lct(&x));
        let part = part.build_part(40, std::sync::Arc::clone(&shared), at).unwrap();
        let (now, out) = (router.now, &mut router.outs[at]);
        router.links[at].swap(now, part, out);
    }
    (0..80).for_each(|turn| router.offer(turn % 2, turn as u16 % 40, 1_000));
    router.run(Nanos::from_millis(150), &[], &[]);
    assert!((0..40).all(|class| router.times_of(class).len() == 2));
    router.check_conservation();
}

#[test]
fn what_holds_not_every_class_is_one_workers() {
    let shared = std::sync::Arc::new(SharedLink::new(2, 2, Nanos::from_millis(5)));
    shared.set_rate(Some(BitRate::from_mbps(100)));
    let build = |config| {
        let shared = std::sync::Arc::clone(&shared);
        DisciplineConfig::Lct(config)
            .build_part::<evenkeel_core::packet::Descriptor>(2, shared, 0)
            .map(|part| part.name())
    };
    let config = || lct(&[Nanos::ZERO, Nanos::from_millis(1)]);
    assert_eq!(build(config()).unwrap(), "lct");
    let others = [
        LctConfig { module2: false, ..config() },
        LctConfig { module2: false, multi_backlog: MultiBacklog::Hold, ..config() },
        LctConfig { multi_backlog: MultiBacklog::EarliestDue, ..config() },
    ];
    for config in others {
        let error = build(config).unwrap_err().to_string();
        assert!(error.contains("that does not hold every class works with workers = 1 only"));
    }
    // Nor does it become so while it is shared.
    let mut part = DisciplineConfig::Lct(config())
        .build_part::<evenkeel_core::packet::Descriptor>(2, shared, 0)
        .unwrap();
    let others = [
        Change::new("module2", Value::Switch(false)),
        Change::new("multi_backlog", Value::Word("min-x")),
    ];
    for change in others {
        let error = part.set(Nanos::ZERO, &change).unwrap_err().to_string();
        assert!(error.contains("works with workers = 1 only"), "{error}");
    }
    let _ = part.set(Nanos::ZERO, &Change::new("module2", Value::Switch(true))).unwrap();
}
