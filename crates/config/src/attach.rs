//! How ports are attached to their interfaces, and what cannot be had with that.

use std::hash::{DefaultHasher, Hash, Hasher};

use evenkeel_settings::read::{Fields, Reader};

use crate::model::{Attachment, Io, PortConfig, RouterConfig};

/// What is added to the name of an inline port for its other direction.
const INGRESS: &str = "-ingress";
/// The same for a routed port with `own_traffic`.
const OWN: &str = "-own";
/// The longest name of an interface, bytes.
const INTERFACE_NAME: usize = 15;

/// How a port is attached to its interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attach {
    /// Packets are forwarded here, by the kernel's tables, from port to port.
    Route,
    /// Only the queues are taken over; the kernel routes. This port's link is the interface's
    /// egress: what the kernel sends there. The next port of the configuration is its other half.
    InlineWire,
    /// One of two ports between which every frame passes.
    Bridge,
    /// The other half: its link is the interface's ingress, what the kernel receives from there.
    /// Its interface is our end of the pair between the kernel and us.
    InlineKernel,
    /// What the kernel sends by the routed port before it in the configuration; its link is not
    /// used. Its interface is our end of the pair between the kernel and us.
    RouteKernel,
}

impl Attach {
    /// Whether the interface is our end of a pair of ours.
    #[must_use]
    pub const fn is_of_pair(self) -> bool {
        matches!(self, Self::InlineKernel | Self::RouteKernel)
    }
}

/// The names of the two ends of the pair between the kernel and an interface that is attached
/// inline: the kernel's and ours. Always the same ones for an interface, so that what a killed
/// process has left is found again.
#[must_use]
pub fn pair_of(interface: &str) -> (String, String) {
    (named("ekh-", interface), named("eku-", interface))
}

/// A name that tells which interface it belongs to, and that is short enough for one.
fn named(prefix: &str, interface: &str) -> String {
    let room = INTERFACE_NAME - prefix.len();
    if interface.len() <= room {
        return format!("{prefix}{interface}");
    }
    let mut hasher = DefaultHasher::new();
    interface.hash(&mut hasher);
    format!("{prefix}{:0room$x}", hasher.finish() & ((1 << (4 * room)) - 1))
}

/// The other half of a port that is attached inline, or takes what the machine itself sends.
pub(crate) fn ingress_of(port: &PortConfig) -> Option<PortConfig> {
    let suffix = match port.attachment {
        Attachment::Inline => INGRESS,
        Attachment::Route if port.own_traffic => OWN,
        Attachment::Route | Attachment::Bridge => return None,
    };
    Some(PortConfig {
        optional: false,
        name: format!("{}{suffix}", port.name),
        interface: pair_of(&port.interface).1,
        io: None,
        attachment: port.attachment,
        own_traffic: false,
        is_ingress: true,
    })
}

impl PortConfig {
    /// How it is attached to its interface.
    #[must_use]
    pub const fn attach(&self) -> Attach {
        match (self.attachment, self.is_ingress) {
            (Attachment::Route, false) => Attach::Route,
            (Attachment::Route, true) => Attach::RouteKernel,
            (Attachment::Inline, false) => Attach::InlineWire,
            (Attachment::Inline, true) => Attach::InlineKernel,
            (Attachment::Bridge, _) => Attach::Bridge,
        }
    }
}

impl RouterConfig {
    /// The port that a port is joined with: what comes in by one leaves by the other. What comes
    /// in by a routed port goes where its route says, also if the kernel's own leaves by it.
    #[must_use]
    pub fn peer_of(&self, port: usize) -> Option<usize> {
        match self.ports.get(port)?.attach() {
            Attach::Route => None,
            Attach::InlineWire => Some(port + 1),
            Attach::InlineKernel | Attach::RouteKernel => port.checked_sub(1),
            Attach::Bridge => (0..self.ports.len())
                .find(|other| *other != port && self.ports[*other].attach() == Attach::Bridge),
        }
    }

    /// The name of the kernel's bridge that is made for a port that has none, if one is to be.
    #[must_use]
    pub fn made_bridge(&self) -> Option<String> {
        let first = self.ports.iter().find(|port| port.attach() == Attach::Bridge)?;
        self.router.make_bridge.then(|| named("ekb-", &first.interface))
    }
}

/// Refuses what a port cannot have that takes what the machine itself sends.
fn check_own_traffic(reader: &mut Reader, fields: &Fields, config: &RouterConfig) {
    let named = |port: &&PortConfig| Some(port.name.as_str()) == fields.text("name");
    let mut fail = |key: &str, message: &str| reader.fail_at(fields, key, message.to_owned());
    for port in config.ports.iter().filter(named) {
        if port.attach() == Attach::RouteKernel {
            fail("name", "this is the name of a half of a port with own_traffic = true");
        }
        if port.own_traffic && port.attachment != Attachment::Route {
            let message = "what the machine itself sends goes through the links of such a port \
                           anyhow: leave it out";
            fail("own_traffic", message);
        }
        if port.own_traffic && port.optional {
            fail("own_traffic", "not together with `optional`");
        }
    }
}

/// Refuses what ports that are attached inline, or take what the machine sends, cannot have.
pub(crate) fn check(reader: &mut Reader, file: &Fields, config: &RouterConfig) {
    if config.ports.iter().all(|port| port.attach() == Attach::Route) {
        return;
    }
    file.tables("port").for_each(|fields| check_own_traffic(reader, fields, config));
    let mut fail = |fields: &Fields, key: &str, message: &str| {
        reader.fail_at(fields, key, message.to_owned());
    };
    let bridged = |port: &PortConfig| port.attach() == Attach::Bridge;
    let bridges = config.ports.iter().filter(|port| bridged(port)).count();
    for fields in file.tables("port") {
        let name = fields.text("name");
        let some = |of: &dyn Fn(&PortConfig) -> bool| {
            config.ports.iter().any(|port| of(port) && Some(port.name.as_str()) == name)
        };
        if some(&|port| port.attach() == Attach::InlineKernel) {
            let message = "this is the name of the ingress of a port with attach = \"inline\"";
            fail(fields, "name", message);
        }
        let own = |port: &PortConfig| {
            matches!(port.attach(), Attach::InlineWire | Attach::Bridge)
                && port.io == Some(Io::AfXdp)
        };
        if some(&own) {
            let message = "attach = \"inline\" and \"bridge\" work with packet sockets: leave `io` \
                           out";
            fail(fields, "io", message);
        }
        if some(&|port| port.optional && port.attach() != Attach::Route) {
            let message = "only a port with attach = \"route\" can be optional";
            fail(fields, "optional", message);
        }
        if bridges != 2 && some(&bridged) {
            let message = format!(
                "attach = \"bridge\" joins two ports: {bridges} {} it",
                if bridges == 1 { "has" } else { "have" }
            );
            fail(fields, "attach", &message);
        }
    }
    for role in ["cluster", "balancer"] {
        if let Some(section) = file.table(role) {
            let message = format!(
                "[{role}] forwards itself: no port can have attach = \"inline\" or \"bridge\", \
                 or own_traffic"
            );
            reader.fail(&section.at, section.path.clone(), message);
        }
    }
    if config.ports.iter().all(|port| port.attachment == Attachment::Route) {
        return;
    }
    for fields in file.tables("class").filter(|fields| fields.given("service")) {
        let message = "a service changes packets, which pass unchanged where a port has \
                       attach = \"inline\" or \"bridge\"";
        reader.fail_at(fields, "service", message.to_owned());
    }
    for link in file.tables("link") {
        let Some(admission) = link.table("admission") else { continue };
        if admission.table("second_link").is_some() {
            let message = "the way of a packet is not chosen here: no second link with \
                           attach = \"inline\" or \"bridge\"";
            let at = admission.span("second_link");
            reader.fail(&at, admission.path_of("second_link"), message.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pairs_fit_and_tell_interfaces_apart() {
        assert_eq!(pair_of("eth0"), ("ekh-eth0".to_owned(), "eku-eth0".to_owned()));
        assert_eq!(pair_of("12345678901").1, "eku-12345678901");
        let [one, two] = ["enp129s0f0np15", "enp129s0f0np16"].map(pair_of);
        assert_ne!(one, two);
        assert!([one.0, one.1].iter().all(|name| name.len() <= INTERFACE_NAME));
    }
}
