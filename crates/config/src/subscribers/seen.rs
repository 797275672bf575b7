//! Which keys of layer two the frames of a port do not carry: by those nobody would be found, so
//! they are refused.
//!
//! | port of the link | stations | VLANs, sessions |
//! |---|---|---|
//! | `bridge` | yes | yes |
//! | `inline` towards the subscribers | yes | yes |
//! | `inline` away from them | no: the kernel has routed | no: it has taken them off, or puts them on |
//! | `route` | yes, before the frame is made anew | no: such frames are the kernel's |

use evenkeel_core::L2Key;

use super::list::{SubscriberList, column_of};
use super::{Faults, TreeSection, wrong};
use crate::attach::Attach;
use crate::model::PortConfig;

/// Why a key is not seen in the frames of a link's port; `None`: it is. `down`: the link leads
/// towards the subscribers.
fn why_not(key: &L2Key, attach: Attach, down: bool) -> Option<&'static str> {
    let is_station = matches!(key, L2Key::Station(_));
    match (attach, down) {
        (Attach::Bridge, _) | (Attach::InlineWire, true) | (Attach::InlineKernel, false) => None,
        (Attach::InlineWire, false) | (Attach::InlineKernel, true) => Some(
            "the kernel routes between that port and the subscribers, and makes its frames anew: \
             attach the port towards them inline, with `down = \"PORT\"` and `up = \
             \"PORT-ingress\"`, or use prefixes",
        ),
        (Attach::Route | Attach::RouteKernel, _) if is_station => None,
        (Attach::Route | Attach::RouteKernel, _) => Some(
            "a routed port takes no frames with tags or of PPPoE, which are the kernel's: use \
             attach = \"bridge\" or \"inline\", or prefixes",
        ),
    }
}

/// Tells the first line with a key of each kind that is not seen at the ports of a tree.
pub(super) fn tell_unseen(
    list: &SubscriberList,
    section: &TreeSection,
    ports: &[PortConfig],
    faults: &mut Faults,
) {
    let mut told = Vec::new();
    for (way, name, down) in [("down", &section.down, true), ("up", &section.up, false)] {
        let named = |port: &&PortConfig| Some(&port.name) == name.as_ref();
        let Some(port) = ports.iter().find(named) else { continue };
        for entry in &list.entries {
            for key in &entry.l2 {
                let column = column_of(key);
                if told.contains(&column) {
                    continue;
                }
                if let Some(why) = why_not(key, port.attach(), down) {
                    told.push(column);
                    let message = format!("not seen at `{way} = {:?}`: {why}", port.name);
                    faults.tell(entry.line, column, wrong(&key.to_string(), message));
                }
            }
        }
    }
}
