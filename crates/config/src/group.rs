//! One limit over several ports: a link that the packets of other ports go through, too.

use evenkeel_settings::read::{Fields, Reader, suggest};

use crate::control::LinkControl;
use crate::model::{LinkConfig, RouterConfig};

/// The key of `[[link]]`.
const KEY: &str = "also";

impl RouterConfig {
    /// The port in whose link the packets wait that leave by `port`: itself, unless the link of
    /// another one names it.
    #[must_use]
    pub fn link_of(&self, port: usize) -> usize {
        let named = |link: &LinkConfig| link.also.contains(&self.links[port].port);
        self.links.iter().position(named).unwrap_or(port)
    }

    /// The links that packets go through: those of ports that use another one's are left out.
    pub(crate) fn own_links(&self) -> impl Iterator<Item = &LinkConfig> {
        let own = |(at, link)| (self.link_of(at) == at).then_some(link);
        self.links.iter().enumerate().filter_map(own)
    }
}

/// Refuses links over several ports that cannot be.
pub(crate) fn check(reader: &mut Reader, file: &Fields, config: &RouterConfig) {
    let ports: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
    let has_own = |name: &str| file.tables("link").any(|link| link.text("port") == Some(name));
    let mut taken: Vec<&str> = Vec::new();
    for fields in file.tables("link").filter(|fields| fields.given(KEY)) {
        for (name, at) in fields.texts(KEY) {
            let wrong = if fields.text("port") == Some(name) {
                "it is the link's own port".to_owned()
            } else if !ports.contains(&name) {
                format!("no port {name:?}; {}", suggest(name, &ports))
            } else if taken.contains(&name) {
                format!("port {name:?} is there twice: its packets go through one link")
            } else if has_own(name) {
                format!("port {name:?} has a [[link]] of its own: take that away, or this")
            } else {
                taken.push(name);
                continue;
            };
            reader.fail(at, fields.path_of(KEY), wrong);
        }
        let link = config.link(fields.text("port").unwrap_or_default());
        if link.is_some_and(|link| link.core.rate.is_none()) {
            let message = "the link has no `rate`, which is what its ports share".to_owned();
            reader.fail_at(fields, KEY, message);
        }
        let control = link.and_then(|link| link.control.as_ref());
        if control.and_then(LinkControl::latency).is_some() {
            let message = "kind = \"latency\" follows the line of one port: not with `also`";
            reader.fail_at(fields, "control", message.to_owned());
        }
        for role in ["cluster", "balancer"] {
            if file.table(role).is_some() {
                let message = format!("[{role}] has links of its own: each is one port's");
                reader.fail_at(fields, KEY, message);
            }
        }
    }
    for fields in file.tables("link") {
        let Some(admission) = fields.table("admission") else { continue };
        let second = config.link(fields.text("port").unwrap_or_default());
        let second = second.and_then(|link| link.admission.as_ref()?.second_link.port.as_ref());
        if second.is_some_and(|second| taken.contains(&second.0.as_str())) {
            let at = admission.span("second_link");
            let message = "the packets of that port go through the link of another one (`also`)";
            reader.fail(&at, admission.path_of("second_link"), message.to_owned());
        }
    }
}
