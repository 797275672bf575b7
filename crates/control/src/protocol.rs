//! Requests and replies as they stand on the socket.
//!
//! A request is one line of JSON:
//! `{"cmd":"set","link":"wan","knob":"x_delay","class":"bulk","value":"200us"}`. The reply is one
//! line: `{"ok":…}` (a snapshot for `show`), `{"changes":{…}}` for what changes the router and
//! for `diff`, `{"running":{…}}` for `running`, `{"text":"…"}` for `explain`, `{"flows":[…]}` for
//! `flows`, `{"busiest":[…]}` for `busiest`, `{"sightings":{…}}` for `sightings`,
//! `{"journal":[…]}` for `journal`, `{"version":…}` for `version`, or `{"error":"…"}`. A
//! connection carries any number of
//! requests, answered in order; a line is at most [`MAX_LINE`] bytes long.

use std::fmt;

use evenkeel_config::subscribers::SubscriberChange;
use evenkeel_router::snapshot::{BusyFlow, FlowSnapshot, NodeSnapshot};
use evenkeel_router::watch::Sightings;
use evenkeel_router::{NodeQuery, Snapshot};
use serde::{Deserialize, Serialize};

/// Longest line, bytes: room for a whole `router.toml`.
pub const MAX_LINE: u64 = 1 << 20;

/// The version of this protocol: another one where requests or answers mean something else than
/// before. Requests and fields that were added do not count.
pub const PROTOCOL: u32 = 1;

/// What a router and its clients must agree in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Version {
    /// The router's program.
    pub program: String,
    /// See [`PROTOCOL`].
    pub protocol: u32,
}

impl Version {
    /// That of this program.
    #[must_use]
    pub fn own() -> Self {
        Self { program: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "control protocol {} (evenkeel {})", self.protocol, self.program)
    }
}

/// A request. Values are texts with units, as in configuration files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Which version the router is of.
    Version,
    /// Every counter: replies with a snapshot.
    Show,
    /// What the router has said: replies with the lines of its log after this number.
    Journal {
        /// The number of the last line that is known; 0: from the first that is kept.
        after: u64,
    },
    /// Changes a knob of a link.
    Set {
        /// The link, named by its port.
        link: String,
        /// One of [`live_names`](evenkeel_config::live_names), or `admission.KEY`.
        knob: String,
        /// The class, for knobs of a class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// The value: `200us`, `1000`, `true`, `hold`.
        value: String,
    },
    /// Changes the rate of a link.
    Rate {
        /// The link.
        link: String,
        /// `100Mbit/s`, or `unpaced`.
        value: String,
    },
    /// Changes the transmit ring of a link.
    Ring {
        /// The link.
        link: String,
        /// Slots.
        slots: u32,
        /// `any` or `whole`.
        refill: String,
    },
    /// Puts another discipline in place; what is queued is kept.
    Discipline {
        /// The link.
        link: String,
        /// The table of a discipline as in router.toml, inline: `{ kind = "lct", limit = 50 }`, or
        /// only its kind.
        value: String,
    },
    /// Changes a key of `[fairdrop]`.
    Fairdrop {
        /// The key: `on`, `weight`, `rule`.
        key: String,
        /// The value as in router.toml, without quotes: `true`, `{ kind = "kappa" }`.
        value: String,
    },
    /// What happened to a flow: replies with sentences.
    Explain {
        /// The flow, `10.0.0.1:5000->10.0.1.1:80/udp`.
        flow: String,
        /// The link; every link with admission if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<String>,
    },
    /// The protected flows, busiest first.
    Flows {
        /// How many at most.
        top: usize,
        /// The link; every link with admission if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<String>,
    },
    /// The flows that send most by each link, from a sample, busiest first.
    Busiest {
        /// How many at most.
        top: usize,
    },
    /// Has packets told, stage by stage, at the next [`Request::Sightings`]; who watched before
    /// does not any more. Ends by itself when nobody asks for 5 s.
    Watch {
        /// A number of the client's choice.
        id: u64,
        /// Only these packets, in either direction: tables as in `match` of a class, separated by
        /// commas; empty: all.
        filter: String,
        /// Only those that come by this port, or are given to its link.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<String>,
        /// Only what is dropped.
        #[serde(default)]
        drops: bool,
        /// Only the end of each packet, with so many bytes of its frame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snap: Option<u32>,
    },
    /// What was seen of the packets that are watched.
    Sightings {
        /// That of the watch.
        id: u64,
    },
    /// Packets are watched no more.
    Unwatch,
    /// Changes what a forwarder gets from this balancer.
    Balancer {
        /// The forwarder's id.
        forwarder: u16,
        /// `active`, `draining` or `out`.
        state: String,
    },
    /// Makes the running router as a router.toml says.
    Reload {
        /// The text of the file.
        text: String,
        /// Its name, for messages.
        file: String,
        /// If it is not [confirmed](Self::Confirm) within so many milliseconds, up to an hour, the
        /// router becomes again what the file before said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_ms: Option<u64>,
        /// A list of subscribers may have become shorter by more than a tenth.
        #[serde(default)]
        yes: bool,
    },
    /// What is known of subscribers and nodes of trees.
    Nodes {
        /// Which ones.
        query: NodeQuery,
    },
    /// Changes a subscriber or a node.
    Subscriber {
        /// How.
        change: SubscriberChange,
        /// It is undone after so many milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_ms: Option<u64>,
    },
    /// The list of a tree as CSV, with every change since its file.
    Subscribers {
        /// The tree; the only one if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<String>,
    },
    /// The last reload stays.
    Confirm,
    /// The configuration that runs, with every change since its file.
    Running,
    /// Passes everything on to a process of this user that listens at a socket: that forwards from
    /// then on, and this one ends.
    PassOn {
        /// The path of the socket.
        place: String,
    },
    /// What a reload of a router.toml would change.
    Diff {
        /// The text of the file.
        text: String,
        /// Its name, for messages.
        file: String,
    },
}

/// A line of the router's log.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct JournalLine {
    /// They count from 1 since the start.
    pub number: u64,
    /// When, ms since 1970.
    pub time_ms: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// What.
    pub text: String,
}

/// What a change has come to, or would come to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Changes {
    /// The file that was read, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The file that the router was made as before, if that was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
    /// Who changed it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What changed, one sentence each; empty if all was so already.
    pub changes: Vec<String>,
    /// It is undone after so many milliseconds, unless it is confirmed; for a confirmation, how
    /// many were left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_in_ms: Option<u64>,
}

/// The configuration that runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Running {
    /// As the text of a router.toml, which changes nothing when it is reloaded.
    pub text: String,
    /// The file that the router was made as last, if it was one.
    pub file: Option<String>,
    /// The file that the router was started with and reads at SIGHUP, if it was one.
    pub start_file: Option<String>,
    /// What changed since that file was read, one sentence each.
    pub live: Vec<String>,
    /// The last change is undone after so many milliseconds, unless it is confirmed.
    pub undone_in_ms: Option<u64>,
}

impl Request {
    /// Whether it only asks. What tells a whole configuration, with the keys in it, or packets of
    /// others, is no question for everybody.
    #[must_use]
    pub fn is_question(&self) -> bool {
        match self {
            Self::Version
            | Self::Show
            | Self::Explain { .. }
            | Self::Flows { .. }
            | Self::Nodes { .. }
            | Self::Busiest { .. }
            | Self::Journal { .. } => true,
            Self::Watch { .. }
            | Self::Sightings { .. }
            | Self::Unwatch
            | Self::Set { .. }
            | Self::Rate { .. }
            | Self::Ring { .. }
            | Self::Discipline { .. }
            | Self::Fairdrop { .. }
            | Self::Balancer { .. }
            | Self::Reload { .. }
            | Self::Subscriber { .. }
            | Self::Subscribers { .. }
            | Self::Confirm
            | Self::Running
            | Self::PassOn { .. }
            | Self::Diff { .. } => false,
        }
    }
}

/// A reply as it stands on the socket.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The counters that were asked for.
    Ok(Option<Box<Snapshot>>),
    /// What changed, or would change.
    Changes(Changes),
    /// The configuration that was asked for.
    Running(Box<Running>),
    /// Sentences that were asked for, one a line.
    Text(String),
    /// Flows that were asked for.
    Flows(Vec<FlowSnapshot>),
    /// Subscribers and nodes that were asked for.
    Nodes(Vec<NodeSnapshot>),
    /// The lines of the log that were asked for.
    Journal(Vec<JournalLine>),
    /// The busiest flows.
    Busiest(Vec<BusyFlow>),
    /// What was seen of packets that are watched.
    Sightings(Sightings),
    /// The version that was asked for.
    Version(Version),
    /// Not done, and nothing changed.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_line_is_a_request() {
        let line = r#"{"cmd":"set","link":"wan","knob":"x_delay","class":"bulk","value":"200us"}"#;
        let request: Request = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
    }

    #[test]
    fn unknown_fields_and_commands_are_refused() {
        for line in [
            r#"{"cmd":"shw"}"#,
            r#"{"cmd":"rate","link":"wan","value":"1bit/s","unit":"x"}"#,
            r#"{"cmd":"set"}"#,
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn answers_are_one_word_and_a_value() {
        let changes = Changes { changes: vec!["a becomes b".into()], ..Changes::default() };
        assert_eq!(
            serde_json::to_string(&Answer::Changes(changes)).unwrap(),
            r#"{"changes":{"changes":["a becomes b"]}}"#
        );
        assert_eq!(
            serde_json::to_string(&Answer::Error("no".into())).unwrap(),
            r#"{"error":"no"}"#
        );
    }
}
