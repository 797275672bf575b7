//! Where packets went, as bands whose widths are rates: what was sent to the router, and of it what
//! was lost at its ring, what it refused, what it forwarded.

use std::fmt::Write as _;

use super::panels;
use super::text::escape;
use crate::cycles::{Account, KindAccount, accounts};
use crate::numbers::grouped;
use crate::run::Run;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 240.0;
const TOP: f64 = 34.0;
/// Width of the bars at both sides.
const BAR: f64 = 12.0;
const LEFT: f64 = 96.0;
/// Leaves room for `dropped by FairDrop 1 011 620`.
const RIGHT: f64 = 328.0;
/// Room between the bars of the right side.
const GAP: f64 = 16.0;

/// What became of packets, and how many a kind of flow has of them.
type Fate = (&'static str, fn(&KindAccount) -> f64);

/// Fates in the order from top to bottom.
const FATES: [Fate; 3] = [
    ("forwarded", |kind| kind.passed),
    ("dropped by FairDrop", |kind| kind.refused),
    ("lost at the ring", |kind| kind.lost),
];

/// One picture for each step of each run, side by side; `None` if no run has measured cycles.
pub(super) fn draw(runs: &[Run]) -> Option<(String, usize)> {
    let mut pictures = Vec::new();
    for run in runs {
        for account in accounts(run) {
            let title = match (run.name.as_str(), runs.len()) {
                ("", _) | (_, 1) => account.step.clone(),
                (name, _) => format!("{name}: {}", account.step),
            };
            pictures.push(picture(&title, &account));
        }
    }
    let columns = pictures.len().min(2);
    (columns > 0).then(|| {
        let html = format!("{}{}</div>", panels::grid(columns), pictures.concat());
        (html, columns)
    })
}

fn picture(title: &str, account: &Account) -> String {
    let all: f64 = account.kinds.iter().map(|kind| kind.offered).sum();
    let room = HEIGHT - TOP - 8.0 - GAP * (FATES.len() - 1) as f64;
    let scale = room / all.max(1e-9);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Where packets went: \
         {}\"><text class=\"title\" x=\"0\" y=\"14\">{}</text>",
        escape(title),
        escape(title)
    );
    let jain =
        account.jain.map_or_else(String::new, |jain| format!(", Jain’s index of cycles {jain:.3}"));
    let _ = write!(svg, "<text class=\"unit\" x=\"0\" y=\"28\">packets/s{jain}</text>");
    // Where the next band leaves the left side, by kind.
    let mut from = TOP;
    let mut starts = Vec::new();
    for kind in &account.kinds {
        starts.push(from);
        let tall = kind.offered * scale;
        let color = color(kind);
        let _ = write!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{from:.1}\" width=\"{BAR}\" height=\"{tall:.1}\" \
             style=\"fill:{color}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            from + tall / 2.0,
            kind.name(),
            LEFT - 6.0,
            from + tall / 2.0 + 13.0,
            grouped(kind.offered)
        );
        from += tall;
    }
    let mut to = TOP;
    for (fate, part) in FATES {
        let total: f64 = account.kinds.iter().map(part).sum();
        let label = to + total * scale / 2.0 + 4.0;
        for (kind, start) in account.kinds.iter().zip(&mut starts) {
            let tall = part(kind) * scale;
            if tall < 0.05 {
                continue;
            }
            band(&mut svg, (*start, to), tall, kind, fate, part(kind));
            *start += tall;
            to += tall;
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{label:.1}\">{fate} {}</text>",
            RIGHT + BAR + 6.0,
            grouped(total)
        );
        to += GAP;
    }
    svg + "</svg>"
}

/// One band and its end on the right, with its meaning as a tooltip.
fn band(
    svg: &mut String,
    (from, to): (f64, f64),
    tall: f64,
    kind: &KindAccount,
    fate: &str,
    rate: f64,
) {
    let (x0, x1) = (LEFT + BAR, RIGHT);
    let middle = f64::midpoint(x0, x1);
    let color = color(kind);
    let _ = write!(
        svg,
        "<path style=\"fill:{color};opacity:.45\" d=\"M{x0} {from:.1}C{middle} {from:.1} {middle} \
         {to:.1} {x1} {to:.1}V{:.1}C{middle} {:.1} {middle} {:.1} {x0} {:.1}Z\">\
         <title>{}: {} packets/s {fate}</title></path>\
         <rect x=\"{x1}\" y=\"{to:.1}\" width=\"{BAR}\" height=\"{tall:.1}\" \
         style=\"fill:{color}\"/>",
        to + tall,
        to + tall,
        from + tall,
        from + tall,
        kind.name(),
        grouped(rate)
    );
}

/// Light flows blue, heavy ones red, as in the paper; both distinct in grey too.
const fn color(kind: &KindAccount) -> &'static str {
    if kind.dear { "#b3392f" } else { "#5b8fd6" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_has_a_band_and_bands_are_as_wide_as_their_rates() {
        let kind = |dear, offered, lost, refused| KindAccount {
            dear,
            flows: 2,
            offered,
            lost,
            refused,
            passed: offered - lost - refused,
            cycles: 1.0,
        };
        let kinds = vec![kind(false, 300.0, 0.0, 0.0), kind(true, 100.0, 25.0, 50.0)];
        let svg =
            picture("a < b", &Account { step: "s".into(), kinds, jain: Some(0.99), hertz: 1.0 });
        assert_eq!(svg.matches("<path").count(), 4, "one light band, three heavy ones: {svg}");
        assert!(
            svg.contains("2 heavy: 50 packets/s dropped by FairDrop") && svg.contains("a &lt; b")
        );
        assert!(svg.contains("Jain’s index of cycles 0.990"));
        let heights: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .filter_map(|rect| rect.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        let (left, right) = heights.split_at(2);
        let difference = left.iter().sum::<f64>() - right.iter().sum::<f64>();
        assert!(difference.abs() < 0.5, "{heights:?}");
    }
}
