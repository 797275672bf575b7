//! Links whose rate follows their line, on ports that are joined and on routed ones: pings that
//! pass say how long packets wait on a line whose rate the router is not told.

use std::collections::VecDeque;

use evenkeel_config::{Change, LinkChange};
use evenkeel_core::{BitRate, Bytes, Nanos};
use evenkeel_net::MacAddr;
use evenkeel_router::snapshot::ClassSnapshot;

use crate::common::{Bed, Udp, echo, host_mac, router_mac, set_fairdrop, udp, v4};

const MS: Nanos = Nanos(1_000_000);
const CONTROL: &str = "control = { kind = \"latency\", min = \"2Mbit/s\", max = \"50Mbit/s\"";

/// A line behind port 0, 30 ms there and back, with a queue that never ends.
struct Line {
    /// Several workers: replies come by the last one, what is sent by the others in turn.
    beds: Vec<Bed>,
    rate: BitRate,
    free: Nanos,
    /// Replies under way: when, and their numbers.
    replies: VecDeque<(Nanos, u16)>,
    number: u16,
    /// Who sends what leaves by port 0, and the reply.
    macs: [(MacAddr, MacAddr); 2],
    /// What waited last.
    wait: Nanos,
    answers: bool,
}

impl Line {
    fn new(beds: Vec<Bed>, macs: [(MacAddr, MacAddr); 2]) -> Self {
        let rate = BitRate::from_mbps(20);
        let (free, wait) = (beds[0].now, Nanos::ZERO);
        Self { beds, rate, free, replies: VecDeque::new(), number: 0, macs, wait, answers: true }
    }

    /// It carries so much for a while, and port 1 sends more than that.
    fn carries(&mut self, mbps: u64, millis: u32) {
        self.rate = BitRate::from_mbps(mbps);
        for tick in 0..millis {
            for n in 0..5 {
                let what = Udp { payload: 1_200, ..Udp::default() };
                let by = n % (self.beds.len() - 1).max(1);
                self.beds[by].inject(1, &udp(self.macs[0], v4(1, 2), v4(0, 2), what));
            }
            if tick % 20 == 0 {
                self.number += 1;
                let asks = echo(self.macs[0], (v4(1, 2), v4(0, 2)), self.number, false);
                self.first().inject(1, &asks);
            }
            for bed in &mut self.beds {
                bed.pass(MS);
            }
            let now = self.first().now;
            let sent: Vec<_> = self.beds.iter_mut().flat_map(|bed| bed.received(0)).collect();
            for frame in sent {
                self.wait = self.free.saturating_sub(now);
                self.free = self.free.max(now) + self.rate.time_for(Bytes(frame.len() as u64 + 24));
                if frame[23] == 1 && self.answers {
                    let number = u16::from_be_bytes([frame[40], frame[41]]);
                    self.replies.push_back((self.free + Nanos(30 * MS.0), number));
                }
            }
            while let Some((at, number)) = self.replies.front().copied()
                && at <= now
            {
                self.replies.pop_front();
                let answer = echo(self.macs[1], (v4(0, 2), v4(1, 2)), number, true);
                self.beds.last_mut().unwrap().inject(0, &answer);
            }
            for bed in &mut self.beds {
                let _ = bed.received(1);
            }
        }
    }

    /// The first worker.
    fn first(&mut self) -> &mut Bed {
        &mut self.beds[0]
    }

    fn rate_of(&mut self, link: &str) -> u64 {
        self.first().snapshot().link(link).unwrap().rate_bps.unwrap()
    }

    fn news(&mut self) -> String {
        let mut all = Vec::new();
        for bed in &mut self.beds {
            bed.pipeline.drain_news(|text| all.push(text.to_owned()));
        }
        all.join("\n")
    }
}

fn inline(control: &str) -> Line {
    let links = format!(
        "[[link]]\nport = \"p0\"\nrate = \"20Mbit/s\"\n{control}\n\
         [[link]]\nport = \"p0-ingress\"\nrate = \"20Mbit/s\"\n{control}\n\
         [[port]]\nname = \"p0\"\ninterface = \"eth0\"\nattach = \"inline\"\n"
    );
    let macs = (host_mac(1), host_mac(0));
    Line::new(vec![Bed::of(&links)], [macs, (macs.1, macs.0)])
}

fn routed(workers: usize, rest: &str) -> Line {
    let rest = format!("[router]\nworkers = {workers}\n{rest}");
    let links = format!("[[link]]\nport = \"p0\"\nrate = \"20Mbit/s\"\n{CONTROL} }}\n{rest}");
    let macs = [(host_mac(1), router_mac(1)), (host_mac(0), router_mac(0))];
    Line::new(Bed::workers(2, &links), macs)
}

fn follows(mut line: Line, link: &str) {
    line.carries(20, 2_000);
    let _ = line.news();
    for mbps in [8, 30, 5] {
        line.carries(mbps, 3_000);
        for _ in 0..20 {
            line.carries(mbps, 100);
            assert!(line.wait < Nanos(30 * MS.0), "{mbps} Mbit/s: {}", line.wait);
            let rate = line.rate_of(link);
            assert!(rate > mbps * 850_000 && rate < mbps * 1_200_000, "{mbps} Mbit/s: {rate}");
        }
        let news = line.news();
        assert!(news.contains(&format!("link {link}: rate changed from")), "{news}");
        assert!(news.contains("ms on the line"), "{news}");
    }
    let seen = line.first().snapshot().link(link).unwrap().follow.clone().unwrap();
    assert!(seen.on && seen.steps > 10 && seen.latest.len() == 8, "{seen:?}");
    assert!(seen.latest.windows(2).all(|pair| pair[0].at_ns < pair[1].at_ns));
}

#[test]
fn a_link_follows_its_line_inline_and_routed_with_and_without_remembered_flows() {
    follows(inline(&format!("{CONTROL} }}")), "p0");
    follows(routed(1, ""), "p0");
    follows(routed(1, "flow_cache = 0\n"), "p0");
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would() {
    let mut line = inline(&format!("{CONTROL}, on = false }}"));
    line.carries(8, 4_000);
    assert_eq!(line.rate_of("p0"), 20_000_000);
    assert!(line.news().contains("rate would be changed from 20Mbit/s to"));
}

/// The first worker has the link. No reply comes back to it.
#[test]
fn a_link_of_several_workers_follows_its_line_by_replies_that_come_to_any_of_them() {
    follows(routed(2, ""), "p0");
    let mut line = routed(3, "");
    line.carries(8, 3_000);
    let of = |line: &mut Line, at: usize| {
        line.beds[at].snapshot().link("p0").unwrap().follow.as_ref().map(|seen| seen.steps)
    };
    let steps = of(&mut line, 0).unwrap();
    assert!(steps > 3, "{steps}");
    assert_eq!((of(&mut line, 1), of(&mut line, 2)), (None, None));
    let off = Change::Link("p0".into(), LinkChange::Control(false));
    for bed in &mut line.beds {
        bed.pipeline.change(bed.now, &off).unwrap();
    }
    assert_eq!(line.rate_of("p0"), 20_000_000);
}

/// FairDrop refuses what the line does not carry, so that the queue of the link need not.
#[test]
fn fairdrop_of_bits_judges_by_the_rate_that_is_followed() {
    for workers in [1, 3] {
        let mut line = routed(workers, "[fairdrop]\ncpu = false\n");
        // What FairDrop refused, and what found the queue of the link full.
        let dropped = |line: &mut Line| {
            let mut sums = [0; 2];
            for bed in &mut line.beds {
                let seen = bed.snapshot();
                sums[0] += seen.fairdrop.as_ref().unwrap().links[0].refused;
                let classes = &seen.link("p0").unwrap().classes;
                sums[1] += classes.iter().map(ClassSnapshot::dropped_total).sum::<u64>();
            }
            sums
        };
        line.carries(6, 4_000);
        // Built anew, by the configured rate, while the link has another.
        for change in [false, true] {
            for bed in &mut line.beds {
                if change {
                    set_fairdrop(bed, "theta", "0.98").unwrap();
                }
            }
            // The rate stays: nobody answers any more.
            line.answers = !change;
            line.carries(6, 500);
            let before = dropped(&mut line);
            line.carries(6, 2_000);
            let after = dropped(&mut line);
            let [refused, full] = [0, 1].map(|at| after[at] - before[at]);
            assert!(refused > 5_000 && full * 20 < refused, "{workers}: {refused} {full}");
        }
    }
}

/// The line of another port than the link's: that port's link is the first worker's as well.
#[test]
fn what_goes_into_a_line_that_a_link_follows_is_one_workers() {
    let text = format!(
        "[router]\nworkers = 2\n[[link]]\nport = \"p1\"\nrate = \"20Mbit/s\"\n{CONTROL}, line = \
         \"p0\" }}\n"
    );
    let config = Bed::config(2, &text);
    let parts = config.unshared_links();
    assert_eq!(parts[0].as_ref().unwrap().what, "the rate of a link follows its line");
    assert_eq!(parts[1].as_ref().unwrap().what, "a dynamic control");
}

/// Nobody answers: the rate stays. Switched off, the link has its configured rate again.
#[test]
fn silence_holds_the_rate_and_off_gives_the_configured_one() {
    let mut line = inline(&format!("{CONTROL} }}"));
    line.carries(8, 4_000);
    let slow = line.rate_of("p0");
    assert!(slow < 9_000_000);
    line.answers = false;
    line.carries(3, 500);
    let before = line.rate_of("p0");
    line.carries(3, 3_000);
    assert_eq!(line.rate_of("p0"), before);
    assert!(line.first().snapshot().link("p0").unwrap().follow.as_ref().unwrap().silent > 20);
    let off = Change::Link("p0".into(), LinkChange::Control(false));
    let bed = line.first();
    bed.pipeline.change(bed.now, &off).unwrap();
    assert_eq!(line.rate_of("p0"), 20_000_000);
    line.answers = true;
    line.carries(8, 1_000);
    assert_eq!(line.rate_of("p0"), 20_000_000);
}

/// What the AQM dropped of a flow is told of a link without admission, and of no other flow.
#[test]
fn explain_says_which_rule_dropped() {
    let mut line = inline("");
    line.carries(50, 2_000);
    let explain = |line: &mut Line, port: u16| {
        let flow = format!("10.0.1.2:{port} -> 10.0.0.2:{port}/udp");
        let bed = line.first();
        bed.pipeline.explain(bed.now, None, &flow.parse().unwrap())
    };
    let told = explain(&mut line, 5_000).unwrap();
    assert!(told.contains("link p0: ") && told.contains("of it wait"), "{told}");
    assert!(told.contains("of the latest 512 dropped or marked here"), "{told}");
    assert!(told.contains("standing_queue") || told.contains("longest_flow"), "{told}");
    let nothing = explain(&mut line, 5_001).unwrap();
    assert!(!nothing.contains("of the latest"), "{nothing}");
}
