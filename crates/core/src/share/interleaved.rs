//! The shared link over all orders in which two workers can come, and all that the memory model
//! lets them see: `loom` tries them, with up to three places at which one worker overtakes the
//! other. Built with `--cfg loom` alone.

use alloc::sync::Arc;

use loom::model::Builder;
use loom::thread;

use super::counts::Counts;
use super::users::{COUNT, FLOWS, is_of, name, name_of};
use super::*;
use crate::flow_table::PackedFlow;

/// A window at this rate lasts as long as eight long packets.
const RATE: BitRate = BitRate(1_000_000_000);
const WORKERS: usize = 2;

fn link() -> SharedLink {
    let link = SharedLink::new(WORKERS, 2, Nanos::ZERO);
    link.set_rate(Some(RATE));
    link
}

/// When window `number` is opened, by whoever comes first.
fn opens(number: u64) -> Nanos {
    Nanos(number * SharedLink::window_at(RATE).0)
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// What a worker holds after it has read a table: the window, its end, and what it was granted.
fn held(part: &Part) -> (u64, Nanos, u64) {
    let granted =
        part.columns.iter().map(|column| column.sent.wrapping_add(column.credit as u64)).sum();
    (part.seen, part.until, granted)
}

/// What the link can send until window `number` is opened, in units.
fn sendable(number: u64) -> u128 {
    u128::from(RATE.0) * u128::from(opens(number).0) * UNIT / BYTE
}

/// As [`SharedLink::renew`] reads, without the second look at which table is the current one.
fn reads_once(link: &SharedLink, part: &mut Part) {
    let current = link.current.load(Ordering::Acquire);
    let table = link.table(current);
    let row = part.worker * link.classes;
    for (class, column) in part.columns.iter_mut().enumerate() {
        column.credit = table.granted.get(row + class).wrapping_sub(column.sent) as i64;
    }
    part.until = Nanos(table.head.get(OPENED).saturating_add(table.head.get(WINDOW)));
    part.seen = current >> 8;
}

/// One worker opens windows, in its two tables by turns, while another reads: whatever that one
/// sees is of one window.
fn one_opens_while_another(reads: fn(&SharedLink, &mut Part)) {
    model(move || {
        let link = Arc::new(link());
        let mut first = link.part(0);
        first.came(0, 100_000);
        link.open(&mut first, opens(1));
        let opener = {
            let link = Arc::clone(&link);
            thread::spawn(move || {
                (2..=3).for_each(|number| link.open(&mut first, opens(number)));
            })
        };
        let mut part = link.part(1);
        reads(&link, &mut part);
        let (seen, until, granted) = held(&part);
        assert_eq!(until, opens(seen + 1), "a table of two windows");
        assert!(u128::from(granted) <= sendable(seen), "{granted} by window {seen}");
        opener.join().unwrap();
    });
}

#[test]
fn a_table_is_read_whole_whoever_writes() {
    one_opens_while_another(|link, part| link.renew(part, opens(1)));
}

#[test]
#[should_panic(expected = "a table of two windows")]
fn who_does_not_look_twice_is_found() {
    one_opens_while_another(reads_once);
}

/// Both find a window over at once, and send what they are granted.
#[test]
fn a_window_that_two_open_is_granted_once() {
    model(|| {
        let link = Arc::new(link());
        let works = |link: &SharedLink, worker: usize| {
            let mut part = link.part(worker);
            part.came(worker, 40_000);
            part.publish(link);
            part.at(link, opens(1));
            let held = held(&part);
            while part.is_granted(worker) {
                part.sent(worker, worker, 1_538);
            }
            held
        };
        let other = {
            let link = Arc::clone(&link);
            thread::spawn(move || works(&link, 1))
        };
        let mine = works(&link, 0);
        let theirs = other.join().unwrap();
        assert_eq!((mine.0, theirs.0), (1, 1), "nobody opens it a second time");
        let granted = u128::from(mine.2) + u128::from(theirs.2);
        assert!(granted <= sendable(1), "{granted} of {}", sendable(1));
        for (worker, held) in [mine, theirs].into_iter().enumerate() {
            let sent = link.cells[worker].0.get(2 * worker + 1);
            assert!(sent <= held.2 + (1_538 << 16), "{sent} of {}", held.2);
        }
    });
}

/// Both find a class due, and say what they do of it.
fn two_find_a_class_due(claims: fn(&SharedLink) -> bool) {
    model(move || {
        let link = Arc::new(link());
        let other = {
            let link = Arc::clone(&link);
            thread::spawn(move || claims(&link))
        };
        let mine = claims(&link);
        let theirs = other.join().unwrap();
        assert_eq!(usize::from(mine) + usize::from(theirs), 1, "one packet of a class that is due");
        assert_eq!(link.due(0), opens(2));
    });
}

#[test]
fn a_class_that_is_due_is_sent_by_one() {
    two_find_a_class_due(|link| link.claim(0, opens(1), opens(2)));
}

#[test]
#[should_panic(expected = "one packet of a class that is due")]
fn who_looks_and_then_says_so_is_found() {
    two_find_a_class_due(|link| {
        let is_due = link.due(0) <= opens(1);
        if is_due {
            link.held.due.set(0, opens(2).0);
        }
        is_due
    });
}

/// One hands something over while the other finds nothing and goes to sleep: it is woken.
fn nobody_sleeps_beside_what_waits(may_sleep: fn(&wake::Wake) -> bool) {
    model(move || {
        let wake = Arc::new(wake::Wake::default());
        let place = Arc::new(AtomicU64::new(0));
        let (theirs, put) = (Arc::clone(&wake), Arc::clone(&place));
        let hands = thread::spawn(move || {
            theirs.comes();
            put.store(1, Ordering::Release);
            theirs.wakes()
        });
        let mut sleeps = false;
        if place.swap(0, Ordering::AcqRel) == 1 {
            wake.gone();
        } else {
            sleeps = may_sleep(&wake);
        }
        let woken = hands.join().expect("it does not panic");
        assert!(!sleeps || woken, "it sleeps, and something waits for it");
    });
}

/// As [`wake::Wake::may_sleep`], in the wrong order.
fn looks_first(wake: &wake::Wake) -> bool {
    let may = wake.waiting.load(Ordering::Acquire) == 0;
    fence(Ordering::SeqCst);
    wake.asleep.store(u64::from(may), Ordering::Release);
    may
}

#[test]
fn who_hands_over_wakes_who_sleeps() {
    nobody_sleeps_beside_what_waits(wake::Wake::may_sleep);
}

#[test]
#[should_panic(expected = "it sleeps, and something waits for it")]
fn who_looks_before_it_says_that_it_sleeps_is_found() {
    nobody_sleeps_beside_what_waits(looks_first);
}

/// A host leaves its place while two workers find flows of another that wait: `places` of it there
/// are in the end.
fn two_claim_a_host(looks: bool) {
    model(move || {
        let link = Arc::new(link());
        let counts = || {
            let mut counts = Counts::new(Arc::clone(&link), 2, 3);
            (0..2_u64).for_each(|host| {
                counts.name(host as usize, &PackedFlow::v4(host << 32, 0, 0).host(true));
            });
            counts
        };
        let (mut mine, mut theirs) = (counts(), counts());
        mine.change(0, true);
        let other = thread::spawn(move || {
            theirs.change(1, true);
            theirs
        });
        mine.change(0, false);
        mine.change(1, true);
        let mut theirs = other.join().unwrap();
        if looks {
            let _ = (mine.all(1), theirs.all(1));
            assert_eq!((mine.all(1), theirs.all(1)), (2, 2));
        }
        assert_eq!(link.hosts_that_wait(), (2, 1), "all flows in one place");
        drop(mine);
        drop(theirs);
        assert_eq!(link.hosts_that_wait(), (0, 0));
    });
}

#[test]
fn a_host_that_two_claim_is_counted_in_one_place() {
    two_claim_a_host(true);
}

#[test]
#[should_panic(expected = "all flows in one place")]
fn two_places_of_a_host_that_nobody_looks_at_are_found() {
    two_claim_a_host(false);
}

/// Both add a flow and take it back, while the host's place is free, taken, and free again.
#[test]
fn flows_of_a_host_that_come_and_go_at_two_workers_leave_nothing() {
    model(|| {
        let link = Arc::new(link());
        let works = |link: &Arc<SharedLink>| {
            let mut counts = Counts::new(Arc::clone(link), 1, 3);
            counts.change(0, true);
            let all = counts.all(0);
            assert!((1..=2).contains(&all), "{all}");
            counts.change(0, false);
        };
        let other = {
            let link = Arc::clone(&link);
            thread::spawn(move || works(&link))
        };
        works(&link);
        other.join().unwrap();
        assert_eq!(link.hosts_that_wait(), (0, 0));
    });
}

/// How long an interval lasts.
const T_FR: Nanos = Nanos::from_millis(500);

/// One counts a flow of a user, if it has fewer than `most`; gives the interval.
type Enters = fn(&Users, u64, u32) -> Result<u32, u32>;

/// A table of two places, both with what an earlier interval has left there.
fn used() -> Arc<Users> {
    let users = Users::new(1, 0);
    users.begin(T_FR);
    (7..9).for_each(|user| assert!(users.enter(user, 1).is_ok()));
    users.next_interval(T_FR + T_FR, T_FR, false);
    Arc::new(users)
}

/// Both let flows of two users in, the other way round: each user gets its one.
fn two_let_in(enters: Enters) {
    model(move || {
        let users = used();
        let other = {
            let users = Arc::clone(&users);
            thread::spawn(move || [1, 2].map(|user| enters(&users, user, 1).is_ok()))
        };
        let mut mine = [2, 1].map(|user| enters(&users, user, 1).is_ok());
        mine.reverse();
        let theirs = other.join().unwrap();
        for (at, (mine, theirs)) in mine.into_iter().zip(theirs).enumerate() {
            assert_eq!(u32::from(mine) + u32::from(theirs), 1, "flows of user {at}");
        }
    });
}

/// Takes the first place that is nobody's without another look at those before it.
fn takes_what_is_free(users: &Users, hash: u64, most: u32) -> Result<u32, u32> {
    let interval = name_of(users.began());
    let (mut place, mut word) = users.find(hash, interval);
    while !is_of(word, interval) {
        let counted = name(hash) | interval | 1;
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        match place.compare_exchange(word, counted, release, relaxed) {
            Ok(_) => return Ok((interval >> COUNT) as u32),
            // Whoever was faster, the next place is free.
            Err(_) => (place, word) = users.find(hash ^ 1 << 20, interval),
        }
    }
    if word & FLOWS < most.into() { users.enter(hash, most) } else { Err(most) }
}

#[test]
fn a_flow_that_is_left_to_a_user_is_admitted_by_one() {
    two_let_in(Users::enter);
}

#[test]
#[should_panic(expected = "flows of user")]
fn who_does_not_look_again_is_found() {
    two_let_in(takes_what_is_free);
}

/// One begins the next interval and lets a user in twice, the other lets it in meanwhile: whatever
/// interval that falls into, it gets one in each.
fn two_meet_where_an_interval_ends(enters: Enters) {
    model(move || {
        let users = used();
        let other = {
            let users = Arc::clone(&users);
            thread::spawn(move || enters(&users, 1, 1).ok())
        };
        users.next_interval(T_FR * 3, T_FR, false);
        let mut all = vec![enters(&users, 1, 1).ok(), enters(&users, 1, 1).ok()];
        all.push(other.join().unwrap());
        let mut intervals: Vec<_> = all.into_iter().flatten().collect();
        intervals.sort_unstable();
        let admitted = intervals.len();
        intervals.dedup();
        assert_eq!(admitted, intervals.len(), "flows in one interval");
        assert!(intervals.contains(&users.interval()), "the new one has its flow");
    });
}

/// As [`Users::enter`], without another look at when the interval began.
fn does_not_ask_again(users: &Users, hash: u64, most: u32) -> Result<u32, u32> {
    let interval = name_of(users.began());
    loop {
        let (place, word) = users.find(hash, interval);
        let own = is_of(word, interval);
        if own && word & FLOWS >= most.into() {
            return Err(most);
        }
        let counted = if own { word + 1 } else { name(hash) | interval | 1 };
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        if place.compare_exchange(word, counted, release, relaxed).is_ok() {
            return Ok((interval >> COUNT) as u32);
        }
    }
}

#[test]
fn an_interval_that_ends_beside_a_new_flow_is_not_counted_in_twice() {
    two_meet_where_an_interval_ends(Users::enter);
}

#[test]
#[should_panic(expected = "flows in one interval")]
fn who_takes_a_place_for_an_interval_that_is_over_is_found() {
    two_meet_where_an_interval_ends(does_not_ask_again);
}

/// Two find an interval over, at estimates that were due at different instants.
#[test]
fn the_next_interval_is_begun_once() {
    model(|| {
        let users = used();
        let other = {
            let users = Arc::clone(&users);
            thread::spawn(move || users.next_interval(T_FR * 3 + Nanos(5), T_FR, false))
        };
        users.next_interval(T_FR * 3, T_FR, false);
        other.join().unwrap();
        assert_eq!(Nanos(users.began()), T_FR * 3);
    });
}
