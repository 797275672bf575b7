//! A list in the places of the core's trees.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_core::drop::Groups;
use evenkeel_core::schedule::DisciplineConfig;
use evenkeel_core::schedule::tree::{
    CAP_RANGE, Kind as NodeKind, LINK, MOST_NODES, Plan, PlanNode, UNKNOWN, Within,
};
use evenkeel_core::settings::{Kind, PerClass};
use evenkeel_core::{BitRate, Weight, settings, words};
use evenkeel_settings::read::{Fields, Reader, suggest};
use evenkeel_settings::{Diagnostics, settings_of};

use super::list::{GivenList, Rates, Role, SubscriberList, UNKNOWN_NAME};
use super::seen::tell_unseen;
use super::{Faults, csv, json, libreqos, text_of};
use crate::attach::Attach;
use crate::discipline::parse_discipline;
use crate::model::{LinkConfig, PortConfig, RouterConfig};
use crate::tables::NAME;

words! {
    /// How a list is written.
    pub enum ListFormat {
        /// CSV with the columns of docs/subscribers.md; JSON if the name of the file ends so.
        #[default]
        Plain = "plain",
        /// `ShapedDevices.csv`, and `network.json` as `nodes`.
        Libreqos = "libreqos",
    }
}

words! {
    /// Who shares what a subscriber has.
    pub enum Shares {
        /// Its flows.
        #[default]
        Flow = "flow",
        /// Its hosts, and within each its flows.
        Host = "host",
        /// Classes by `weight`, and within each the flows.
        Class = "class",
    }
}

/// A cap of a node.
const CAP: Kind = Kind::Rate { min: BitRate(*CAP_RANGE.start()), max: BitRate(*CAP_RANGE.end()) };

settings! {
    /// The subscribers behind a link: who has which plan, and which nodes (sites, access points)
    /// are between. The links that it names have the discipline `tree`. See docs/subscribers.md.
    pub struct TreeSection: "[[tree]]" {
        /// Its name in commands. Unique.
        reload name: String = "subscribers".to_owned(), written NAME;
        /// The list of subscribers, beside this file if no path says otherwise.
        reload subscribers: String = String::new(), is required;
        /// The list of nodes.
        reload nodes: Option<String> = None, absent "they stand among the subscribers";
        /// How the lists are written.
        reload format: ListFormat = ListFormat::Plain;
        /// The port towards the subscribers: its link shares what they receive.
        reload down: Option<String> = None, written NAME, absent "what they receive is not shared";
        /// The port away from them: its link shares what they send.
        reload up: Option<String> = None, written NAME, absent "what they send is not shared";
        /// Who shares what a subscriber has.
        reload fair: Shares = Shares::Flow;
        /// The weight of each class, in percent of the usual share.
        reload weight: PerClass<Weight> = PerClass::all(Weight(100)), with fair ["class"];
        /// Most that all whom no line names receive together.
        reload unknown_down: Option<BitRate> = None, written CAP, absent "no cap of their own";
        /// Most that all whom no line names send together.
        reload unknown_up: Option<BitRate> = None, written CAP, absent "no cap of their own";
    }
}

/// A tree with its list.
#[derive(Clone, Debug)]
pub struct SubscriberTree {
    /// What the file says.
    pub section: TreeSection,
    /// Who there is.
    pub list: Arc<SubscriberList>,
    /// By entry, its place in the trees.
    places: Arc<Vec<u32>>,
    by_name: Arc<HashMap<String, u32>>,
    /// By place, its entry.
    by_place: Arc<Vec<u32>>,
    /// Towards the subscribers, and from them.
    plans: [Arc<Plan>; 2],
}

impl PartialEq for SubscriberTree {
    fn eq(&self, other: &Self) -> bool {
        // Places and plans follow.
        self.section == other.section
            && (Arc::ptr_eq(&self.list, &other.list) || self.list == other.list)
    }
}

/// The name of a place, for people.
#[must_use]
pub fn name_of(tree: &SubscriberTree, place: u32) -> &str {
    match place {
        LINK => "the link",
        UNKNOWN => UNKNOWN_NAME,
        place => tree.entry_at(place).map_or("", |at| tree.list.entries[at].name.as_str()),
    }
}

impl SubscriberTree {
    /// Reads the lists that a section names, if its list is none of `lists`; `folder` is where
    /// relative paths begin.
    fn load(
        section: TreeSection,
        folder: &Path,
        ports: &[PortConfig],
        lists: &[GivenList],
    ) -> Result<Self, Diagnostics> {
        let list = match lists.iter().find(|given| given.name == section.subscribers) {
            Some(given) => Arc::clone(&given.list),
            None => Arc::new(load_list(&section, folder, ports)?),
        };
        Ok(Self::of(section, list, None))
    }

    /// The tree of a list that was checked. Who is in `former` too keeps the place.
    #[must_use]
    pub fn of(section: TreeSection, list: Arc<SubscriberList>, former: Option<&Self>) -> Self {
        let (places, by_name) = places(&list, former);
        let mut plans = [Plan::default(), Plan::default()];
        let unknown = [section.unknown_down, section.unknown_up];
        for (direction, plan) in plans.iter_mut().enumerate() {
            let node =
                PlanNode { kind: NodeKind::Leaf, cap: unknown[direction], ..PlanNode::default() };
            // The place is not the link's.
            let _ = plan.put(UNKNOWN, node);
            for (entry, place) in list.entries.iter().zip(&places) {
                let Rates { cap, guarantee } = if direction == 0 { entry.down } else { entry.up };
                let kind = match entry.role {
                    Role::Node => NodeKind::Inner,
                    Role::Subscriber => NodeKind::Leaf,
                };
                let parent = by_name.get(&entry.parent).copied().unwrap_or(LINK);
                let node = PlanNode { kind, parent, cap, guarantee, weight: entry.weight };
                let _ = plan.put(*place, node);
            }
        }
        let plans = plans.map(Arc::new);
        let mut by_place = vec![u32::MAX; plans[0].nodes().len()];
        for (entry, place) in (0..).zip(&places) {
            by_place[*place as usize] = entry;
        }
        let by_place = Arc::new(by_place);
        Self {
            by_place,
            section,
            list,
            places: Arc::new(places),
            by_name: Arc::new(by_name),
            plans,
        }
    }

    /// The same list where everybody has the place of `former`.
    #[must_use]
    pub fn in_places_of(&self, former: &Self) -> Self {
        Self::of(self.section.clone(), Arc::clone(&self.list), Some(former))
    }

    /// The place of a subscriber or node.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<u32> {
        if name == UNKNOWN_NAME {
            return Some(UNKNOWN);
        }
        self.by_name.get(name).copied()
    }

    /// The entry at a place.
    fn entry_at(&self, place: u32) -> Option<usize> {
        self.by_place.get(place as usize).filter(|at| **at != u32::MAX).map(|at| *at as usize)
    }

    /// Whether it shares something, and does not only say who there is.
    #[must_use]
    pub fn is_on_a_link(&self) -> bool {
        self.section.down.is_some() || self.section.up.is_some()
    }

    /// Who shares what a subscriber has on the link where `receive` is who they are, or not.
    fn within(&self, receive: bool) -> Within {
        match self.section.fair {
            Shares::Flow => Within::Flows,
            Shares::Host => Within::Hosts { send: !receive },
            Shares::Class => Within::Classes(self.section.weight.clone()),
        }
    }

    /// What the packets of a place are found by, in words.
    #[must_use]
    pub fn found_by(&self, place: u32) -> Vec<String> {
        self.entry_at(place).map_or_else(Vec::new, |at| self.list.entries[at].found_by())
    }

    /// A place, and those of the nodes above it, the link at last.
    #[must_use]
    pub fn way_up(&self, place: u32) -> Vec<u32> {
        let nodes = self.plans[0].nodes();
        let mut way = vec![place];
        let mut at = place;
        while at != LINK && way.len() < nodes.len() {
            at = nodes[at as usize].parent;
            way.push(at);
        }
        way
    }

    /// The places of the entries, in their order.
    #[must_use]
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// The tree of a link: the one towards the subscribers, or the one from them. `None`: it is of
    /// neither.
    #[must_use]
    pub fn plan_of(&self, port: &str) -> Option<(&Arc<Plan>, bool)> {
        if self.section.down.as_deref() == Some(port) {
            return Some((&self.plans[0], true));
        }
        (self.section.up.as_deref() == Some(port)).then_some((&self.plans[1], false))
    }
}

/// Places for the entries of a list.
fn places(
    list: &SubscriberList,
    former: Option<&SubscriberTree>,
) -> (Vec<u32>, HashMap<String, u32>) {
    let known = |name: &str| former.and_then(|former| former.by_name.get(name)).copied();
    // Places that were nobody's before: what has just gone is given away next time.
    let mut free = Vec::new();
    let mut end = UNKNOWN + 1;
    if let Some(former) = former {
        let nodes = former.plans[0].nodes();
        end = nodes.len() as u32;
        let is_free = |at: &u32| nodes[*at as usize].kind == NodeKind::Free;
        free.extend((UNKNOWN + 1..end).filter(is_free));
    }
    let mut by_name = HashMap::with_capacity(list.entries.len());
    let mut places = Vec::with_capacity(list.entries.len());
    for entry in &list.entries {
        let place = known(&entry.name).or_else(|| free.pop()).unwrap_or_else(|| {
            end += 1;
            end - 1
        });
        by_name.insert(entry.name.clone(), place);
        places.push(place);
    }
    (places, by_name)
}

/// Where a list lies.
fn path_of(name: &str, folder: &Path) -> PathBuf {
    folder.join(name)
}

fn load_list(
    section: &TreeSection,
    folder: &Path,
    ports: &[PortConfig],
) -> Result<SubscriberList, Diagnostics> {
    let mut list = SubscriberList::default();
    let file = path_of(&section.subscribers, folder);
    if let Some(nodes) = &section.nodes {
        let nodes = path_of(nodes, folder);
        let text = text_of(&nodes)?;
        let mut faults = Faults::new(&nodes);
        match (section.format, is_json(&nodes)) {
            (ListFormat::Libreqos, _) => libreqos::read_network(&text, &mut list, &mut faults),
            (_, true) => json::read(&text, Some(Role::Node), &mut list, &mut faults),
            (_, false) => csv::read(&text, Some(Role::Node), &mut list, &mut faults),
        }
        if !faults.is_empty() {
            return Err(faults.into_diagnostics());
        }
    }
    let text = text_of(&file)?;
    let mut faults = Faults::new(&file);
    match (section.format, is_json(&file)) {
        (ListFormat::Libreqos, _) => libreqos::read_devices(&text, &mut list, &mut faults),
        (_, true) => json::read(&text, None, &mut list, &mut faults),
        (_, false) => csv::read(&text, None, &mut list, &mut faults),
    }
    if list.entries.len() + 2 > MOST_NODES as usize {
        let message = format!("{} lines: at most {MOST_NODES} are possible", list.entries.len());
        faults.tell(0, "", message);
    }
    list.check(&mut faults);
    tell_unseen(&list, section, ports, &mut faults);
    if list.subscribers() == 0 && faults.is_empty() {
        let nobody = "no line has addresses, stations, VLANs or sessions: there is no subscriber";
        faults.tell(0, "", nobody);
    }
    if faults.is_empty() { Ok(list) } else { Err(faults.into_diagnostics()) }
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"))
}

/// The trees of a file, with their lists.
pub(crate) fn trees_of(
    reader: &mut Reader,
    file: &Fields,
    ports: &[PortConfig],
    lists: &[GivenList],
    classes: &[&str],
) -> Vec<SubscriberTree> {
    let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let mut names = crate::parse::Unique::new("tree");
    let mut taken: Vec<String> = Vec::new();
    let mut trees = Vec::new();
    for fields in file.tables("tree") {
        names.check(reader, fields, "name");
        let Some(section) = settings_of::<TreeSection>(reader, fields, classes) else { continue };
        for (key, port) in [("down", &section.down), ("up", &section.up)] {
            let Some(port) = port else { continue };
            if !known.contains(&port.as_str()) {
                let message = format!("no port {port:?}; {}", suggest(port, &known));
                reader.fail_at(fields, key, message);
            } else if taken.contains(port) {
                reader.fail_at(fields, key, format!("the link of {port:?} has a tree already"));
            }
            taken.push(port.clone());
        }
        let folder = reader.folder();
        match SubscriberTree::load(section, &folder, ports, lists) {
            Ok(tree) => trees.push(tree),
            Err(errors) => reader.adopt(errors),
        }
    }
    trees
}

/// The discipline of a link that a tree names, if the file says nothing of it.
const USUAL: &str = "{ kind = \"tree\", aqm = \"cobalt\" }";

/// Gives the links their trees.
pub(crate) fn plant(
    reader: &mut Reader,
    file: &Fields,
    links: &mut [LinkConfig],
    trees: &[SubscriberTree],
) {
    for link in links {
        let stated = file.tables("link").find(|fields| {
            fields.text("port") == Some(link.port.as_str()) && fields.given("discipline")
        });
        let plan = trees.iter().find_map(|tree| {
            tree.plan_of(&link.port).map(|(plan, receive)| (plan, tree.within(receive)))
        });
        match (plan, &mut link.discipline, stated) {
            (Some((plan, within)), DisciplineConfig::Tree(config), _) => {
                (config.plan, config.within) = (Arc::clone(plan), within);
            }
            (Some((plan, within)), discipline, None) => {
                if let Ok(DisciplineConfig::Tree(mut config)) = parse_discipline(USUAL, &[]) {
                    (config.plan, config.within) = (Arc::clone(plan), within);
                    *discipline = DisciplineConfig::Tree(config);
                }
            }
            (Some(_), other, Some(fields)) => {
                let message = format!(
                    "a [[tree]] is on this link, which needs the discipline \"tree\", not {:?}: \
                     leave `discipline` out",
                    other.name()
                );
                reader.fail_at(fields, "discipline", message);
            }
            (None, DisciplineConfig::Tree(_), Some(fields)) => {
                let message = "no [[tree]] names this link as its `down` or `up`";
                reader.fail_at(fields, "discipline", message);
            }
            (None, ..) => {}
        }
    }
}

/// What a tree cannot be together with, and what needs one.
pub(crate) fn check(reader: &mut Reader, file: &Fields, config: &RouterConfig) {
    let by_subscriber =
        config.fairdrop.as_ref().is_some_and(|fairdrop| fairdrop.groups == Groups::Subscriber);
    if by_subscriber
        && !config.trees.iter().any(SubscriberTree::is_on_a_link)
        && let Some(fairdrop) = file.table("fairdrop")
    {
        let message = "\"subscriber\" needs a [[tree]] on a link, which says who there is";
        reader.fail_at(fairdrop, "groups", message);
    }
    super::classes::check(reader, file, config);
    for fields in file.tables("link") {
        let Some(link) = fields.text("port").and_then(|port| config.link(port)) else { continue };
        if !matches!(link.discipline, DisciplineConfig::Tree(_)) {
            continue;
        }
        if link.core.shaper.is_some() {
            let message = "not on a link with a [[tree]]: give the link that `rate`";
            reader.fail_at(fields, "shaper", message);
        }
    }
    for fields in file.tables("tree") {
        if !fields.given("down") && !fields.given("up") {
            // A list may also be there for classes alone.
            if !config.has_classes_of_nodes() {
                let message = "it is on no link: name the port towards the subscribers, `down`, \
                               the one away from them, `up`, or both; or name `nodes` of it in \
                               a [[class]]";
                reader.fail_at(fields, "down", message);
            }
            continue;
        }
        for (key, joined) in
            [("cluster", config.cluster.is_some()), ("balancer", config.balancer.is_some())]
        {
            if joined {
                let message = format!(
                    "not together with [{key}]: its links are shared by the cluster; \
                             leave out `down` and `up`, and name `nodes` in a [[class]]"
                );
                reader.fail_at(fields, "name", message);
            }
        }
        let shares_bits = config.fairdrop.as_ref().is_some_and(|fairdrop| fairdrop.bandwidth);
        if shares_bits {
            let message = "not together with [fairdrop], which would share the link between flows \
                           before the tree shares it between subscribers: set `bandwidth = false` \
                           there";
            reader.fail_at(fields, "name", message);
        }
        let attach = |key: &str| {
            let port = fields.text(key)?;
            config.ports.iter().find(|own| own.name == port).map(PortConfig::attach)
        };
        // On an inline port, the link that is named after it sends by the interface.
        if attach("down") == Some(Attach::InlineWire) && attach("up") == Some(Attach::InlineWire) {
            let message = "two ports that are inline: `down` and `up` are two links of one port, \
                           `PORT-ingress` and `PORT`";
            reader.fail_at(fields, "up", message);
        }
    }
}

impl RouterConfig {
    /// Everybody who is in a tree of a running configuration too keeps the place there, and so
    /// queues, meters and tokens.
    pub fn keep_places(&mut self, running: &Self) {
        for tree in &mut self.trees {
            let former = running.trees.iter().find(|own| own.section.name == tree.section.name);
            let Some(former) = former else { continue };
            *tree = if Arc::ptr_eq(&tree.list, &former.list) && tree.section == former.section {
                former.clone()
            } else {
                tree.in_places_of(former)
            };
        }
        self.plant();
    }

    /// Gives the links the trees that there are.
    pub(super) fn plant(&mut self) {
        for link in &mut self.links {
            let plan = self.trees.iter().find_map(|tree| tree.plan_of(&link.port));
            if let (Some((plan, _)), DisciplineConfig::Tree(config)) = (plan, &mut link.discipline)
                && !Arc::ptr_eq(&config.plan, plan)
            {
                // An equal one stays, so that it is found to be the same at once.
                if *config.plan != **plan {
                    config.plan = Arc::clone(plan);
                }
            }
        }
    }
}
