//! A configuration as the text of a `router.toml`.

use evenkeel_core::settings::Settings;
use evenkeel_settings::typed::table_of;
use toml::{Table, Value};

use crate::discipline::own_settings;
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
        write("link", Some(Value::Array(self.links.iter().map(|one| link(one, &names)).collect())));
        write("fairdrop", self.fairdrop.as_ref().map(|section| table(section, &names)));
        write("cluster", self.cluster.as_ref().map(|section| table(section, &names)));
        write("balancer", self.balancer.as_ref().map(|section| table(section, &names)));
        write("membership", self.membership.as_ref().map(|section| table(section, &names)));
        file.to_string()
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
    let mut discipline = table_of(link.discipline.entries(), classes);
    discipline.insert("kind".into(), link.discipline.name().into());
    if let DisciplineConfig::Own(own) = &link.discipline {
        discipline.insert("name".into(), own.name.as_str().into());
        // The parser has read a table.
        discipline.extend(own_settings(own).map(|settings| ("settings".to_owned(), settings)));
    }
    entry.insert("discipline".into(), Value::Table(discipline));
    if let Some(control) = &link.control {
        let mut control = table_of(control.entries(), classes);
        control.insert("kind".into(), "lct".into());
        entry.insert("control".into(), Value::Table(control));
    }
    entry.extend(link.admission.as_ref().map(|one| ("admission".to_owned(), table(one, &[]))));
    Value::Table(entry)
}
