//! The drawing of nodes and wires: columns from senders to receivers, drawn from the order of the
//! wires' ends.

use std::fmt::Write as _;

use super::text::escape;
use crate::run::{Topology, TopologyNode};

const NODE_HEIGHT: f64 = 34.0;
const LINE: f64 = 14.0;
const ROW_GAP: f64 = 22.0;
const COLUMN_GAP: f64 = 150.0;
/// Estimated advance of a character of names and labels.
const CHAR: f64 = 6.1;

/// Column of each node: one more than that of the nodes whose wires lead to it (first end to
/// second). Wires that close a circle no longer push.
fn columns(topology: &Topology) -> Vec<usize> {
    let index = |name: &str| topology.nodes.iter().position(|n| n.name == name);
    let wires: Vec<(usize, usize)> = topology
        .wires
        .iter()
        .filter_map(|w| Some((index(&w.ends[0])?, index(&w.ends[1])?)))
        .collect();
    let mut columns = vec![0; topology.nodes.len()];
    for _ in 0..topology.nodes.len() {
        for &(from, to) in &wires {
            if columns[to] <= columns[from] && columns[from] + 1 < topology.nodes.len() {
                columns[to] = columns[from] + 1;
            }
        }
    }
    columns
}

/// The drawing; empty if there are no nodes.
pub(super) fn draw(topology: &Topology) -> String {
    if topology.nodes.is_empty() {
        return String::new();
    }
    let columns = columns(topology);
    let last = columns.iter().copied().max().unwrap_or(0);
    let members = |column: usize| -> Vec<usize> {
        (0..columns.len()).filter(|&i| columns[i] == column).collect()
    };
    let height_of = |node: &TopologyNode| NODE_HEIGHT + node.labels.len() as f64 * LINE;
    let column_height = |column: usize| {
        let nodes = members(column);
        nodes.iter().map(|&i| height_of(&topology.nodes[i])).sum::<f64>()
            + ROW_GAP * nodes.len().saturating_sub(1) as f64
    };
    let width_of = |column: usize| {
        let texts = members(column);
        let longest = texts
            .iter()
            .flat_map(|&i| topology.nodes[i].labels.iter().chain([&topology.nodes[i].name]))
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0);
        (longest as f64 * CHAR + 22.0).max(84.0)
    };
    let height = (0..=last).map(column_height).fold(0.0, f64::max) + 16.0;
    let mut boxes = vec![(0.0, 0.0, 0.0, 0.0); columns.len()];
    let mut x = 4.0;
    for column in 0..=last {
        let width = width_of(column);
        let mut y = (height - column_height(column)) / 2.0;
        for i in members(column) {
            let tall = height_of(&topology.nodes[i]);
            boxes[i] = (x, y, width, tall);
            y += tall + ROW_GAP;
        }
        x += width + COLUMN_GAP;
    }
    let width = x - COLUMN_GAP + 4.0;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" style=\"max-width:{width:.0}px\" role=\"img\" \
         aria-label=\"Topology\">"
    );
    wires(&mut svg, topology, &boxes);
    for (node, &(x, y, width, tall)) in topology.nodes.iter().zip(&boxes) {
        let (class, radius) = if node.router { ("node router", 17.0) } else { ("node", 4.0) };
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{tall:.1}\" rx=\"{radius}\"/><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            x + width / 2.0,
            y + 21.5,
            escape(&node.name)
        );
        for (line, label) in node.labels.iter().enumerate() {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x + width / 2.0,
                y + 36.0 + line as f64 * LINE,
                escape(label)
            );
        }
    }
    svg + "</svg>"
}

fn wires(svg: &mut String, topology: &Topology, boxes: &[(f64, f64, f64, f64)]) {
    let index = |name: &str| topology.nodes.iter().position(|n| n.name == name);
    let mut labels = String::new();
    for wire in &topology.wires {
        let (Some(from), Some(to)) = (index(&wire.ends[0]), index(&wire.ends[1])) else { continue };
        let (fx, fy, fw, fh) = boxes[from];
        let (tx, ty, _, th) = boxes[to];
        // Wires that meet at a node arrive spread over its side.
        let share = |end: &str, side: usize| {
            let all: Vec<usize> = (0..topology.wires.len())
                .filter(|&w| topology.wires[w].ends[side] == end)
                .collect();
            let place =
                all.iter().position(|&w| std::ptr::eq(&topology.wires[w], wire)).unwrap_or(0);
            (place as f64 + 1.0) / (all.len() as f64 + 1.0)
        };
        let (x1, y1) = (fx + fw, fy + fh * share(&wire.ends[0], 0));
        let (x2, y2) = (tx, ty + th * share(&wire.ends[1], 1));
        let bend = (x2 - x1) / 2.0;
        let _ = write!(
            svg,
            "<path class=\"wire\" d=\"M{x1:.1} {y1:.1}C{:.1} {y1:.1} {:.1} {y2:.1} {x2:.1} \
             {y2:.1}\"/>",
            x1 + bend,
            x2 - bend
        );
        if !wire.label.is_empty() {
            let _ = write!(
                labels,
                "<text class=\"halo\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                (x1 + x2) / 2.0,
                (y1 + y2) / 2.0 - 6.0,
                escape(&wire.label)
            );
        }
    }
    svg.push_str(&labels);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Wire;

    fn topology(wires: &[(&str, &str)]) -> Topology {
        let mut topology = Topology::default();
        for (from, to) in wires {
            for name in [from, to] {
                if !topology.nodes.iter().any(|n| n.name == **name) {
                    topology.nodes.push(TopologyNode {
                        name: (*name).to_owned(),
                        router: name.starts_with('r'),
                        labels: vec![],
                    });
                }
            }
            topology
                .wires
                .push(Wire { ends: [(*from).to_owned(), (*to).to_owned()], label: String::new() });
        }
        topology
    }

    #[test]
    fn senders_stand_left_of_routers_left_of_the_sink() {
        let t = topology(&[("h1", "r1"), ("h2", "r1"), ("r1", "r2"), ("r2", "sink")]);
        let names: Vec<_> = t.nodes.iter().map(|n| n.name.as_str()).zip(columns(&t)).collect();
        assert_eq!(names, [("h1", 0), ("r1", 1), ("h2", 0), ("r2", 2), ("sink", 3)]);
    }

    #[test]
    fn a_ring_of_routers_is_drawn_too() {
        let t = topology(&[("r1", "r2"), ("r2", "r3"), ("r3", "r1")]);
        assert!(columns(&t).iter().all(|&column| column < 3));
        assert_eq!(draw(&t).matches("class=\"wire\"").count(), 3);
    }
}
