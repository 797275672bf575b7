//! From the text of `router.toml` to [`RouterConfig`].

use std::collections::HashMap;
use std::path::Path;

use evenkeel_core::class_map::ClassMap;

use crate::attach::{Attach, ingress_of};
use crate::cluster::{balancer_of, check_realtime, cluster_of};
use crate::control::control_of;
use crate::discipline::{from_fields, parse_discipline};
use crate::fairdrop::fairdrop_of;
use crate::membership::membership_of;
use crate::model::{
    ClassConfig, Io, LinkConfig, MOST_BUFFERS, PortConfig, RouterConfig, RouterSection,
};
use crate::service::{ServiceConfig, Work, service_of_class, services_of};
use crate::subscribers::{GivenList, SubscriberTree, plant, trees_of};
use crate::tables::{self, short_queues, who_shares};
use evenkeel_core::link::LinkConfig as Link;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::schedule::fifo::FifoConfig;
use evenkeel_core::schedule::hosts::Fair;
use evenkeel_core::settings::quantity::size_text;
use evenkeel_core::settings::{Name, SettingError};
use evenkeel_settings::diagnostic::{Diagnostic, Diagnostics, Span};
use evenkeel_settings::read::{Fields, Reader, parse_toml, suggest};
use evenkeel_settings::settings_of;
use evenkeel_settings::tree::Table;

/// Where the ports of a router come from.
#[derive(Clone, Copy, Debug)]
pub enum PortSource<'a> {
    /// From `[[port]]`.
    File,
    /// From elsewhere; `[[port]]` is not allowed.
    Given {
        /// The ports.
        ports: &'a [PortConfig],
        /// Lists of subscribers that a `[[tree]]` can name in place of a file.
        lists: &'a [GivenList],
    },
}

/// Two sockets cannot be at one place.
fn check_monitor(reader: &mut Reader, section: &Fields, router: &RouterSection) {
    if router.monitor.as_ref() == Some(&router.control) {
        let message = "it is the path of `control` too: give it one of its own";
        reader.fail_at(section, "monitor", message);
    }
}

/// The name of the class of a router whose file has none.
const ONLY_CLASS: &str = "default";

impl RouterConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All that is wrong with it; also that it cannot be read.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let file = path.display().to_string();
        let text = read_file(path)?;
        Self::parse(&text, &file)
    }

    /// Checks a text; `file` is the name that errors say.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &str) -> Result<Self, Diagnostics> {
        let (table, mut reader) = parse_toml(text, file);
        let config = router_from_table(&mut reader, &table, 0..0, "", PortSource::File);
        reader.finish(config)
    }
}

/// Reads a file; what the system says about it as a diagnostic.
///
/// # Errors
/// It is not there, not readable, or not UTF-8.
pub fn read_file(path: &Path) -> Result<String, Diagnostics> {
    std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot be read: {error}");
        Diagnostics(vec![Diagnostic {
            file: path.display().to_string(),
            line: 0,
            key: String::new(),
            message,
        }])
    })
}

/// The configuration that a table says: a whole file, or a part of another file that stands at
/// `path`. Errors go to the reader; `None` if there is not even something incomplete to return.
pub fn router_from_table(
    reader: &mut Reader,
    table: &Table,
    at: Span,
    path: &str,
    ports: PortSource<'_>,
) -> Option<RouterConfig> {
    let section = match ports {
        PortSource::File => &tables::FILE,
        PortSource::Given { .. } => &tables::WITHOUT_PORTS,
    };
    let fields = reader.table(section, table, at, path);
    let (ports, lists) = match ports {
        PortSource::File => (ports_of(reader, &fields), &[][..]),
        PortSource::Given { ports, lists } => (ports.to_vec(), lists),
    };
    let services = services_of(reader, &fields);
    let classes = classes_of(reader, &fields, &services);
    let names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
    let trees = trees_of(reader, &fields, &ports, lists, &names);
    let links = links_of(reader, &fields, &ports, &classes, &trees)?;
    let section = fields.table("router")?;
    let router = router_of(reader, section, &links)?;
    let xdp = |port: &PortConfig| {
        port.attach() == Attach::Route && port.io.unwrap_or(router.io) == Io::AfXdp
    };
    if ports.iter().any(xdp) && !matches!(router.buffer_size.0, 2048 | 4096) {
        let message = format!(
            "{} is out of range: 2048B or 4096B with io = \"af-xdp\"",
            size_text(router.buffer_size)
        );
        reader.fail_at(section, "buffer_size", message);
    }
    check_realtime(reader, section, router.realtime, router.mode);
    check_monitor(reader, section, &router);
    let fairdrop = match fields.table("fairdrop") {
        Some(table) => Some(fairdrop_of(reader, table, &names)?),
        None => None,
    };
    let cluster = match fields.table("cluster") {
        Some(table) => {
            let section = cluster_of(reader, table, &ports, &names, router.io)?;
            check_realtime(reader, table, section.realtime, router.mode);
            Some(section)
        }
        None => None,
    };
    let balancer = match fields.table("balancer") {
        Some(table) => {
            let section = balancer_of(reader, table, &ports, router.io)?;
            check_realtime(reader, table, section.realtime, router.mode);
            Some(section)
        }
        None => None,
    };
    if let (Some(_), Some(table)) = (&cluster, fields.table("balancer")) {
        let message = "a router is a forwarder ([cluster]) or a balancer ([balancer]), not both";
        reader.fail(&table.at, table.path.clone(), message);
    }
    let membership = match fields.table("membership") {
        Some(table) => Some(membership_of(reader, table, cluster.is_some() || balancer.is_some())?),
        None => None,
    };
    let flows = settings_of(reader, fields.table("flows")?, &[])?;
    let config = RouterConfig {
        router,
        flows,
        ports,
        services,
        classes,
        links,
        fairdrop,
        cluster,
        balancer,
        membership,
        trees,
    };
    check_together(reader, &fields, &config);
    Some(config)
}

/// `[router]`; without a number, buffers for what links hold.
fn router_of(reader: &mut Reader, section: &Fields, links: &[LinkConfig]) -> Option<RouterSection> {
    let mut router: RouterSection = settings_of(reader, section, &[])?;
    if !section.given("buffers") {
        router.buffers = router.buffers.max(buffers_for(links));
    }
    Some(router)
}

/// Buffers beyond what trees hold: for the other links, and for what comes in and goes out.
const SPARE_BUFFERS: u32 = 4_096;

/// Buffers with which trees of subscribers can hold as much as they may: without one, packets of
/// everybody are dropped, and not of those who have most.
fn buffers_for(links: &[LinkConfig]) -> u32 {
    let of = |link: &LinkConfig| match &link.discipline {
        DisciplineConfig::Tree(tree) => tree.buffer,
        _ => 0,
    };
    let held = links.iter().map(of).fold(SPARE_BUFFERS, u32::saturating_add);
    held.min(MOST_BUFFERS)
}

/// What no table knows alone.
fn check_together(reader: &mut Reader, fields: &Fields, config: &RouterConfig) {
    check_admissions(reader, fields, config);
    crate::workers::check(reader, fields, config);
    crate::workers::check_busy_poll(reader, fields, config);
    crate::attach::check(reader, fields, config);
    crate::group::check(reader, fields, config);
    crate::subscribers::check(reader, fields, config);
}

/// What no single link knows: whether thresholds fit the rates, and whether second links are there.
fn check_admissions(reader: &mut Reader, file: &Fields, config: &RouterConfig) {
    for fields in file.tables("link") {
        let (Some(port), Some(table)) = (fields.text("port"), fields.table("admission")) else {
            continue;
        };
        let Some(link) = config.link(port) else { continue };
        let mut fail = |key: &str, message: String| {
            reader.fail_at(table, key, message);
        };
        if !link.discipline.measures_fair_rate() {
            fail(
                "min_fair_rate",
                format!(
                    "discipline {:?} measures no fair rate; use pfq, pdrr or afan, or a [[tree]]",
                    link.discipline.name()
                ),
            );
        }
        if let Some(Name(second)) =
            link.admission.as_ref().and_then(|one| one.second_link.port.as_ref())
        {
            let known: Vec<_> = config.ports.iter().map(|port| port.name.as_str()).collect();
            if second == port {
                fail("second_link", "a link is not its own second link".to_owned());
                continue;
            }
            if !known.contains(&second.as_str()) {
                fail("second_link", format!("no port {second:?}; {}", suggest(second, &known)));
                continue;
            }
        }
        match config.admission(port) {
            Err(SettingError::Contradiction { key, message }) => fail(key, message),
            Err(other) => fail("rate", other.to_string()),
            Ok(_) => {}
        }
    }
}

/// Finds what stands twice in tables of one kind.
pub struct Unique<'a> {
    /// What it is: `port`.
    what: &'a str,
    seen: HashMap<String, Span>,
}

impl<'a> Unique<'a> {
    /// Nothing seen; `what` is for messages: `port name`.
    #[must_use]
    pub fn new(what: &'a str) -> Self {
        Self { what, seen: HashMap::new() }
    }

    /// Takes note of the text of `key`, and of the error if it was there before.
    pub fn check(&mut self, reader: &mut Reader, fields: &Fields, key: &str) {
        let Some(text) = fields.text(key) else { return };
        if self.seen.insert(text.to_owned(), fields.span(key)).is_some() {
            let message = format!("{} {text:?} is there twice: it must be unique", self.what);
            reader.fail_at(fields, key, message);
        }
    }
}

fn ports_of(reader: &mut Reader, file: &Fields) -> Vec<PortConfig> {
    let (mut names, mut interfaces) = (Unique::new("port"), Unique::new("interface"));
    let mut ports = Vec::new();
    for fields in file.tables("port") {
        names.check(reader, fields, "name");
        interfaces.check(reader, fields, "interface");
        // A port whose interface is wrong is still a port that links may name.
        if fields.text("name").is_some() {
            let port: Option<PortConfig> = settings_of(reader, fields, &[]);
            let ingress = port.as_ref().and_then(ingress_of);
            ports.extend(port);
            ports.extend(ingress);
        }
    }
    ports
}

fn classes_of(reader: &mut Reader, file: &Fields, services: &[ServiceConfig]) -> Vec<ClassConfig> {
    let known: Vec<_> = file.tables("service").filter_map(|service| service.text("name")).collect();
    let mut names = Unique::new("class");
    let mut classes = Vec::new();
    let mut rules = 0;
    for fields in file.tables("class") {
        names.check(reader, fields, "name");
        let class = settings_of::<ClassConfig>(reader, fields, &[]);
        let Some(mut class) = class.filter(|class| !class.name.is_empty()) else { continue };
        rules += class.rules.len();
        if rules > ClassMap::MAX_RULES {
            let message =
                format!("more than {} rules in all classes together", ClassMap::MAX_RULES);
            reader.fail_at(fields, "match", message);
        }
        class.service = service_of_class(reader, fields, &known, services);
        fragments_too(reader, fields, class.service.and_then(|at| services.get(usize::from(at))));
        classes.push(class);
    }
    if classes.is_empty() {
        classes.push(ClassConfig { name: ONLY_CLASS.to_owned(), ..ClassConfig::default() });
    }
    classes
}

/// Later fragments have no ports: of a class that is encrypted and chosen by ports they would leave
/// in clear (RFC 4301, 7).
fn fragments_too(reader: &mut Reader, class: &Fields, service: Option<&ServiceConfig>) {
    if !service.is_some_and(|service| matches!(service.work, Work::Esp(_))) {
        return;
    }
    for rule in class.tables("match") {
        let by_port = ["source_port", "destination_port"].into_iter().find(|key| rule.given(key));
        if let Some(key) = by_port {
            let message = "the class is encrypted, and fragments after the first have no ports: \
                           they would leave in clear; choose it by source, destination, protocol \
                           or dscp";
            reader.fail_at(rule, key, message);
        }
    }
}

fn links_of(
    reader: &mut Reader,
    file: &Fields,
    ports: &[PortConfig],
    classes: &[ClassConfig],
    trees: &[SubscriberTree],
) -> Option<Vec<LinkConfig>> {
    let port_names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
    let class_names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
    let mut unique = Unique::new("a link of port");
    let mut by_port = HashMap::new();
    let workers = file.table("router").and_then(|router| router.integer("workers"));
    let several = workers.is_some_and(|workers| workers > 1);
    for fields in file.tables("link") {
        unique.check(reader, fields, "port");
        let named = fields.text("port");
        let port = named.and_then(|name| ports.iter().find(|port| port.name == name));
        let by_flow = several || fields.given("admission");
        let fair = who_shares(port.map(PortConfig::attach), by_flow);
        let link = link_of(reader, fields, &class_names, fair);
        let Some(port) = fields.text("port") else { continue };
        if !port_names.contains(&port) {
            let message = format!("no port {port:?}; {}", suggest(port, &port_names));
            reader.fail_at(fields, "port", message);
        }
        let control = link.as_ref().and_then(|link| link.control.as_ref()?.latency());
        if let Some(Name(line)) = control.and_then(|control| control.line.as_ref())
            && !port_names.contains(&line.as_str())
            && let Some(fields) = fields.table("control")
        {
            let message = format!("no port {line:?}; {}", suggest(line, &port_names));
            reader.fail_at(fields, "line", message);
        }
        by_port.insert(port.to_owned(), link);
    }
    let links = ports.iter().map(|port| match by_port.remove(&port.name) {
        Some(link) => link,
        None => unpaced(&port.name),
    });
    let mut links: Vec<LinkConfig> = links.collect::<Option<_>>()?;
    plant(reader, file, &mut links, trees);
    Some(links)
}

/// The link of a port that the file says nothing about: the defaults of `[[link]]`.
fn unpaced(port: &str) -> Option<LinkConfig> {
    let text = format!("port = {}", toml::Value::from(port));
    let (table, mut reader) = parse_toml(&text, "");
    let fields = reader.table(&tables::LINK, &table, 0..0, "");
    link_of(&mut reader, &fields, &[], Fair::Flow)
}

fn link_of(
    reader: &mut Reader,
    fields: &Fields,
    classes: &[&str],
    fair: Fair,
) -> Option<LinkConfig> {
    let core: Link = settings_of(reader, fields, classes)?;
    let discipline = match fields.table("discipline") {
        Some(table) => from_fields(reader, table, classes)?,
        // Where packets wait for a line they wait in short queues. Elsewhere none waits for long.
        None if core.slowest().is_some() => parse_discipline(short_queues(fair), classes).ok()?,
        None => DisciplineConfig::Fifo(FifoConfig::default()),
    };
    let admission = match fields.table("admission") {
        Some(table) => Some(settings_of(reader, table, &[])?),
        None => None,
    };
    let port = fields.text("port")?.to_owned();
    let also = fields.texts("also").map(|(name, _)| name.to_owned()).collect();
    let mut link = LinkConfig { port, also, core, discipline, control: None, admission };
    if let Some(table) = fields.table("control") {
        link.control = Some(control_of(reader, table, &link, classes)?);
    }
    Some(link)
}
