//! The roles in a cluster: what `ctl show` says of them, `ctl empty` and `cluster leave`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_control::Client;
use evenkeel_report::table::Table;
use evenkeel_router::snapshot::{BalancerSnapshot, ClusterSnapshot};
use evenkeel_router::{Disciplines, Snapshot};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::{check, out};

/// `evenkeel cluster leave`: opens the ports that the role of this file closed.
pub(crate) fn leave(file: &Path, netns: Option<&str>, disciplines: &Disciplines) -> Outcome {
    let config = check::load(file, disciplines)?;
    let left = evenkeel_router::leave_cluster(&config, netns)
        .map_err(|error| Failure::new(error.exit_code(), format!("{}: {error}", file.display())))?;
    if left.is_empty() {
        let text = format!("{}: neither [cluster] nor [balancer]", file.display());
        return Err(Failure::new(2, text));
    }
    let mut text = String::new();
    for left in left {
        let did = if left.was_closed { "opened" } else { "was open" };
        let _ = writeln!(
            text,
            "port {}: {} {did}: the kernel forwards by it as it is configured",
            left.port, left.interface
        );
    }
    out::print(&text)
}

/// For so long nothing must come: longer than a burst of the balancers is on its way.
const QUIET: Duration = Duration::from_millis(300);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// `evenkeel ctl empty`: waits until nothing waits in this forwarder and nothing comes.
pub(crate) fn empty(client: &mut Client, within: Duration, json: bool) -> Outcome {
    let began = Instant::now();
    let (mut came, mut since) = (None, began);
    loop {
        let Some(cluster) = client.show()?.cluster else {
            return Err(Failure::input("this router is no forwarder: it has no [cluster]"));
        };
        let queues = || cluster.links.iter().flat_map(|link| &link.classes);
        let in_all: u64 = queues().map(|queue| queue.in_packets).sum();
        let waiting =
            queues().map(|queue| queue.queued_packets).sum::<u64>() + cluster.granted_waiting;
        if waiting > 0 || came != Some(in_all) {
            (came, since) = (Some(in_all), Instant::now());
        } else if since.elapsed() >= QUIET {
            let seconds = began.elapsed().as_secs_f64();
            return if json {
                out::print_json(&json!({ "empty": true, "seconds": seconds }))
            } else {
                out::print(&format!("nothing waits and nothing comes, after {seconds:.1} s\n"))
            };
        }
        if began.elapsed() > within {
            let text = format!(
                "after {} s {waiting} packets wait and {in_all} have come: is it out at every \
                 balancer (evenkeel ctl balancer {} out)?",
                within.as_secs(),
                cluster.node
            );
            return Err(Failure::new(1, text));
        }
        std::thread::sleep(LOOK);
    }
}

/// What a forwarder or balancer of a cluster counted; nothing for other routers.
pub(crate) fn show(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    if let Some(cluster) = &snapshot.cluster {
        text += &forwarder(cluster);
    }
    if let Some(balancer) = &snapshot.balancer {
        text += &targets(balancer);
    }
    text
}

fn forwarder(cluster: &ClusterSnapshot) -> String {
    let list = |ids: &[u16]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let master = match cluster.master {
        Some(id) if id == cluster.node => "master itself".to_owned(),
        Some(id) => format!("master is node {id}"),
        None => "no master heard".to_owned(),
    };
    let mut text = format!(
        "\ncluster: node {} of configuration {}, {master}, {} step at cycle {}; with nodes {}\n\
         cycles: {} decided, {} abstained; {} states did not come, {} times out of step, {} \
         takeovers\n\
         grants: {} of {} bytes in {} rounds; {} packets waiting for their time, {} too late
         for it and queued again\n\
         frames: {} sent, {} used",
        cluster.node,
        cluster.configuration,
        if cluster.in_step { "in" } else { "out of" },
        cluster.cycle,
        list(&cluster.present),
        cluster.decided,
        cluster.abstained,
        cluster.missing,
        cluster.out_of_step,
        cluster.takeovers,
        cluster.grants,
        cluster.granted_bytes,
        cluster.rounds,
        cluster.granted_waiting,
        cluster.late,
        cluster.sent_frames,
        cluster.used_frames,
    );
    for (what, count) in &cluster.refused {
        let _ = write!(text, ", {count} {what}");
    }
    if let Some(next) = &cluster.next_configuration {
        let waits = match cluster.waits_for.as_slice() {
            [] => "all are ready".to_owned(),
            ids => format!("waits for nodes {}", list(ids)),
        };
        let _ = write!(text, "\nnext configuration {next}: {waits}");
    }
    text.push('\n');
    let mut table =
        Table::new(["link", "class", "offered", "granted", "bytes", "queued", "drops by reason"]);
    for link in &cluster.links {
        for class in &link.classes {
            let by: Vec<String> =
                class.dropped.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            table.row([
                link.name.clone(),
                class.name.clone(),
                class.in_packets.to_string(),
                class.granted_packets.to_string(),
                class.granted_bytes.to_string(),
                class.queued_packets.to_string(),
                by.join(", "),
            ]);
        }
    }
    text + &table.render()
}

fn targets(balancer: &BalancerSnapshot) -> String {
    let mut text = format!(
        "\nbalancer: packets of known flows {}, of new ones {} ({} without a place); {} flows \
         moved because their forwarder had gone, {} went back\n",
        balancer.known, balancer.new, balancer.untracked, balancer.moved, balancer.returned
    );
    let mut table = Table::new([
        "forwarder",
        "address",
        "state",
        "health",
        "places",
        "flows",
        "packets",
        "bytes",
    ]);
    for one in &balancer.forwarders {
        table.row([
            one.id.to_string(),
            one.mac.clone(),
            one.state.clone(),
            one.health.clone(),
            one.places.to_string(),
            one.flows.to_string(),
            one.packets.to_string(),
            one.bytes.to_string(),
        ]);
    }
    text += &table.render();
    text
}
