//! Requests and replies as they stand on the socket.
//!
//! A request is one line of JSON: `{"cmd":"set","link":"wan","knob":"x_delay","class":"bulk","value":"200us"}`. The reply is one line:
//! `{"ok":…}` or `{"error":"…"}`. A connection may carry any number of requests, answered in order.

use serde::{Deserialize, Serialize};

/// A request. Values are texts with units, as in configuration files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Every counter: replies with a snapshot.
    Show,
    /// Changes a knob of a link's discipline.
    Set {
        /// The link, named by its port.
        link: String,
        /// `weight`, `x_delay`, `limit`, `module2`, `multi_backlog`, `rearm_empty`, `rate`, `ring`, `discipline`.
        knob: String,
        /// The class, for knobs of a class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<String>,
        /// The value: `200us`, `1000`, `true`, `hold`.
        value: String,
    },
    /// Changes the rate of a link: `100Mbit/s`, or `none` for unpaced.
    Rate {
        /// The link.
        link: String,
        /// The rate.
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
        /// The table of a discipline as in router.toml, inline: `{ kind = "lct", limit = 50 }`, or only its kind.
        value: String,
    },
    /// Reads router.toml again and makes the running router as it says.
    Reload {
        /// The text of the file.
        text: String,
        /// Its name, for messages.
        file: String,
    },
}
