//! What a router.toml means, in words: a few lines for each of few links, a row for each of many.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_config::subscribers::Shares;
use evenkeel_config::{Attach, ClassConfig, Io, LinkConfig, PortConfig, RouterConfig, unusual};
use evenkeel_core::link::Refill;
use evenkeel_core::settings::Held as _;
use evenkeel_core::settings::quantity::{rate_text, size_text};
use evenkeel_report::table::Table;
use evenkeel_router::memory::{Footprint, mebibytes};

/// So many ports or classes are described one by one; more are rows.
const FEW: usize = 8;
/// So many rules of a class are said in the short text.
const FEW_RULES: usize = 3;

/// Ports with their links, classes and what all share: what is not said is as the reference has it
/// by default.
pub(crate) fn meaning(config: &RouterConfig) -> String {
    let mut text = router_line(config) + "\n";
    if config.ports.len() <= FEW {
        config.ports.iter().for_each(|port| text += &port_in_words(config, port));
    } else {
        text += &port_table(config);
    }
    text.push('\n');
    if config.classes.len() <= FEW {
        let width = config.classes.iter().map(|class| class.name.len()).max().unwrap_or(0);
        for (index, class) in config.classes.iter().enumerate() {
            let _ = writeln!(text, "class {:width$}  {}", class.name, takes(index, class));
        }
    } else {
        let mut classes = Table::new(["class", "takes"]);
        for (index, class) in config.classes.iter().enumerate() {
            classes.row([class.name.clone(), takes(index, class)]);
        }
        text += &classes.render();
    }
    text + &shared(config) + &memory_line(config)
}

fn router_line(config: &RouterConfig) -> String {
    let router = &config.router;
    let workers = counted(router.workers.into(), "worker");
    let said = ["name", "workers", "buffers", "buffer_size", "control"];
    let rest = without(unusual(router, &[]), &said);
    format!(
        "router {}: {workers}, {} buffers of {}, control socket {}{}\n",
        router.name,
        router.buffers,
        size_text(router.buffer_size),
        router.control,
        after("; ", &rest)
    )
}

/// So many of something.
pub(crate) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// The settings but those with these names.
fn without(settings: Vec<String>, names: &[&str]) -> Vec<String> {
    let named = |line: &str| line.split(" = ").next().is_some_and(|name| names.contains(&name));
    settings.into_iter().filter(|line| !named(line)).collect()
}

/// The settings in a line behind `sign`, if there are any.
fn after(sign: &str, settings: &[String]) -> String {
    if settings.is_empty() { String::new() } else { format!("{sign}{}", settings.join(", ")) }
}

fn attached(config: &RouterConfig, port: &PortConfig) -> String {
    let io = match config.io_of(port) {
        Io::Auto => "AF_XDP or packet sockets".to_owned(),
        io => io.to_value().plain(&[]),
    };
    let how = match port.attach() {
        Attach::Route => "routed",
        Attach::InlineWire => "inline, what leaves",
        Attach::InlineKernel => "inline, what arrives",
        Attach::Bridge => "bridged",
        Attach::RouteKernel => "what this machine sends",
    };
    let optional = if port.optional { ", optional" } else { "" };
    let own = if port.own_traffic { ", with own traffic" } else { "" };
    format!("{how}, {io}{optional}{own}")
}

fn rate_of(link: &LinkConfig) -> String {
    link.core.rate.map_or_else(|| "unpaced".to_owned(), rate_text)
}

fn ring(link: &LinkConfig) -> String {
    let ring = link.core.ring;
    match ring.refill {
        Refill::AnySlot => format!("{}", ring.slots),
        refill => format!("{} {}", ring.slots, refill.name()),
    }
}

/// A port and its link.
fn port_in_words(config: &RouterConfig, port: &PortConfig) -> String {
    let mut text = format!("{}  {}, {}\n", port.name, port.interface, attached(config, port));
    // A link is said where it is used: not that of packets which have come from the kernel.
    let Some(link) = config.link(&port.name).filter(|_| port.attach() != Attach::RouteKernel)
    else {
        return text;
    };
    if let Some(through) = through(config, port) {
        let _ = writeln!(text, "    through the link of {through}");
        return text;
    }
    let classes = config.class_names();
    let of_core = without(unusual(&link.core, &classes), &["rate", "ring"]);
    let ring = link.core.rate.map_or_else(String::new, |_| format!(", ring {}", ring(link)));
    let _ = writeln!(text, "    {}{ring}{}", rate_of(link), after(", ", &of_core));
    let _ = writeln!(text, "    {}", discipline(link, &classes));
    if let Some(control) = &link.control {
        let settings = link.unusual_control(&classes);
        let _ = writeln!(text, "    control {}{}", control.name(), after(": ", &settings));
    }
    if let Some(admission) = &link.admission {
        let _ = writeln!(text, "    admission{}", after(": ", &unusual(admission, &[])));
    }
    text
}

/// The port whose link this one's packets go through, if it is another's.
fn through<'a>(config: &'a RouterConfig, port: &PortConfig) -> Option<&'a str> {
    let at = config.ports.iter().position(|own| own.name == port.name)?;
    let link = config.ports.get(config.link_of(at))?;
    (link.name != port.name).then_some(link.name.as_str())
}

fn discipline(link: &LinkConfig, classes: &[&str]) -> String {
    format!("{}{}", link.discipline.name(), after(": ", &link.unusual_discipline(classes)))
}

/// A row a port. What several links have in common stands below, once.
fn port_table(config: &RouterConfig) -> String {
    let classes = config.class_names();
    let mut known = BTreeMap::new();
    let mut notes = Vec::new();
    let mut note = |text: String| {
        let number = *known.entry(text.clone()).or_insert_with(|| {
            notes.push(text);
            notes.len()
        });
        format!("({number})")
    };
    let header = ["port", "interface", "attached", "rate", "ring", "discipline", "beside"];
    let mut table = Table::new(header);
    for port in &config.ports {
        let mut row = vec![port.name.clone(), port.interface.clone(), attached(config, port)];
        if let Some(through) = through(config, port) {
            row.push(format!("as {through}"));
        } else if let Some(link) = config.link(&port.name) {
            let settings = link.unusual_discipline(&classes);
            let kind = link.discipline.name();
            let of_kind = match settings.is_empty() {
                true => kind.to_owned(),
                false => format!("{kind} {}", note(format!("{kind}{}", after(": ", &settings)))),
            };
            let mut beside = without(unusual(&link.core, &classes), &["rate", "ring"]);
            if let Some(control) = &link.control {
                let own = after(": ", &link.unusual_control(&classes));
                beside.push(note(format!("control {}{own}", control.name())));
            }
            if let Some(admission) = &link.admission {
                beside.push(note(format!("admission{}", after(": ", &unusual(admission, &[])))));
            }
            row.extend([rate_of(link), ring(link), of_kind, beside.join(", ")]);
        }
        table.row(row);
    }
    let mut text = table.render();
    for (number, note) in (1..).zip(&notes) {
        let gap = if number == 1 { "\n" } else { "" };
        let _ = writeln!(text, "{gap}({number}) {note}");
    }
    text
}

/// What a class takes: its rules, if they are few.
fn takes(index: usize, class: &ClassConfig) -> String {
    let rules = match class.rules.len() {
        0 => String::new(),
        n @ 1..=FEW_RULES => {
            let rules: Vec<String> =
                class.rules.iter().map(|rule| unusual(rule, &[]).join(", ")).collect();
            if n == 1 { rules.concat() } else { format!("{{ {} }}", rules.join(" } or { ")) }
        }
        n => format!("{n} rules"),
    };
    let nodes = match class.nodes.as_slice() {
        [] => String::new(),
        some => {
            format!("{}who is at {}", if rules.is_empty() { "" } else { ", and " }, some.join(", "))
        }
    };
    let rules = rules + &nodes;
    let service = class.service_name.as_ref().map(|name| format!("; through service {name}"));
    let rest = match (index, rules.is_empty()) {
        (0, true) => "what no rule takes",
        (0, false) => ", and what no rule takes",
        _ => "",
    };
    format!("{rules}{rest}{}", service.unwrap_or_default())
}

/// What is not of one port or class.
fn shared(config: &RouterConfig) -> String {
    let mut text = String::new();
    let classes = config.class_names();
    for service in &config.services {
        let _ = writeln!(text, "service {}: {}", service.name, service.work.name());
    }
    for tree in &config.trees {
        let (name, people) = (&tree.section.name, tree.list.subscribers());
        let nodes = tree.list.entries.len() - people;
        let (people, nodes) = (counted(people, "subscriber"), counted(nodes, "node"));
        let within = match tree.section.fair {
            Shares::Flow => "",
            Shares::Host => ", within a plan hosts share first",
            Shares::Class => ", within a plan classes share first, by weight",
        };
        let _ = writeln!(text, "tree {name}: {people} behind {nodes}{within}");
    }
    if config.router.workers > 1 {
        for (link, part) in config.links.iter().zip(config.unshared_links()) {
            let Some(part) = part else { continue };
            let _ = writeln!(
                text,
                "link {}: the first of the workers has it, and the others hand it their packets \
                 ({part})",
                link.port
            );
        }
    }
    let flows = unusual(&config.flows, &[]);
    if !flows.is_empty() {
        let _ = writeln!(text, "flows: {}", flows.join(", "));
    }
    if let Some(fairdrop) = &config.fairdrop {
        let settings = unusual(fairdrop, &classes);
        let _ = writeln!(text, "fairdrop{}", after(": ", &settings));
    }
    if let Some(cluster) = &config.cluster {
        let _ = writeln!(
            text,
            "cluster: forwarder {} of {}, {}",
            cluster.node,
            cluster.config.members.len(),
            counted(cluster.links.len(), "link")
        );
    }
    if let Some(balancer) = &config.balancer {
        let forwarders = counted(balancer.forwarders.len(), "forwarder");
        let _ = writeln!(text, "balancer: {forwarders}");
    }
    if config.membership.is_some() {
        text += "membership: from etcd\n";
    }
    text
}

/// What the file takes at most, in a sentence.
fn memory_line(config: &RouterConfig) -> String {
    let needed = Footprint::of(config);
    let links: u64 = needed.links.iter().map(|(_, bytes)| bytes).sum();
    format!(
        "memory: at most {}: buffers {}, links {}, the rest {}; routes of the kernel come on top\n",
        mebibytes(needed.total()),
        mebibytes(needed.buffers),
        mebibytes(links),
        mebibytes(needed.rest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_plan_is_said() {
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/subscribers.csv");
        let said = |fair: &str| {
            let text = format!(
                "[[port]]\nname = \"lan\"\ninterface = \"eth0\"\n\
                 [[link]]\nport = \"lan\"\nrate = \"20Mbit/s\"\n\
                 [[tree]]\nsubscribers = {list:?}\ndown = \"lan\"\n{fair}\n"
            );
            meaning(&RouterConfig::parse(&text, "r.toml").unwrap())
        };
        assert!(said("").contains("4 subscribers behind 2 nodes\n"));
        assert!(said("fair = \"host\"").contains("2 nodes, within a plan hosts share first\n"));
        assert!(said("fair = \"class\"").contains("classes share first, by weight\n"));
    }
}
