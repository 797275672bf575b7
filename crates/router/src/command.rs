//! What can be asked of a running router. The worker executes commands between two bursts.

use evenkeel_config::{Change, RouterConfig};
use evenkeel_core::FlowKey;
use serde::{Deserialize, Serialize};

use crate::snapshot::{BusyFlow, FlowSnapshot, NodeSnapshot, Snapshot};
use crate::watch::{Sightings, Watch};

/// A request to the worker. Links are named by their port.
#[derive(Clone, Debug)]
pub enum Command {
    /// Every counter, at one instant.
    Show,
    /// Changes something while it runs; what is refused has changed nothing.
    Change(Change),
    /// What happened to a flow's packets.
    Explain {
        /// The port of the link; `None`: every link with admission.
        link: Option<String>,
        /// The flow.
        flow: FlowKey,
    },
    /// The protected flows, busiest first.
    Flows {
        /// The port of the link; `None`: every link with admission.
        link: Option<String>,
        /// How many at most.
        top: usize,
    },
    /// What is known of nodes and subscribers of trees.
    Nodes(NodeQuery),
    /// The flows that send most by each link, from a sample: see [`BusyFlow`].
    Busiest {
        /// How many at most.
        top: usize,
    },
    /// Tells what happens to packets, stage by stage, to who asks for [`Command::Sightings`].
    Watch(Watch),
    /// What was seen of the packets that are watched.
    Sightings {
        /// That of the [`Watch`].
        id: u64,
    },
    /// Watches no more.
    Unwatch,
    /// Makes the running router as the file says. What cannot change while it runs is refused:
    /// [`CommandError::NeedsRestart`](crate::CommandError::NeedsRestart).
    Reload(Box<RouterConfig>),
}

/// The answer to a [`Command`] that was carried out.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// The counters.
    Snapshot(Box<Snapshot>),
    /// Sentences, one a line.
    Text(String),
    /// Flows.
    Flows(Vec<FlowSnapshot>),
    /// Nodes of trees.
    Nodes(Vec<NodeSnapshot>),
    /// The busiest flows.
    Busiest(Vec<BusyFlow>),
    /// What was seen.
    Sightings(Sightings),
}

/// Which nodes of trees are asked for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeQuery {
    /// The one of this name, with those above it, the link at last.
    Name(String),
    /// Those that others are behind, `unknown`, and the links.
    Inner,
    /// So many of the list as are told at once, from this number of the list on.
    From(usize),
}

impl NodeQuery {
    /// All of the list, page by page.
    ///
    /// # Errors
    /// What `ask` says.
    pub fn everybody<E>(
        mut ask: impl FnMut(Self) -> Result<Vec<NodeSnapshot>, E>,
    ) -> Result<Vec<NodeSnapshot>, E> {
        let mut nodes = Vec::new();
        let mut at = 0;
        loop {
            let page = ask(Self::From(at))?;
            let Some(link) = page.first().map(|node| node.link.clone()) else { return Ok(nodes) };
            at += page.iter().filter(|node| node.link == link).count();
            nodes.extend(page);
        }
    }
}
