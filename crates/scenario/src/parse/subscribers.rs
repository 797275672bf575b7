//! People behind hosts: their names, plans and addresses, as lists that trees can name.

use std::collections::HashSet;
use std::sync::Arc;

use evenkeel_config::subscribers::{Entry, GivenList, Rates, Role, SubscriberList};
use evenkeel_core::schedule::tree::{MOST_LEVELS, WEIGHT_UNIT};
use evenkeel_core::{BitRate, Prefix};
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::read_settings;

use crate::model::Scenario;
use crate::subscribers::{MOST_GROUPS, Party, Subscribers};
use crate::tables::TrafficSection;
use crate::tables::subscribers::{PlanSection, SubscribersSection};

/// The name of whom no line names.
pub(super) const UNKNOWN: &str = "unknown";

/// Reads them into the scenario, and returns the lists that they make.
pub(super) fn read(reader: &mut Reader, file: &Fields, scenario: &mut Scenario) -> Vec<GivenList> {
    let mut lists: Vec<(String, SubscriberList)> = Vec::new();
    let mut names = HashSet::from([UNKNOWN.to_owned()]);
    for fields in file.tables("subscribers") {
        let (section, _sound) = read_settings::<SubscribersSection>(reader, fields, &[]);
        let Some(group) = group(reader, fields, &section, scenario) else { continue };
        let own = std::iter::once(group.name.clone());
        let members = (0..group.count).map(|member| group.name_of(member));
        if let Some(twice) = own.chain(members).find(|name| !names.insert(name.clone())) {
            let message = format!("there is a subscriber or node {twice:?} already");
            reader.fail_at(fields, "name", message);
        }
        let at = lists.iter().position(|(name, _)| *name == section.list).unwrap_or_else(|| {
            lists.push((section.list.clone(), SubscriberList::default()));
            lists.len() - 1
        });
        let list = &mut lists[at].1;
        if let Some(message) = wrong_parent(list, &section) {
            reader.fail_at(fields, "parent", message);
        }
        list.entries.push(node(&section));
        list.entries.extend(people(&group, &section.plans));
        scenario.subscribers.push(group);
    }
    // Of a list with mistakes it is not known who would be in it.
    let sound = reader.is_clean_in(&["subscribers"]);
    for (name, list) in lists.iter().filter(|_| sound) {
        if list.subscribers() == 0 {
            let fields = file.tables("subscribers").next();
            let message = format!("nobody is in list {name:?}: give one of its nodes a `count`");
            fields.into_iter().for_each(|fields| reader.fail_at(fields, "count", message.clone()));
        }
    }
    let given = |(name, list): (String, SubscriberList)| GivenList { name, list: Arc::new(list) };
    lists.into_iter().map(given).collect()
}

/// Who is behind which host.
fn group(
    reader: &mut Reader,
    fields: &Fields,
    section: &SubscribersSection,
    scenario: &Scenario,
) -> Option<Subscribers> {
    let SubscribersSection { name, list, host, count, .. } = section.clone();
    if host.is_some() != (count > 0) {
        let (key, message) = match host {
            Some(_) => ("count", "how many are behind the host?"),
            None => ("host", "which host stands for them? It must be named with a `count`"),
        };
        reader.fail_at(fields, key, message);
        return None;
    }
    let hosts: Vec<&str> = scenario.hosts.iter().map(|host| host.name.as_str()).collect();
    if let Some(host) = host.as_deref().filter(|host| !hosts.contains(host)) {
        reader.fail_at(fields, "host", format!("no host {host:?}; {}", suggest(host, &hosts)));
        return None;
    }
    let number = scenario.subscribers.iter().filter(|group| group.host.is_some()).count() as u16;
    if host.is_some() && number == MOST_GROUPS {
        reader.fail_at(fields, "host", format!("at most {MOST_GROUPS} hosts stand for people"));
        return None;
    }
    let host = host.map(|host| (host, number));
    (!name.is_empty()).then_some(Subscribers { name, list, host, count })
}

/// Why a node cannot be behind the one that it names.
fn wrong_parent(list: &SubscriberList, section: &SubscribersSection) -> Option<String> {
    let nodes = || list.entries.iter().filter(|entry| entry.role == Role::Node);
    let mut above = section.parent.as_deref();
    let mut levels = 0;
    while let Some(name) = above.filter(|name| !name.is_empty()) {
        let Some(parent) = nodes().find(|node| node.name == name) else {
            let known: Vec<&str> = nodes().map(|node| node.name.as_str()).collect();
            let hint = suggest(name, &known);
            return Some(format!("no node {name:?} before this one; {hint}"));
        };
        above = Some(&parent.parent);
        levels += 1;
    }
    // They hang on the link, their people one deeper.
    (levels + 2 > MOST_LEVELS)
        .then(|| format!("{levels} nodes from the link: at most {}", MOST_LEVELS - 2))
}

fn node(section: &SubscribersSection) -> Entry {
    Entry {
        name: section.name.clone(),
        parent: section.parent.clone().unwrap_or_default(),
        role: Role::Node,
        down: rates(section.down, section.min_down),
        up: rates(section.up, section.min_up),
        weight: thousandths(section.weight),
        prefixes: Vec::new(),
        l2: Vec::new(),
        line: 0,
    }
}

/// Those behind a node, each with the plan that is furthest behind its part.
fn people(group: &Subscribers, plans: &[PlanSection]) -> Vec<Entry> {
    let none = [PlanSection::default()];
    let plans = if plans.is_empty() { &none[..] } else { plans };
    let all: f64 = plans.iter().map(|plan| plan.part).sum();
    let mut given = vec![0_u32; plans.len()];
    let mut people = Vec::with_capacity(group.count as usize);
    for member in 0..group.count {
        let due = |at: usize| plans[at].part / all * f64::from(member + 1) - f64::from(given[at]);
        let at = (0..plans.len()).max_by(|a, b| due(*a).total_cmp(&due(*b))).unwrap_or(0);
        given[at] += 1;
        let plan = &plans[at];
        people.push(Entry {
            name: group.name_of(member),
            parent: group.name.clone(),
            role: Role::Subscriber,
            down: rates(plan.down, plan.min_down),
            up: rates(plan.up, plan.min_up),
            weight: thousandths(plan.weight),
            prefixes: group.addresses_of(member).into_iter().flatten().map(Prefix::host).collect(),
            l2: Vec::new(),
            line: 0,
        });
    }
    people
}

fn rates(cap: Option<BitRate>, guarantee: Option<BitRate>) -> Rates {
    Rates { cap, guarantee: guarantee.unwrap_or_default() }
}

fn thousandths(weight: Option<f64>) -> u32 {
    weight.map_or(0, |weight| (weight * f64::from(WEIGHT_UNIT)).round() as u32)
}

/// Who of a `[[traffic]]` between two hosts takes part; says what is wrong if nobody can.
pub(super) fn party(
    reader: &mut Reader,
    fields: &Fields,
    section: &TrafficSection,
    number: u16,
    scenario: &Scenario,
) -> Option<Party> {
    let named = section.subscribers.as_deref()?;
    let one = |group: &Subscribers| {
        let member = named.strip_prefix(group.name.as_str())?.strip_prefix('-')?;
        let member: u32 = member.parse().ok()?;
        (1..=group.count).contains(&member).then_some(member - 1)
    };
    let whole = scenario.subscribers.iter().find(|group| group.name == named);
    let found = whole
        .map(|group| (group, None))
        .or_else(|| scenario.subscribers.iter().find_map(|group| Some((group, Some(one(group)?)))));
    let Some((group, member)) = found else {
        // Those with mistakes are missing.
        if !reader.is_clean_in(&["subscribers"]) {
            return None;
        }
        let known: Vec<&str> = scenario.subscribers.iter().map(|g| g.name.as_str()).collect();
        let hint = suggest(named, &known);
        let message = format!("no [[subscribers]] {named:?}, nor one of them; {hint}");
        reader.fail_at(fields, "subscribers", message);
        return None;
    };
    let Some((host, place)) = &group.host else {
        let message = format!("{named:?} has nobody of its own: others are behind it");
        reader.fail_at(fields, "subscribers", message);
        return None;
    };
    let sends = fields.text("from") == Some(host);
    if !sends && fields.text("to") != Some(host) {
        let message = format!("{named:?} is behind {host:?}, which neither sends nor receives");
        reader.fail_at(fields, "subscribers", message);
        return None;
    }
    let party = match member {
        Some(member) => Party::only(*place, member),
        None => Party::new(*place, group.count, section.part, number),
    };
    Some(party.at(named, sends, section.ipv6))
}
