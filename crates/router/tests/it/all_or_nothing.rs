//! What is refused has changed nothing. Of two routers that are alike, one is asked for what it
//! refuses, one kind of change after the other; then both get the same packets and the same change
//! that is allowed, and count and send the same.

use evenkeel_config::{Change, ForwarderState, LinkChange, RouterConfig, parse_change};
use evenkeel_core::schedule::{DisciplineConfig, OwnConfig};
use evenkeel_core::settings;
use evenkeel_core::settings::Held;
use evenkeel_core::{BitRate, Class, Nanos, Ppm};

use crate::common::{Bed, Udp};

const CLASSES: &str = "[[class]]\nname = \"rest\"\n[[class]]\nname = \"voice\"\n\
                       match = [{ dscp = [46] }]\n";

/// What is asked for.
enum Asked {
    Change(Change),
    /// The file, changed.
    Reload(fn(&mut RouterConfig)),
}

/// A change in the words of `ctl set`, of the link of `p1`.
fn set(name: &str, value: &str) -> Asked {
    let class = name.split_once(' ').map(|(_, class)| class);
    let name = name.split(' ').next().unwrap();
    Asked::Change(parse_change(name, class, value, &["rest", "voice"]).unwrap().on("p1"))
}

/// A setting that no text can say, as a program may.
fn setting<T: Held>(key: &'static str, value: T) -> Asked {
    Asked::Change(LinkChange::Setting(settings::Change::new(key, value)).on("p1"))
}

fn admission<T: Held>(key: &'static str, value: T) -> Asked {
    Asked::Change(LinkChange::Admission(settings::Change::new(key, value)).on("p1"))
}

fn fairdrop<T: Held>(key: &'static str, value: T) -> Asked {
    Asked::Change(Change::FairDrop(settings::Change::new(key, value)))
}

fn ask(bed: &mut Bed, rest: &str, asked: &Asked) -> Result<(), String> {
    let done = match asked {
        Asked::Change(change) => bed.pipeline.change(bed.now, change),
        Asked::Reload(edit) => {
            let mut config = Bed::config(3, rest);
            edit(&mut config);
            bed.pipeline.reload(bed.now, &config)
        }
    };
    done.map_err(|error| error.to_string())
}

/// 30 ms of packets of both classes and several flows, more than the links carry. What the hosts
/// received, and all counters.
fn behaviour(bed: &mut Bed) -> String {
    let mut received = Vec::new();
    for n in 0..600_u16 {
        let dscp = if n % 3 == 0 { 46 } else { 0 };
        let udp = Udp { payload: 400, dscp, port: 5_000 + n % 7, ..Udp::default() };
        bed.send(0, 1 + usize::from(n % 2), udp);
        bed.pass(Nanos::from_micros(50));
        received.extend((0..3).flat_map(|host| bed.received(host)));
    }
    format!("{received:02x?}\n{:#?}", bed.snapshot())
}

/// `refused` are refused with these words, and `allowed` still does what it does.
fn nothing_changes(rest: &str, refused: &[(Asked, &str)], allowed: &Asked) {
    let [mut asked, mut other] = [Bed::new(3, rest), Bed::new(3, rest)];
    let before = behaviour(&mut other);
    assert_eq!(behaviour(&mut asked), before);
    for (wanted, words) in refused {
        let error = ask(&mut asked, rest, wanted).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
        let same = behaviour(&mut asked) == behaviour(&mut other);
        assert!(same, "{words}: it goes on as if nothing had been asked");
    }
    ask(&mut asked, rest, allowed).unwrap();
    ask(&mut other, rest, allowed).unwrap();
    assert!(behaviour(&mut asked) == behaviour(&mut other), "as it would have changed");
}

fn link(rest: &str) -> String {
    format!("{CLASSES}[[link]]\nport = \"p1\"\nrate = \"10Mbit/s\"\n{rest}\n")
}

#[test]
fn a_setting() {
    let rest = link("discipline = { kind = \"wfq-altq\" }");
    let of_class = settings::Change::of("limit", Class(2), 10_u32);
    let other_link = LinkChange::Setting(settings::Change::new("limit", 10_u32)).on("p9");
    let refused = [
        (setting("limit", 0_u32), "out of range"),
        (Asked::Change(LinkChange::Setting(of_class).on("p1")), "no class 2"),
        (set("x_delay rest", "1ms"), "x_delay"),
        (Asked::Change(other_link), "no link \"p9\""),
    ];
    nothing_changes(&rest, &refused, &set("limit voice", "10"));
}

#[test]
fn a_rate_or_a_ring() {
    let second = "[link.admission]\nsecond_link = \"p2\"\n[[link]]\nport = \"p2\"\n\
                  rate = \"1Mbit/s\"";
    let rest = link(&format!("discipline = {{ kind = \"pfq\" }}\n{second}"));
    let wire = |link: &str, rate| LinkChange::Wire(settings::Change::new("rate", rate)).on(link);
    let refused = [
        (Asked::Change(wire("p1", Some(BitRate(1)))), "out of range"),
        // The admission of `p1` needs a rate, of its own and of its second link.
        (Asked::Change(wire("p1", None)), "rate"),
        (Asked::Change(wire("p2", None)), "second link has no rate"),
    ];
    nothing_changes(&rest, &refused, &set("rate", "5Mbit/s"));
}

#[test]
fn a_discipline() {
    let rest = link("discipline = { kind = \"pdrr\" }\n[link.admission]");
    let unknown = OwnConfig { name: "mine".into(), settings: "{}".into(), place: String::new() };
    let mut beyond = evenkeel_core::schedule::pfq::PfqConfig::default();
    beyond.flows.flows = 0;
    let swap = |discipline| Asked::Change(LinkChange::Discipline(discipline).on("p1"));
    let refused = [
        (set("discipline", "{ kind = \"fifo\" }"), "measures no fair rate"),
        (swap(DisciplineConfig::Own(unknown)), "this program brings none of that name"),
        (swap(DisciplineConfig::Pfq(beyond)), "out of range"),
    ];
    nothing_changes(&rest, &refused, &set("discipline", "{ kind = \"pfq\" }"));
}

#[test]
fn a_control() {
    let refused = [(set("control", "on"), "no control"), (set("control", "off"), "no control")];
    let rest = link("discipline = { kind = \"lct\" }");
    nothing_changes(&rest, &refused, &set("limit", "20"));

    let rest = link("discipline = { kind = \"lct\" }\n[link.control]\nkind = \"lct\"");
    let refused = [
        (set("x_delay voice", "1ms"), "turned by its control"),
        (setting("limit", 0_u32), "out of range"),
    ];
    nothing_changes(&rest, &refused, &set("control", "off"));
}

#[test]
fn an_admission() {
    let rest = link(
        "discipline = { kind = \"pfq\" }\n[link.admission]\nper_user = true\n\
                     eccm = true\nflushing = \"rbaef\"",
    );
    let refused = [
        (admission("flow_timeout", Nanos(0)), "admission.flow_timeout"),
        (admission("max_priority_load", Ppm(2_000_000)), "admission.max_priority_load"),
        (admission("users", 0_u32), "admission.users"),
        (admission("flush_table", 0_u32), "admission.flush_table"),
        (admission("flows", 50_000_u32), "flows"),
        (admission("probation", Nanos::from_secs(3_000)), "probation"),
        (set("admission", "{ second_link = \"p2\" }"), "second link has no rate"),
        (set("admission", "{ flows = 50000 }"), "flows"),
    ];
    nothing_changes(&rest, &refused, &set("admission.users", "100"));
    let rest = link("discipline = { kind = \"pfq\" }");
    let refused = [(admission("user_flows", 3_u32), "has no admission")];
    nothing_changes(&rest, &refused, &set("admission", "on"));
    let rest = link("discipline = { kind = \"fifo\" }");
    let refused = [(set("admission", "on"), "measures no fair rate")];
    nothing_changes(&rest, &refused, &set("admission", "off"));
}

#[test]
fn fairdrop_of_the_router() {
    let refused = [
        (fairdrop("theta", Ppm(0)), "fairdrop: theta"),
        (fairdrop("threshold", 0_u64), "fairdrop: threshold"),
        (fairdrop("flows", 1_u32), "fairdrop: flows"),
        (fairdrop("bits", true), "fairdrop: "),
    ];
    let on = fairdrop("on", true);
    nothing_changes(&link(""), &refused, &on);
    nothing_changes(&format!("{}[fairdrop]\n", link("")), &refused, &fairdrop("cpu", false));
}

#[test]
fn a_forwarder() {
    let forwarder = |id, state| Asked::Change(Change::Forwarder { id, state });
    let refused = [(forwarder(1, ForwarderState::Out), "no balancer")];
    nothing_changes(&link(""), &refused, &set("rate", "5Mbit/s"));
    let two = "[balancer]\nport = \"p0\"\n\
        [[balancer.forwarder]]\nid = 1\nmac = \"02:00:00:00:00:01\"\n\
        [[balancer.forwarder]]\nid = 2\nmac = \"02:00:00:00:00:02\"\nstate = \"out\"\n";
    let refused = [
        (forwarder(3, ForwarderState::Active), "no forwarder 3: there are 1, 2"),
        (forwarder(1, ForwarderState::Out), "balancer: "),
    ];
    nothing_changes(&format!("{two}{}", link("")), &refused, &forwarder(2, ForwarderState::Active));
}

/// A file of which one thing is refused: nothing of the rest is in force.
#[test]
fn a_whole_file() {
    let rest = link("discipline = { kind = \"pfq\" }\n[link.admission]");
    /// What of the file would be taken over.
    fn otherwise(config: &mut RouterConfig) {
        let link = config.link_mut("p1").unwrap();
        link.core.rate = Some(BitRate::from_mbps(3));
        link.admission.as_mut().unwrap().per_user.on = true;
        let limit = settings::Change::new("limit", 5_u32);
        config.link_mut("p2").unwrap().discipline.set_live(&limit, 2).unwrap();
    }
    let refused: [(Asked, &str); 5] = [
        (
            Asked::Reload(|config| {
                otherwise(config);
                config.link_mut("p2").unwrap().core.ring.slots = 0;
            }),
            "out of range",
        ),
        (
            Asked::Reload(|config| {
                otherwise(config);
                config.link_mut("p1").unwrap().admission.as_mut().unwrap().flows = 7;
            }),
            "flows",
        ),
        (
            Asked::Reload(|config| {
                otherwise(config);
                config.link_mut("p2").unwrap().admission = Some(Default::default());
            }),
            "measures no fair rate",
        ),
        (
            Asked::Reload(|config| {
                otherwise(config);
                let mut fairdrop = evenkeel_core::drop::FairDropConfig::off();
                (fairdrop.on, fairdrop.threshold) = (true, evenkeel_core::Bytes(0));
                config.fairdrop = Some(fairdrop);
            }),
            "fairdrop: ",
        ),
        (
            Asked::Reload(|config| {
                otherwise(config);
                config.ports.swap(0, 1);
            }),
            "the ports",
        ),
    ];
    nothing_changes(&rest, &refused, &Asked::Reload(otherwise));
}
