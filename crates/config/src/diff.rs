//! What would change if a running router were given another file.

use std::collections::HashMap;

use evenkeel_core::admit::AdmissionConfig;
use evenkeel_core::settings::{ChangeTime, SettingError, Settings};
use evenkeel_settings::typed::plain_of;
use evenkeel_settings::{Changed, changes};

use crate::control::LinkControl;
use crate::model::{ClassConfig, LinkConfig, RouterConfig};
use crate::subscribers::{Entry, SubscriberList, SubscriberTree};

/// The differences, one sentence each, in the order of the file; empty if there are none. What
/// needs a restart says so.
#[must_use]
pub fn diff(old: &RouterConfig, new: &RouterConfig) -> Vec<String> {
    let mut out = Vec::new();
    section(&mut out, "router", Some(&old.router), Some(&new.router), &[]);
    ports(&mut out, old, new);
    section(&mut out, "flows", Some(&old.flows), Some(&new.flows), &[]);
    if old.flows.lists != new.flows.lists {
        out.push("flows: another global list, which begins empty".to_owned());
    }
    if old.class_names() != new.class_names() {
        out.push(format!(
            "classes {} become {}",
            old.class_names().join(", "),
            new.class_names().join(", ")
        ));
    } else {
        for (was, is) in old.classes.iter().zip(&new.classes) {
            if was.rules != is.rules {
                out.push(format!("class {}: other rules", is.name));
            }
            let service = |class: &ClassConfig| class.service_name.clone();
            let service = |class| service(class).unwrap_or_else(|| "none".to_owned());
            value(&mut out, &format!("class {}: service", is.name), service(was), service(is));
        }
    }
    for service in &new.services {
        match old.services.iter().find(|known| known.name == service.name) {
            None => out.push(format!("service {} is new", service.name)),
            Some(known) if known.work != service.work => {
                out.push(format!("service {}: other work", service.name));
            }
            Some(_) => {}
        }
    }
    for service in
        old.services.iter().filter(|old| new.services.iter().all(|known| known.name != old.name))
    {
        out.push(format!("service {} goes", service.name));
    }
    for link in &new.links {
        if let Some(known) = old.link(&link.port) {
            links(&mut out, known, link, &old.class_names(), &new.class_names());
        }
    }
    trees(&mut out, old, new);
    fairdrop(&mut out, old, new);
    let classes =
        if old.class_names() == new.class_names() { new.class_names() } else { Vec::new() };
    section(&mut out, "cluster", old.cluster.as_ref(), new.cluster.as_ref(), &classes);
    section(&mut out, "balancer", old.balancer.as_ref(), new.balancer.as_ref(), &[]);
    section(&mut out, "membership", old.membership.as_ref(), new.membership.as_ref(), &[]);
    out
}

/// Sentences about single subscribers.
const TOLD: usize = 20;

/// The differences of the trees.
fn trees(out: &mut Vec<String>, old: &RouterConfig, new: &RouterConfig) {
    for tree in &new.trees {
        let at = format!("tree {}", tree.section.name);
        let Some(known) = old.trees.iter().find(|own| own.section.name == tree.section.name) else {
            out.push(format!("{at} is new: {} subscribers", tree.list.subscribers()));
            continue;
        };
        for Changed { name, was, is, .. } in
            changes(&known.section, &tree.section, &new.class_names())
        {
            value(out, &format!("{at}: {name}"), was, is);
        }
        lists(out, &at, &known.list, &tree.list);
    }
    let gone =
        |tree: &&SubscriberTree| new.trees.iter().all(|own| own.section.name != tree.section.name);
    out.extend(
        old.trees.iter().filter(gone).map(|tree| format!("tree {} goes", tree.section.name)),
    );
}

/// The differences of two lists: some by name, all by count.
fn lists(out: &mut Vec<String>, at: &str, old: &SubscriberList, new: &SubscriberList) {
    if std::ptr::eq(old, new) {
        return;
    }
    let by_name = |list: &SubscriberList| -> HashMap<String, Entry> {
        let entries = list.entries.iter().cloned();
        entries.map(|entry| (entry.name.clone(), Entry { line: 0, ..entry })).collect()
    };
    let (was, is) = (by_name(old), by_name(new));
    let mut said = Vec::new();
    for entry in &new.entries {
        match was.get(&entry.name) {
            None => said.push(format!("{at}: {:?} is new", entry.name)),
            Some(known) if *known != is[&entry.name] => {
                said.push(format!("{at}: {:?} changes", entry.name));
            }
            Some(_) => {}
        }
    }
    let gone = old.entries.iter().filter(|entry| !is.contains_key(&entry.name));
    said.extend(gone.map(|entry| format!("{at}: {:?} goes", entry.name)));
    let more = said.len().saturating_sub(TOLD);
    said.truncate(TOLD);
    if more > 0 {
        said.push(format!("{at}: and {more} changes like these"));
    }
    out.extend(said);
}

/// The differences of the ports.
fn ports(out: &mut Vec<String>, old: &RouterConfig, new: &RouterConfig) {
    for port in &new.ports {
        match old.ports.iter().find(|known| known.name == port.name) {
            None => out.push(format!("port {} is new", port.name)),
            Some(known) if known.attachment != port.attachment => out.push(format!(
                "port {}: attach {} becomes {} (needs a restart)",
                port.name,
                known.attachment.name(),
                port.attachment.name()
            )),
            Some(known) if known.interface != port.interface => out.push(format!(
                "port {}: interface {} becomes {}",
                port.name, known.interface, port.interface
            )),
            Some(known) if old.io_of(known) != new.io_of(port) => out.push(format!(
                "port {}: io {} becomes {}",
                port.name,
                old.io_of(known).name(),
                new.io_of(port).name()
            )),
            Some(known) if known.own_traffic != port.own_traffic => out.push(format!(
                "port {}: own_traffic {} becomes {} (needs a restart)",
                port.name, known.own_traffic, port.own_traffic
            )),
            Some(known) if known.optional != port.optional => out.push(format!(
                "port {}: optional {} becomes {}",
                port.name, known.optional, port.optional
            )),
            Some(_) => {}
        }
    }
    for port in
        old.ports.iter().filter(|port| new.ports.iter().all(|known| known.name != port.name))
    {
        out.push(format!("port {} goes", port.name));
    }
}

fn fairdrop(out: &mut Vec<String>, old: &RouterConfig, new: &RouterConfig) {
    match (&old.fairdrop, &new.fairdrop) {
        (None, None) => {}
        (None, Some(_)) => out.push("fairdrop is new".to_owned()),
        (Some(_), None) => out.push("fairdrop goes".to_owned()),
        (Some(was), Some(is)) => {
            for Changed { name, was, is, .. } in changes(was, is, &new.class_names()) {
                value(out, &format!("fairdrop: {name}"), was, is);
            }
        }
    }
}

/// Notes what changes in a section that may be left out.
fn section<S: Settings>(
    out: &mut Vec<String>,
    name: &str,
    old: Option<&S>,
    new: Option<&S>,
    classes: &[&str],
) {
    match (old, new) {
        (None, None) => {}
        (None, Some(_)) => out.push(format!("{name} is new (needs a restart)")),
        (Some(_), None) => out.push(format!("{name} goes (needs a restart)")),
        (Some(old), Some(new)) => out.extend(changes(old, new, classes).iter().map(|changed| {
            let Changed { key, name: setting, was, is } = changed;
            let needs = if key.change == ChangeTime::Fixed { " (needs a restart)" } else { "" };
            format!("{name}.{setting}: {was} becomes {is}{needs}")
        })),
    }
}

/// The first setting that two tables have differently and that is fixed while the router runs.
#[must_use]
pub fn fixed_setting<S: Settings>(old: &S, new: &S) -> Option<&'static str> {
    match old.keeps_fixed(new) {
        Err(SettingError::Fixed { key }) => Some(key),
        _ => None,
    }
}

/// The first setting of the router as a whole or of its roles that two configurations have
/// differently and that is fixed while the router runs, with its table: `router.seed`. A table that
/// only one of them has: `cluster`.
#[must_use]
pub fn fixed_change(old: &RouterConfig, new: &RouterConfig) -> Option<String> {
    fn of<S: Settings>(table: &str, old: Option<&S>, new: Option<&S>) -> Option<String> {
        match (old, new) {
            (None, None) => None,
            (Some(old), Some(new)) => fixed_setting(old, new).map(|key| format!("{table}.{key}")),
            _ => Some(table.to_owned()),
        }
    }
    of("router", Some(&old.router), Some(&new.router))
        .or_else(|| of("cluster", old.cluster.as_ref(), new.cluster.as_ref()))
        .or_else(|| of("balancer", old.balancer.as_ref(), new.balancer.as_ref()))
        .or_else(|| of("membership", old.membership.as_ref(), new.membership.as_ref()))
}

/// Notes a change of one value.
fn value(out: &mut Vec<String>, what: &str, was: String, is: String) {
    if was != is {
        out.push(format!("{what}: {was} becomes {is}"));
    }
}

fn links(
    out: &mut Vec<String>,
    old: &LinkConfig,
    new: &LinkConfig,
    old_classes: &[&str],
    new_classes: &[&str],
) {
    let at = format!("link {}", new.port);
    let also = |link: &LinkConfig| match link.also.is_empty() {
        true => "none".to_owned(),
        false => link.also.join(", "),
    };
    value(out, &format!("{at}: also"), also(old), also(new));
    for Changed { name, was, is, .. } in changes(&old.core, &new.core, &[]) {
        value(out, &format!("{at}: {name}"), was, is);
    }
    value(
        out,
        &format!("{at}: discipline"),
        old.discipline.name().to_owned(),
        new.discipline.name().to_owned(),
    );
    let control = |link: &LinkConfig| match &link.control {
        None => "none".to_owned(),
        Some(control) if control.is_on() => "on".to_owned(),
        Some(_) => "off".to_owned(),
    };
    value(out, &format!("{at}: control"), control(old), control(new));
    // Whether it is on has been told.
    let turned = match (&old.control, &new.control) {
        (Some(LinkControl::Lct(was)), Some(LinkControl::Lct(is))) => {
            changes(&**was, &**is, new_classes)
        }
        (Some(LinkControl::Latency(was)), Some(LinkControl::Latency(is))) => changes(was, is, &[]),
        (Some(was), Some(is)) => {
            let (was, is) = (was.name().to_owned(), is.name().to_owned());
            value(out, &format!("{at}: control.kind"), was, is);
            Vec::new()
        }
        _ => Vec::new(),
    };
    let turned = turned.into_iter().filter(|changed| changed.key.name != "on");
    out.extend(
        turned.map(|Changed { name, was, is, .. }| {
            format!("{at}: control.{name}: {was} becomes {is}")
        }),
    );
    admission(out, &at, old.admission.as_ref(), new.admission.as_ref());
    if old.discipline.name() != new.discipline.name() {
        return;
    }
    let entries = |link: &LinkConfig, classes| plain_of(link.discipline.entries(), classes);
    differences(out, &at, &entries(old, old_classes), &entries(new, new_classes));
}

/// Notes the changes of settings; one that is not there has nothing.
fn differences(out: &mut Vec<String>, at: &str, was: &[(String, String)], is: &[(String, String)]) {
    let of = |all: &[(String, String)], key: &str| {
        let found = all.iter().find(|(known, _)| known == key);
        found.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
    };
    let gone = was.iter().filter(|(key, _)| is.iter().all(|(known, _)| known != key));
    for (key, _) in is.iter().chain(gone) {
        value(out, &format!("{at}: {key}"), of(was, key), of(is, key));
    }
}

fn admission(
    out: &mut Vec<String>,
    at: &str,
    old: Option<&AdmissionConfig>,
    new: Option<&AdmissionConfig>,
) {
    let (Some(old), Some(new)) = (old, new) else {
        let text = |admission: Option<&AdmissionConfig>| {
            if admission.is_some() { "on" } else { "none" }.to_owned()
        };
        return value(out, &format!("{at}: admission"), text(old), text(new));
    };
    for Changed { name, was, is, .. } in changes(old, new, &[]) {
        value(out, &format!("{at}: admission.{name}"), was, is);
    }
}
