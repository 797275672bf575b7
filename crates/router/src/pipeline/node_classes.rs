//! Classes of who is at which node of a tree, by prefixes: two look-ups for a packet that no rule
//! takes.

use std::sync::Arc;

use evenkeel_config::RouterConfig;
use evenkeel_core::{Class, FlowKey};
use evenkeel_net::prefix_map::PrefixMap;

/// See the [module](self).
#[derive(Clone)]
pub(super) struct NodeClasses(Arc<PrefixMap<Class>>);

impl NodeClasses {
    /// `None`: no class names a node.
    pub(super) fn of(config: &RouterConfig) -> Option<Self> {
        let all = config.classes_of_nodes();
        let mut classes = PrefixMap::default();
        for (prefix, class) in &all {
            classes.insert(*prefix, *class);
        }
        (!all.is_empty()).then(|| Self(Arc::new(classes)))
    }

    /// The class of who receives, else of who sends; the first one if neither is there.
    #[inline(never)] // so that who has no such classes does not pay for it
    pub(super) fn class(&self, flow: &FlowKey) -> Class {
        let at = |address| self.0.longest(address).copied();
        at(flow.destination).or_else(|| at(flow.source)).unwrap_or(Class(0))
    }
}
