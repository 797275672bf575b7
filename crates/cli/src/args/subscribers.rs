//! Arguments of `ctl subscriber`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::argument::while_it_lasts;

/// What to do with subscribers.
#[derive(Debug, Subcommand)]
pub(crate) enum SubscriberCommand {
    /// Show the busiest subscribers, or one with all that it is behind.
    Show {
        /// Its name.
        name: Option<String>,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
    },
    /// Change one: evenkeel ctl subscriber set ann down=50Mbit/s up=10Mbit/s
    Set {
        /// Its name.
        name: String,
        /// parent, prefixes, macs, vlans, sessions, down, up, min_down, min_up or weight, and a
        /// value as in the list.
        #[arg(required = true, value_name = "FIELD=VALUE", value_parser = field)]
        fields: Vec<(String, String)>,
    },
    /// Add one: evenkeel ctl subscriber add ann prefixes=10.1.0.7 parent=north down=50Mbit/s
    Add {
        /// Its name.
        name: String,
        /// As for `set`; `tree=NAME` where there are several.
        #[arg(required = true, value_name = "FIELD=VALUE", value_parser = field)]
        fields: Vec<(String, String)>,
    },
    /// Take one out: its packets are `unknown` from then on.
    Remove {
        /// Its name.
        name: String,
    },
    /// Put one behind another node: evenkeel ctl subscriber move ann south
    Move {
        /// Its name.
        name: String,
        /// The node; `link`: none.
        parent: String,
    },
    /// Give one more for a while: evenkeel ctl subscriber boost ann --by 2 --for 1h
    Boost {
        /// Its name.
        name: String,
        /// So many times its caps.
        #[arg(long, value_name = "TIMES", default_value_t = 2.0)]
        by: f64,
        /// How long, as 90s, 30min, 2h or 3d.
        #[arg(long = "for", value_name = "TIME", value_parser = while_it_lasts)]
        time: Duration,
    },
    /// Write the list as it is now, with every change since its file, as CSV.
    Save {
        /// The file [default: standard output].
        file: Option<PathBuf>,
        /// The tree, where there are several.
        #[arg(long, value_name = "NAME")]
        tree: Option<String>,
    },
}

/// `field=value`.
fn field(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').map(|(field, value)| (field.to_owned(), value.to_owned()));
    split.ok_or_else(|| format!("{text:?} is not FIELD=VALUE"))
}
