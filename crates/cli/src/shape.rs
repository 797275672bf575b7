//! `evenkeel shape`: fair queues before and behind a slow line, in one command.

use evenkeel_config::RouterConfig;
use evenkeel_config::tables::short_queues;
use evenkeel_core::BitRate;
use evenkeel_core::link::{FramingConfig, LinkConfig, Overhead};
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::settings::quantity::rate_text;
use evenkeel_router::Disciplines;

use crate::args::ShapeArgs;
use crate::failure::{Failure, Outcome};
use crate::out::print;
use crate::run::{Start, start};

/// How many times one direction's rate may be the other's: an acknowledgement of 80 bytes on the
/// wire for two packets of 1538 is a fortieth; receivers on lines like these send fewer.
const MOST_ASYMMETRIC: u64 = 1_000;

pub(crate) fn shape(args: &ShapeArgs, disciplines: Disciplines) -> Outcome {
    let (less, more) = (args.up.min(args.down), args.up.max(args.down));
    if more.0 / less.0 > MOST_ASYMMETRIC {
        let (up, down) = (rate_text(args.up), rate_text(args.down));
        let text = format!(
            "{}: --up {up} and --down {down} are more than {MOST_ASYMMETRIC} times apart: \
             acknowledgements of the faster direction do not fit into the slower one; give the \
             line's rates, less a few percent",
            args.interfaces.join(", ")
        );
        return Err(Failure::new(2, text));
    }
    let text = router_toml(args);
    if args.print {
        return print(&text);
    }
    let config = RouterConfig::parse(&text, "evenkeel shape")?;
    let confirm = args.confirm;
    let args = &args.start;
    start(Start { config: &config, file: None, args, confirm, takes_over: false, disciplines })
}

/// The configuration that the command stands for.
fn router_toml(args: &ShapeArgs) -> String {
    let ShapeArgs { interfaces, overhead, inside, .. } = args;
    let flag = if *inside { " --inside" } else { "" };
    let several =
        if args.workers > 1 { format!(" --workers {}", args.workers) } else { String::new() };
    let mut text = format!(
        "# evenkeel shape {}{flag} --down {} --up {}{}{}{several}\n\n\
         # The kernel routes, filters and translates as before; only the queues are ours.\n",
        interfaces.join(" "),
        rate_text(args.down),
        rate_text(args.up),
        overhead_argument(overhead),
        follow_argument(args),
    );
    if args.workers > 1 {
        text += &format!("[router]\nworkers = {}\n\n", args.workers);
    }
    for interface in interfaces {
        let name = quoted(interface);
        text += &format!("[[port]]\nname = {name}\ninterface = {name}\nattach = \"inline\"\n\n");
    }
    // Hosts send up the line, and it brings down what they receive.
    let (sent, received) = (short_queues(Fair::SourceFlow), short_queues(Fair::DestinationFlow));
    let (leaves, arrives) = match inside {
        false => ((args.up, sent), (args.down, received)),
        true => ((args.down, received), (args.up, sent)),
    };
    let link = |suffix: &str, (rate, discipline): (BitRate, &str)| {
        let mut names = interfaces.iter().map(|interface| quoted(&format!("{interface}{suffix}")));
        let port = names.next().unwrap_or_default();
        let others: Vec<_> = names.collect();
        let also = match others.is_empty() {
            true => String::new(),
            false => format!("also = [{}]\n", others.join(", ")),
        };
        let (control, overhead) = (follow_toml(args, rate), overhead_toml(overhead));
        let rate = rate_text(rate);
        format!(
            "[[link]]\nport = {port}\n{also}rate = \"{rate}\"\n{overhead}\
             discipline = {discipline}\n{control}"
        )
    };
    text += "# What leaves: hosts share it, and flows each host's part; every flow waits in a \
             queue of its own\n# that an AQM keeps short.\n";
    text += &link("", leaves);
    text += "\n# What arrives.\n";
    text + &link("-ingress", arrives)
}

/// The key `control` of a link whose line carries so much at most; nothing of a steady one.
fn follow_toml(args: &ShapeArgs, most: BitRate) -> String {
    let Some(least) = args.follow else { return String::new() };
    let least = least.unwrap_or(BitRate(most.0 / 10).max(LinkConfig::MIN_RATE)).min(most);
    let [min, max] = [least, most].map(rate_text);
    format!("control = {{ kind = \"latency\", min = \"{min}\", max = \"{max}\" }}\n")
}

/// As it was written.
fn follow_argument(args: &ShapeArgs) -> String {
    match args.follow {
        None => String::new(),
        Some(None) => " --follow".to_owned(),
        Some(Some(least)) => format!(" --follow={}", rate_text(least)),
    }
}

/// Keys of a link, a line each; nothing of Ethernet's.
pub(crate) fn overhead_toml(framing: &FramingConfig) -> String {
    match framing.overhead {
        Overhead::Ethernet => String::new(),
        Overhead::Bytes => format!(
            "overhead = \"bytes\"\noverhead_bytes = \"{}B\"\noverhead_least = \"{}B\"\n",
            framing.overhead_bytes.0, framing.overhead_least.0
        ),
        line => format!("overhead = \"{}\"\n", line.name()),
    }
}

/// As it was written.
fn overhead_argument(framing: &FramingConfig) -> String {
    match framing.overhead {
        Overhead::Ethernet => String::new(),
        Overhead::Bytes => format!(" --overhead {}", framing.overhead_bytes.0),
        line => format!(" --overhead {}", line.name()),
    }
}

pub(crate) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;
    use evenkeel_config::{LinkConfig, LinkControl};
    use evenkeel_core::schedule::DisciplineConfig;

    fn parsed(arguments: &str) -> Result<ShapeArgs, String> {
        let all = ["evenkeel", "shape"].into_iter().chain(arguments.split(' '));
        match Args::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Shape(args) => Ok(args),
            _ => unreachable!("shape was asked for"),
        }
    }

    fn config(arguments: &str) -> Result<RouterConfig, String> {
        let text = router_toml(&parsed(arguments)?);
        RouterConfig::parse(&text, "evenkeel shape").map_err(|errors| errors.to_string())
    }

    #[test]
    fn the_line_stands_for_two_paced_links_with_fair_queues() {
        let config = config("eth0 --down 95Mbit/s --up 800kbit/s").unwrap();
        let names: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth0-ingress"]);
        assert_eq!(config.ports[1].interface, "eku-eth0");
        let rates: Vec<_> = config.links.iter().map(|link| link.core.rate).collect();
        assert_eq!(rates, [Some(BitRate(800_000)), Some(BitRate::from_mbps(95))]);
        let by_host = |link: &LinkConfig| match &link.discipline {
            DisciplineConfig::Pdrr(pdrr) => Some(pdrr.fair),
            _ => None,
        };
        let fair: Vec<_> = config.links.iter().map(by_host).collect();
        assert_eq!(fair, [Some(Fair::SourceFlow), Some(Fair::DestinationFlow)]);
        // As a file has it that names no discipline.
        let text = router_toml(&parsed("eth0 --down 95Mbit/s --up 800kbit/s").unwrap());
        let named = |line: &&str| !line.starts_with("discipline");
        let bare: Vec<_> = text.lines().filter(named).collect();
        assert_eq!(RouterConfig::parse(&bare.join("\n"), "bare").unwrap(), config);
        assert_eq!((config.peer_of(0), config.peer_of(1)), (Some(1), Some(0)));
    }

    #[test]
    fn rates_follow_the_line_down_to_a_tenth_or_to_what_is_said() {
        let line = "eth0 --down 50Mbit/s --up 8Mbit/s";
        for (said, wanted) in [
            ("--follow", [(800_000, 8_000_000), (5_000_000, 50_000_000)]),
            ("--follow=2Mbit/s", [(2_000_000, 8_000_000), (2_000_000, 50_000_000)]),
            ("--follow=9Mbit/s", [(8_000_000, 8_000_000), (9_000_000, 50_000_000)]),
        ] {
            let config = config(&format!("{line} {said}")).unwrap();
            let bounds = config.links.iter().map(|link| {
                let law = link.control.as_ref().and_then(LinkControl::latency).unwrap().law;
                (law.min.0, law.max.0)
            });
            assert_eq!(bounds.collect::<Vec<_>>(), wanted, "{said}");
        }
        assert!(config(line).unwrap().links.iter().all(|link| link.control.is_none()));
        assert!(config(&format!("{line} --follow=fast")).unwrap_err().contains("--follow"));
    }

    #[test]
    fn several_interfaces_share_one_line_and_hosts_may_be_behind_them() {
        let config = config("lan guest --inside --down 95Mbit/s --up 19Mbit/s").unwrap();
        let names: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["lan", "lan-ingress", "guest", "guest-ingress"]);
        assert_eq!([0, 1, 2, 3].map(|port| config.link_of(port)), [0, 1, 0, 1]);
        let of = |port: usize| {
            let link = &config.links[port];
            let DisciplineConfig::Pdrr(pdrr) = &link.discipline else { panic!("{link:?}") };
            (link.core.rate.unwrap(), pdrr.fair)
        };
        // The line's download leaves by the interfaces.
        assert_eq!(of(0), (BitRate::from_mbps(95), Fair::DestinationFlow));
        assert_eq!(of(1), (BitRate::from_mbps(19), Fair::SourceFlow));
        let error = parsed("--down 1Mbit/s --up 1Mbit/s").unwrap_err();
        assert!(error.contains("INTERFACE"), "{error}");
        let twice = self::config("lan lan --down 1Mbit/s --up 1Mbit/s").unwrap_err();
        assert!(twice.contains("there twice"), "{twice}");
    }

    #[test]
    fn what_the_line_adds_is_a_word_or_bytes_for_both_directions() {
        // A packet of 200 bytes on the line.
        for (said, wanted) in
            [("docsis", 218), ("pppoe-ptm", 234), ("adsl-pppoe", 265), ("44", 244)]
        {
            let config = config(&format!("eth0 --down 20Mbit/s --up 1Mbit/s --overhead {said}"));
            let links = config.unwrap().links;
            let lengths: Vec<_> =
                links.iter().map(|link| link.core.framing.framing().of(200).0).collect();
            assert_eq!(lengths, [wanted, wanted], "{said}");
        }
        for wrong in ["0", "257", "cable", "bytes", "-1"] {
            let error = config(&format!("eth0 --down 20Mbit/s --up 1Mbit/s --overhead={wrong}"));
            let error = error.unwrap_err();
            assert!(error.contains("--overhead") && error.contains("256"), "{wrong}: {error}");
        }
    }

    #[test]
    fn directions_that_are_worlds_apart_are_refused() {
        let said = |line: &str| {
            let args = parsed(line).unwrap();
            shape(&args, Disciplines::default()).err().map(|failure| (failure.code, failure.text))
        };
        let (code, text) = said("eth0 --down 1Gbit/s --up 100kbit/s --print").unwrap();
        assert_eq!(code, 2);
        assert!(text.contains("eth0") && text.contains("100kbit/s"), "{text}");
        assert!(said("eth0 --down 1Gbit/s --up 1Mbit/s --print").is_none());
    }

    #[test]
    fn rates_and_interfaces_that_cannot_be_are_refused() {
        for (arguments, what) in [
            ("eth0 --down 0kbit/s --up 1Mbit/s", "out of range"),
            ("eth0 --down 95 --up 1Mbit/s", "--down"),
            ("a-name-of-sixteen --down 1Mbit/s --up 1Mbit/s", "interface"),
            ("eth0 --up 1Mbit/s", "--down"),
        ] {
            let error = config(arguments).unwrap_err();
            assert!(error.contains(what), "{arguments}: {error}");
        }
    }
}
