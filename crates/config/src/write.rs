//! A configuration as the text of a `router.toml`.

use std::fmt::Write as _;

use evenkeel_core::settings::{Presence, Settings, Value as Held};
use evenkeel_settings::typed::{Entries, named, table_of};
use toml::{Table, Value};

use crate::control::LinkControl;
use crate::discipline::{own_settings, parse_discipline};
use crate::model::{LinkConfig, RouterConfig};
use evenkeel_core::schedule::DisciplineConfig;

impl RouterConfig {
    /// The text that [`parse`](Self::parse) reads as this. Every value is written out, defaults
    /// too, so that the file says what was measured.
    #[must_use]
    pub fn text(&self) -> String {
        let names = self.class_names();
        let mut file = Table::new();
        let mut write = |key: &str, value: Option<Value>| {
            file.extend(value.map(|value| (key.to_owned(), value)));
        };
        write("router", Some(table(&self.router, &[])));
        write("flows", Some(table(&self.flows, &[])));
        let ports: Vec<_> = self.ports.iter().filter(|port| !port.is_ingress).cloned().collect();
        write("port", Some(tables(&ports)));
        write("service", Some(tables(&self.services)).filter(|_| !self.services.is_empty()));
        write("class", Some(tables(&self.classes)));
        let links = self.own_links().map(|one| link(one, &names)).collect();
        write("link", Some(Value::Array(links)));
        let trees: Vec<_> = self.trees.iter().map(|tree| table(&tree.section, &names)).collect();
        write("tree", (!trees.is_empty()).then_some(Value::Array(trees)));
        write("fairdrop", self.fairdrop.as_ref().map(|section| table(section, &names)));
        write("cluster", self.cluster.as_ref().map(|section| table(section, &names)));
        write("balancer", self.balancer.as_ref().map(|section| table(section, &names)));
        write("membership", self.membership.as_ref().map(|section| table(section, &names)));
        file.to_string()
    }

    /// The text that [`parse`](Self::parse) reads as this, for people: only what is not the
    /// default, in the order of the reference. Keys of tunnels are in it.
    #[must_use]
    pub fn short_text(&self) -> String {
        let names = self.class_names();
        let mut file = String::new();
        let mut write = |header: &str, lines: String| {
            let gap = if file.is_empty() { "" } else { "\n" };
            let _ = write!(file, "{gap}{header}\n{lines}");
        };
        for (header, lines) in
            [("[router]", lines(&self.router, &[])), ("[flows]", lines(&self.flows, &[]))]
        {
            if !lines.is_empty() {
                write(header, lines);
            }
        }
        for port in self.ports.iter().filter(|port| !port.is_ingress) {
            write("[[port]]", lines(port, &[]));
        }
        for service in &self.services {
            write("[[service]]", lines(service, &[]));
        }
        for class in &self.classes {
            write("[[class]]", lines(class, &[]));
        }
        for link in self.own_links() {
            write("[[link]]", link_lines(link, &names));
        }
        for tree in &self.trees {
            write("[[tree]]", lines(&tree.section, &names));
        }
        let mut section = |header: &str, lines: Option<String>| {
            lines.into_iter().for_each(|lines| write(header, lines));
        };
        section("[fairdrop]", self.fairdrop.as_ref().map(|one| lines(one, &names)));
        section("[cluster]", self.cluster.as_ref().map(|one| lines(one, &names)));
        section("[balancer]", self.balancer.as_ref().map(|one| lines(one, &names)));
        section("[membership]", self.membership.as_ref().map(|one| lines(one, &names)));
        file
    }
}

/// The settings that are not as they are by default, a line each.
fn lines<S: Settings>(settings: &S, classes: &[&str]) -> String {
    differing(settings.entries(), S::default().entries(), classes)
}

fn differing(entries: Entries, usual: Entries, classes: &[&str]) -> String {
    let mut text = String::new();
    for (key, value) in entries {
        let by_default = usual.iter().find(|(known, _)| known.name == key.name);
        let same = by_default.is_some_and(|(_, one)| one.inline(classes) == value.inline(classes));
        if value == Held::Absent || same && !matches!(key.presence, Presence::Required) {
            continue;
        }
        let _ = match &named(&key.kind, &value) {
            // One table a line: rules of a class, forwarders.
            Held::List(items) if items.len() > 1 && matches!(items[0], Held::Table(_)) => {
                let items = items.iter().map(|item| format!("    {},\n", item.inline(classes)));
                writeln!(text, "{} = [\n{}]", key.name, items.collect::<String>())
            }
            value => writeln!(text, "{} = {}", key.name, value.inline(classes)),
        };
    }
    text
}

fn link_lines(link: &LinkConfig, classes: &[&str]) -> String {
    let also = match link.also.is_empty() {
        true => String::new(),
        false => format!("also = {:?}\n", link.also),
    };
    let mut text = format!("port = {:?}\n{also}{}", link.port, lines(&link.core, classes));
    let kind = link.discipline.name();
    let _ = writeln!(text, "\n[link.discipline]\nkind = {kind:?}");
    text += &discipline_lines(&link.discipline, classes);
    if let Some(control) = &link.control {
        let lines = control_lines(control, classes);
        let _ = write!(text, "\n[link.control]\nkind = {:?}\n{lines}", control.name());
    }
    if let Some(admission) = &link.admission {
        let _ = write!(text, "\n[link.admission]\n{}", lines(admission, &[]));
    }
    text
}

fn discipline_lines(discipline: &DisciplineConfig, classes: &[&str]) -> String {
    if let DisciplineConfig::Own(own) = discipline {
        return format!("name = {:?}\nsettings = {}\n", own.name, own.settings);
    }
    if let DisciplineConfig::Linux(linux) = discipline {
        return format!("command = {}\n", Value::from(linux.command.as_str()));
    }
    // Every kind but the user's own needs no more than its name.
    let usual = parse_discipline(&format!("{{ kind = {:?} }}", discipline.name()), classes);
    let usual = usual.map_or_else(|_| Vec::new(), |usual| usual.entries());
    differing(discipline.entries(), usual, classes)
}

fn control_lines(control: &LinkControl, classes: &[&str]) -> String {
    match control {
        LinkControl::Lct(control) => lines(&**control, classes),
        LinkControl::Latency(control) => lines(control, &[]),
    }
}

/// What is not as it is by default: `key = value` as in a file, one each.
#[must_use]
pub fn unusual<S: Settings>(settings: &S, classes: &[&str]) -> Vec<String> {
    one_each(&lines(settings, classes))
}

fn one_each(lines: &str) -> Vec<String> {
    lines.lines().map(str::to_owned).collect()
}

impl LinkConfig {
    /// What of its discipline is not as that kind has it by default, as [`unusual`] writes it.
    #[must_use]
    pub fn unusual_discipline(&self, classes: &[&str]) -> Vec<String> {
        one_each(&discipline_lines(&self.discipline, classes))
    }

    /// What of its control, if it has one, is not as that kind has it by default.
    #[must_use]
    pub fn unusual_control(&self, classes: &[&str]) -> Vec<String> {
        let of = |control| one_each(&control_lines(control, classes));
        self.control.as_ref().map_or_else(Vec::new, of)
    }
}

fn table<S: Settings>(settings: &S, classes: &[&str]) -> Value {
    Value::Table(table_of(settings.entries(), classes))
}

fn tables<S: Settings>(all: &[S]) -> Value {
    Value::Array(all.iter().map(|one| table(one, &[])).collect())
}

fn link(link: &LinkConfig, classes: &[&str]) -> Value {
    let mut entry = table_of(link.core.entries(), classes);
    entry.insert("port".into(), link.port.as_str().into());
    if !link.also.is_empty() {
        entry.insert("also".into(), link.also.clone().into());
    }
    let mut discipline = table_of(link.discipline.entries(), classes);
    discipline.insert("kind".into(), link.discipline.name().into());
    if let DisciplineConfig::Own(own) = &link.discipline {
        discipline.insert("name".into(), own.name.as_str().into());
        // The parser has read a table.
        discipline.extend(own_settings(own).map(|settings| ("settings".to_owned(), settings)));
    }
    if let DisciplineConfig::Linux(linux) = &link.discipline {
        discipline.insert("command".into(), linux.command.as_str().into());
    }
    entry.insert("discipline".into(), Value::Table(discipline));
    if let Some(control) = &link.control {
        let kind = control.name();
        let mut control = match control {
            LinkControl::Lct(control) => table_of(control.entries(), classes),
            LinkControl::Latency(control) => table_of(control.entries(), &[]),
        };
        control.insert("kind".into(), kind.into());
        entry.insert("control".into(), Value::Table(control));
    }
    entry.extend(link.admission.as_ref().map(|one| ("admission".to_owned(), table(one, &[]))));
    Value::Table(entry)
}
