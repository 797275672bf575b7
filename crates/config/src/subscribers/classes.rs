//! Classes by who is where in a tree: what a class names by `nodes`.

use std::collections::HashMap;

use evenkeel_core::{Class, Prefix};
use evenkeel_settings::read::{Fields, Reader, nearest};

use super::list::{Entry, SubscriberList};
use crate::model::{ClassConfig, RouterConfig};

/// Which class each named node is of.
struct Named<'a>(HashMap<&'a str, Class>);

impl<'a> Named<'a> {
    fn of(classes: &'a [ClassConfig]) -> Self {
        let of = |(class, config): (u16, &'a ClassConfig)| {
            config.nodes.iter().map(move |node| (node.as_str(), Class(class)))
        };
        Self((0..).zip(classes).flat_map(of).collect())
    }

    /// By entry of a list, the class of the nearest node that has one: itself, or above it.
    fn classes(&self, list: &SubscriberList) -> Vec<Option<Class>> {
        let entries = &list.entries;
        let by_name: HashMap<&str, usize> =
            (0..).zip(entries).map(|(at, entry)| (entry.name.as_str(), at)).collect();
        let mut known: Vec<Option<Option<Class>>> = vec![None; entries.len()];
        let mut way = Vec::new();
        for at in 0..entries.len() {
            // Up to who is named, is known, or is behind the link itself; a list has no cycles.
            let (mut here, mut class) = (Some(at), None);
            while let Some(one) = here {
                if let Some(found) = known[one] {
                    class = found;
                    break;
                }
                way.push(one);
                class = self.0.get(entries[one].name.as_str()).copied();
                if class.is_some() {
                    break;
                }
                here = by_name.get(entries[one].parent.as_str()).copied();
            }
            way.drain(..).for_each(|one| known[one] = Some(class));
        }
        known.into_iter().map(Option::flatten).collect()
    }
}

impl RouterConfig {
    /// Whether some class is chosen by nodes.
    #[must_use]
    pub fn has_classes_of_nodes(&self) -> bool {
        self.classes.iter().any(|class| !class.nodes.is_empty())
    }

    /// The prefixes of all who are behind a node that a class names, each with that class.
    #[must_use]
    pub fn classes_of_nodes(&self) -> Vec<(Prefix, Class)> {
        let named = Named::of(&self.classes);
        let mut all = Vec::new();
        for tree in self.trees.iter().filter(|_| !named.0.is_empty()) {
            for (entry, class) in tree.list.entries.iter().zip(named.classes(&tree.list)) {
                let Some(class) = class else { continue };
                all.extend(entry.prefixes.iter().map(|prefix| (*prefix, class)));
            }
        }
        all
    }
}

/// Whether the nodes of classes are there, and can be told by prefixes.
pub(super) fn check(reader: &mut Reader, file: &Fields, config: &RouterConfig) {
    if config.trees.len() < file.tables("tree").count() {
        return; // of a list that is wrong, which is told
    }
    let entries = || config.trees.iter().flat_map(|tree| &tree.list.entries);
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (fields, class) in file.tables("class").zip(&config.classes) {
        for node in &class.nodes {
            if let Some(other) = seen.insert(node, &class.name) {
                let message = format!("{node:?} is of class {other:?} already");
                reader.fail_at(fields, "nodes", message);
            } else if entries().all(|entry| entry.name != *node) {
                let near = nearest(node, entries().map(|entry| entry.name.as_str()));
                let message = match near {
                    Some(near) => format!("nobody is called {node:?}; did you mean {near:?}?"),
                    None => format!("nobody is called {node:?} in the lists of [[tree]]"),
                };
                reader.fail_at(fields, "nodes", message);
            }
        }
    }
    let Some(fields) = file.tables("class").find(|fields| fields.given("nodes")) else { return };
    let named = Named::of(&config.classes);
    let unseen = |(entry, class): &(&Entry, Option<Class>)| {
        class.is_some() && entry.prefixes.is_empty() && !entry.l2.is_empty()
    };
    for tree in &config.trees {
        let classes = named.classes(&tree.list);
        if let Some((entry, _)) = tree.list.entries.iter().zip(classes).find(unseen) {
            let message = format!(
                "{:?} has no prefix: classes know nobody by stations, VLANs or sessions; give it \
                 `prefixes` in the list, too",
                entry.name
            );
            reader.fail_at(fields, "nodes", message);
        }
    }
}
