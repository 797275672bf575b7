//! The keys of `router.toml`: name, type, range, default, meaning. Everything else follows from
//! these tables.

use evenkeel_core::link::LinkConfig as Link;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::schedule::{DisciplineConfig, LinuxConfig};

use crate::attach::Attach;
use crate::cluster::{BalancerSection, ClusterSection};
use crate::control::LinkControl;
use crate::membership::MembershipSection;
use crate::model::{ClassConfig, PortConfig, RouterSection};
use crate::service::ServiceConfig;
use crate::subscribers::TreeSection;
use evenkeel_core::admit::{AdmissionConfig, FlowsConfig};
use evenkeel_core::drop::FairDropConfig;
use evenkeel_core::settings::Settings;
use evenkeel_core::settings::schema::{Key, Kind, Section};

/// Most characters of a name.
pub const NAME_LENGTH: usize = evenkeel_core::settings::Name::LENGTH;
/// Most ports of a router. Each takes memory for its rings and its link, which a start counts.
pub const MAX_PORTS: usize = 1024;

/// A name of up to [`NAME_LENGTH`] characters.
pub const NAME: Kind = Kind::Name(NAME_LENGTH);
/// A rate that a wire or shaper can have.
pub const RATE: Kind = Kind::Rate { min: Link::MIN_RATE, max: Link::MAX_RATE };

/// What a file holds.
pub static FILE: Section = Section {
    heading: "router.toml",
    doc: "One `[[port]]` is enough: it forwards first in, first out, as fast as the port takes \
          frames. \
          Addresses and routes are the kernel's (`ip address`, `ip route`, a routing daemon).",
    own: &[
        ROUTER,
        Key::required(
            "port",
            Kind::Tables { section: PortConfig::SECTION, min: 1, max: MAX_PORTS },
            "The network interfaces to forward between.",
        ),
        SERVICES,
        FLOWS,
        CLASSES,
        LINKS,
        TREES,
        FAIRDROP,
        Key::optional(
            "cluster",
            Kind::Table(ClusterSection::SECTION),
            "none",
            "This router is a forwarder of a cluster.",
        ),
        Key::optional(
            "balancer",
            Kind::Table(BalancerSection::SECTION),
            "none",
            "This router is a balancer.",
        ),
        Key::optional(
            "membership",
            Kind::Table(MembershipSection::SECTION),
            "this file alone",
            "Members and weights come from etcd.",
        ),
    ],
    parts: &[],
};

/// What a router's configuration holds where its ports come from elsewhere (the wires of a
/// scenario).
pub static WITHOUT_PORTS: Section = Section {
    heading: "[router.config]",
    doc: "As in `router.toml`, but without `[[port]]`.",
    own: &[ROUTER, SERVICES, FLOWS, CLASSES, LINKS, TREES, FAIRDROP],
    parts: &[],
};

const ROUTER: Key = Key::defaulted(
    "router",
    Kind::Table(RouterSection::SECTION),
    "{}",
    "What concerns the router as a whole.",
);

const FLOWS: Key = Key::defaulted(
    "flows",
    Kind::Table(FlowsConfig::SECTION),
    "{}",
    "What the admissions of all links share.",
);

const SERVICES: Key = Key::optional(
    "service",
    Kind::Tables { section: ServiceConfig::SECTION, min: 0, max: ServiceConfig::MAX },
    "none",
    "Costly work that classes can be sent through.",
);

const FAIRDROP: Key = Key::optional(
    "fairdrop",
    Kind::Table(FairDropConfig::SECTION),
    "none",
    "Fair shares of cycles and bits by early dropping.",
);

const CLASSES: Key = Key::optional(
    "class",
    Kind::Tables { section: ClassConfig::SECTION, min: 0, max: Link::MAX_CLASSES as usize },
    "one class `default`",
    "The classes of traffic. The first is the default class: it gets what no rule takes.",
);

const LINKS: Key = Key::optional(
    "link",
    Kind::Tables { section: &LINK, min: 0, max: MAX_PORTS },
    "each port has a FIFO without a rate",
    "The outgoing sides of ports: rate, ring, discipline.",
);

const TREES: Key = Key::optional(
    "tree",
    Kind::Tables { section: TreeSection::SECTION, min: 0, max: MAX_PORTS },
    "links are shared by flows or classes",
    "Links that are shared by subscribers, each with a plan, behind sites with caps of their own.",
);

/// What short queues need: every flow its own, at most 50 ms of them, an AQM.
macro_rules! short_queues {
    ($and:literal) => {
        concat!(
            "{ kind = \"pdrr\", buffer = 16384, max_delay = \"50ms\", aqm = \"cobalt\"",
            $and,
            " }"
        )
    };
}

/// The discipline of a link that has a rate or a shaper, and names none, where these share it.
#[must_use]
pub const fn short_queues(fair: Fair) -> &'static str {
    match fair {
        Fair::SourceFlow => short_queues!(", fair = \"source-flow\""),
        Fair::DestinationFlow => short_queues!(", fair = \"destination-flow\""),
        Fair::HostFlow => short_queues!(", fair = \"host-flow\""),
        Fair::Flow | Fair::Source | Fair::Destination => short_queues!(""),
    }
}

/// Who shares a link that does not say: hosts, and within each its flows. Where the link knows on
/// which side its hosts are, those. Where several workers share it, or flows are admitted, it is
/// flows: a flow has one worker, and admission asks what a flow gets.
#[must_use]
pub const fn who_shares(attach: Option<Attach>, by_flow: bool) -> Fair {
    match attach {
        Some(Attach::InlineWire) => Fair::SourceFlow,
        Some(Attach::InlineKernel) => Fair::DestinationFlow,
        Some(Attach::Route | Attach::RouteKernel | Attach::Bridge) | None if by_flow => Fair::Flow,
        Some(Attach::Route | Attach::RouteKernel | Attach::Bridge) | None => Fair::HostFlow,
    }
}

/// `[[link]]`.
pub static LINK: Section = Section {
    heading: "[[link]]",
    doc: "The outgoing side of a port: scheduler, shaper, transmit ring, paced wire.",
    own: &[
        Key::required("port", NAME, "The port's name."),
        Key::optional(
            "also",
            Kind::List(&NAME),
            "none: the link is the port's alone",
            "Other ports whose packets go through this link, too: they wait in its queues, share \
             its rate, and leave by their own port. So two networks behind a gateway share one \
             download. It needs a `rate`, and those ports have no `[[link]]` of their own.",
        ),
        Key::optional(
            "discipline",
            Kind::Variants(DISCIPLINES),
            concat!(
                "`",
                short_queues!(", fair = \"host-flow\""),
                "` with a rate or a shaper: where the port is inline, `fair` by the hosts behind \
                 it and their flows; with several workers, or `admission`, by flow; without either \
                 `{ kind = \"fifo\" }`"
            ),
            "Which packet goes next, and which is dropped.",
        ),
        Key::optional(
            "control",
            Kind::Variants(CONTROLS),
            "none: knobs stay as they are set",
            "What turns the knobs of the discipline, or the rate, from what is measured.",
        ),
        Key::optional(
            "admission",
            Kind::Table(AdmissionConfig::SECTION),
            "none: all packets go to the discipline",
            "Which flows may enter. Needs a discipline that measures a fair rate: `pfq`, `pdrr` or \
             `afan`.",
        ),
    ],
    parts: &[Link::SECTION],
};

/// The disciplines by their `kind`: those of the core, the user's own, and those of the kernel.
pub static DISCIPLINES: &[(&str, &Section)] = &{
    const BUILT_IN: usize = DisciplineConfig::BUILT_IN.len();
    let mut all = [(LinuxConfig::NAME, &LINUX); BUILT_IN + 2];
    all[BUILT_IN] = ("own", &OWN);
    let mut at = 0;
    while at < BUILT_IN {
        all[at] = DisciplineConfig::BUILT_IN[at];
        at += 1;
    }
    all
};

/// The controls by their `kind`.
pub static CONTROLS: &[(&str, &Section)] = LinkControl::KINDS;

/// `kind = "own"`.
pub static OWN: Section = Section {
    heading: "discipline = { kind = \"own\", … }",
    doc: "A discipline that is not among those built in: see `docs/write-a-discipline.md`.",
    own: &[
        Key::required("name", NAME, "The name under which the program that runs it knows it."),
        Key::defaulted("settings", Kind::Foreign("table"), "{}", "Whatever the discipline reads."),
    ],
    parts: &[],
};

/// `kind = "linux"`.
pub static LINUX: Section = Section {
    heading: "discipline = { kind = \"linux\", … }",
    doc: "A queueing discipline of the kernel, to compare with: in scenarios, and there in the lab \
          only. The kernel of the router forwards then, and the lab measures at its interfaces.",
    own: &[Key::required(
        "command",
        Kind::Text,
        "What `tc` is told, without `dev`: `tbf rate 10mbit burst 3000 limit 150000` is the root \
         discipline, with `handle 1:`. Further lines begin with `class`, `qdisc` or `filter`: \
         `class parent 1: classid 1:10 htb rate 2mbit ceil 10mbit`.",
    )],
    parts: &[],
};

/// Every table of `router.toml`, in the order of the reference: each before those that stand in it.
#[must_use]
pub fn all() -> Vec<&'static Section> {
    let mut found = Vec::new();
    visit(&FILE, &mut found);
    found
}

fn visit(section: &'static Section, found: &mut Vec<&'static Section>) {
    if found.iter().any(|known| std::ptr::eq(*known, section)) {
        return;
    }
    found.push(section);
    for key in section.keys() {
        visit_kind(&key.kind, found);
    }
}

fn visit_kind(kind: &Kind, found: &mut Vec<&'static Section>) {
    match kind {
        Kind::Table(section) | Kind::Tables { section, .. } => visit(section, found),
        Kind::Variants(variants) => variants.iter().for_each(|(_, section)| visit(section, found)),
        Kind::List(of) | Kind::ByClass(of, _) => visit_kind(of, found),
        _single => {}
    }
}
