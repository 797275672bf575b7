//! First scenarios and sweeps, as text with comments: topologies of any size to begin with.
//!
//! What is written is an ordinary file, meant to be changed. Each scenario holds its own claims in
//! the simulator near 10 Mbit/s and 10 ms, and has a `[[without]]` in which one of them fails. Far
//! from there TCP decides: claims of full links and equal shares may fail.

mod sweep;
mod text;

use evenkeel_core::settings::quantity::rate_text;
use evenkeel_core::{BitRate, Nanos, words};

pub use sweep::{SweepError, sweep};
use text::{Claim, FIFO, Flow, Text};

words! {
    /// How the nodes of a template are joined.
    pub enum Topology {
        /// Senders and receivers on either side of one slow link.
        #[default]
        Dumbbell = "dumbbell",
        /// A row of slow links: one connection crosses all of them, others one each.
        ParkingLot = "parking-lot",
        /// Hosts behind access routers behind one core: uploads by one and by many connections.
        Tree = "tree",
        /// Leaves joined by two spines: many hosts answer one at once (incast), beside a call.
        LeafSpine = "leaf-spine",
    }
}

/// What short queues do for others.
const CALLS: &str = "The call waits less than 10 ms in the router, 99 of 100 packets.";

/// A scenario to begin with.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its name in the file.
    pub name: String,
    /// How its nodes are joined.
    pub topology: Topology,
    /// How large: pairs of hosts of a dumbbell, links of a parking lot, access routers of a tree,
    /// leaves of a leaf-spine.
    pub size: u8,
    /// Rate of the slow links.
    pub rate: BitRate,
    /// Delay of the long wires, one way.
    pub delay: Nanos,
}

impl Topology {
    /// The sizes that it can have: what is more has not enough wires or names.
    #[must_use]
    pub const fn sizes(self) -> (u8, u8) {
        match self {
            Self::Dumbbell => (1, 40),
            Self::ParkingLot | Self::Tree => (2, 16),
            Self::LeafSpine => (3, 16),
        }
    }

    /// What a size counts.
    #[must_use]
    pub const fn counts(self) -> &'static str {
        match self {
            Self::Dumbbell => "pairs of hosts",
            Self::ParkingLot => "links in a row",
            Self::Tree => "access routers",
            Self::LeafSpine => "leaves",
        }
    }
}

impl Template {
    /// The file. A size out of range is taken to the nearest that is in it.
    #[must_use]
    pub fn text(&self) -> String {
        let (least, most) = self.topology.sizes();
        let size = self.size.clamp(least, most);
        match self.topology {
            Topology::Dumbbell => self.dumbbell(size),
            Topology::ParkingLot => self.parking_lot(size),
            Topology::Tree => self.tree(size),
            Topology::LeafSpine => self.leaf_spine(size),
        }
    }

    /// Payload that a full link of this part of the rate carries: 1448 bytes of 1538 on the wire.
    fn payload(&self, part: f64) -> u64 {
        (self.rate.0 as f64 * part * 1_448.0 / 1_538.0) as u64
    }

    fn dumbbell(&self, size: u8) -> String {
        let mut text = Text::new(
            &self.name,
            &format!("A dumbbell: {size} downloads and a call share {}", rate_text(self.rate)),
            "Senders s1 to sN, receivers d1 to dN, one slow link from `left` to `right`.",
        );
        (1..=size).for_each(|n| text.host(&format!("s{n}")));
        (1..=size).for_each(|n| text.host(&format!("d{n}")));
        text.call_classes("left");
        text.link("right", self.rate, "");
        text.call_classes("right");
        text.wire("left", "right", Some(self.delay));
        (1..=size).for_each(|n| text.wire(&format!("s{n}"), "left", None));
        (1..=size).for_each(|n| text.wire("right", &format!("d{n}"), None));
        for n in 1..=size {
            text.tcp(&Flow::between(&format!("down{n}"), &format!("s{n}"), &format!("d{n}")));
        }
        text.call("s1", "d1");
        text.claim(&Claim {
            name: "calls",
            claim: CALLS,
            that: "delay_p99(left/right/call)@start < 10_000".to_owned(),
        });
        text.claim(&Claim {
            name: "fair",
            claim: "The downloads are equals (Jain's index: 1 if all get the same).",
            that: "jain(flow_goodput(down*)) > 0.95".to_owned(),
        });
        text.claim(&Claim {
            name: "full",
            claim: "The link is full: 90 % of the payload that it can carry.",
            that: format!("sum(flow_goodput(down*)) > {}", self.payload(0.9)),
        });
        text.without("queues of flows", "left", "right", FIFO, &["calls"]);
        text.done()
    }

    fn parking_lot(&self, size: u8) -> String {
        let last = size + 1;
        let mut text = Text::new(
            &self.name,
            &format!("A parking lot: {size} links of {} in a row", rate_text(self.rate)),
            "`long` crosses all links from r1 on, a connection `crossN` only the link from rN to \
             the next.",
        );
        text.host("a");
        text.host("z");
        (1..=size).for_each(|n| text.host(&format!("c{n}")));
        (1..=size).for_each(|n| text.host(&format!("e{n}")));
        for n in 1..=last {
            text.router(&format!("r{n}"));
            if n <= size {
                text.link(&format!("r{}", n + 1), self.rate, "");
            }
        }
        text.wire("a", "r1", None);
        for n in 1..=size {
            text.wire(&format!("r{n}"), &format!("r{}", n + 1), Some(self.delay));
            text.wire(&format!("c{n}"), &format!("r{n}"), None);
            text.wire(&format!("r{}", n + 1), &format!("e{n}"), None);
        }
        text.wire(&format!("r{last}"), "z", None);
        text.tcp(&Flow::between("long", "a", "z"));
        for n in 1..=size {
            text.tcp(&Flow::between(&format!("cross{n}"), &format!("c{n}"), &format!("e{n}")));
        }
        // Of the half that max-min gives it.
        text.claim(&Claim {
            name: "long",
            claim: "The long way gets as much as the short ones, to within a third: max-min fair.",
            that: format!("mean(flow_goodput(long)) > {}", self.payload(0.35)),
        });
        text.claim(&Claim {
            name: "full",
            claim: "No link is left idle by its own connection.",
            that: format!("worst(flow_goodput(cross*)) > {}", self.payload(0.4)),
        });
        let links: Vec<_> = (1..=size).map(|n| (format!("r{n}"), format!("r{}", n + 1))).collect();
        text.without_all("queues of flows", &links, FIFO, &["long"]);
        text.done()
    }

    fn tree(&self, size: u8) -> String {
        let mut text = Text::new(
            &self.name,
            &format!("A tree: {size} access routers upload by {} each", rate_text(self.rate)),
            "Behind access router aN are `manyN`, which uploads by eight connections, and `oneN`, \
             which has one. Hosts take turns on the way up (`fair = \"source-flow\"`).",
        );
        text.host("server");
        for n in 1..=size {
            text.host(&format!("many{n}"));
            text.host(&format!("one{n}"));
        }
        text.router("core");
        for n in 1..=size {
            text.router(&format!("a{n}"));
            text.link("core", self.rate, "fair = \"source-flow\"");
        }
        text.wire("core", "server", Some(self.delay));
        for n in 1..=size {
            text.wire(&format!("a{n}"), "core", None);
            text.wire(&format!("many{n}"), &format!("a{n}"), None);
            text.wire(&format!("one{n}"), &format!("a{n}"), None);
        }
        for n in 1..=size {
            let many = format!("many{n}");
            text.tcp(&Flow { flows: 8, ..Flow::between(&many, &many, "server") });
            text.tcp(&Flow::between(&format!("one{n}"), &format!("one{n}"), "server"));
        }
        text.claim(&Claim {
            name: "hosts",
            claim: "A host with one connection has 40 % of its access link beside one with eight.",
            that: format!("worst(flow_goodput(one*)) > {}", self.payload(0.4)),
        });
        text.claim(&Claim {
            name: "full",
            claim: "The access links are full.",
            that: format!(
                "sum(flow_goodput(*)) > {}",
                self.payload(0.9).saturating_mul(u64::from(size))
            ),
        });
        let links: Vec<_> = (1..=size).map(|n| (format!("a{n}"), "core".to_owned())).collect();
        text.without_all("turns of hosts", &links, "{ kind = \"pdrr\" }", &["hosts"]);
        text.done()
    }

    fn leaf_spine(&self, size: u8) -> String {
        let mut text = Text::new(
            &self.name,
            &format!("Leaf and spine: {} hosts answer one at once, beside a call", size - 1),
            "A route is the shortest path, by the first wire of the file among equals: odd leaves \
             go by spine1 and even ones by spine2. The slow link is the last one, to `asks`.",
        );
        text.host("asks");
        (2..=size).for_each(|n| text.host(&format!("h{n}")));
        text.call_classes("leaf1");
        text.link("asks", self.rate, "");
        (2..=size).for_each(|n| text.call_classes(&format!("leaf{n}")));
        (1..=2).for_each(|n| text.call_classes(&format!("spine{n}")));
        text.wire("leaf1", "asks", None);
        (2..=size).for_each(|n| text.wire(&format!("h{n}"), &format!("leaf{n}"), None));
        for n in 1..=size {
            let (first, second) = if n % 2 == 1 { (1, 2) } else { (2, 1) };
            text.wire(&format!("leaf{n}"), &format!("spine{first}"), Some(self.delay));
            text.wire(&format!("leaf{n}"), &format!("spine{second}"), Some(self.delay));
        }
        // What all of them send takes the slow link three seconds.
        let each = self.payload(3.0 / 8.0) / u64::from(size - 1);
        for n in 2..=size {
            let (name, host) = (format!("answer{n}"), format!("h{n}"));
            text.tcp(&Flow { bytes: Some(each), ..Flow::between(&name, &host, "asks") });
        }
        text.call("h2", "asks");
        text.claim(&Claim {
            name: "calls",
            claim: CALLS,
            that: "delay_p99(leaf1/asks/call)@start < 10_000".to_owned(),
        });
        text.claim(&Claim {
            name: "done",
            claim: "All answers are there within 4 s, where the link needs 3 s for them.",
            that: "max(fct(answer*)) < 4_000_000".to_owned(),
        });
        text.claim(&Claim {
            name: "together",
            claim: "Nobody waits for a straggler: the first answer takes 60 % of the last one's \
                    time.",
            that: "min(fct(answer*)) > 0.6 * max(fct(answer*))".to_owned(),
        });
        text.without("queues of flows", "leaf1", "asks", FIFO, &["calls"]);
        text.done()
    }
}
