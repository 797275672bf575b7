//! Costs by the number of flows as a picture: logarithmic to the right, so that a logarithmic cost
//! is a straight line and a constant one is flat.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Where pictures go.
const FOLDER: &str = "out/bench";
const COLOURS: [&str; 3] = ["#b3541e", "#1f5fa8", "#3c7a3c"];
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const WIDTH: f64 = 470.0;
const HEIGHT: f64 = 260.0;

/// One measurement: of what, with how many flows, how much.
pub(crate) type Point<'a> = (&'a str, u32, f64);

/// Writes the picture and says where; points of a name are in the order of their flows.
pub(crate) fn write(file: &str, title: &str, unit: &str, points: &[Point<'_>]) {
    let path = Path::new(FOLDER).join(file);
    match fs::create_dir_all(FOLDER).and_then(|()| fs::write(&path, figure(title, unit, points))) {
        Ok(()) => println!("\n  Plot: {}", path.display()),
        Err(error) => println!("\n  no plot: {}: {error}", path.display()),
    }
}

fn figure(title: &str, unit: &str, points: &[Point<'_>]) -> String {
    let flows = || points.iter().map(|(_, flows, _)| f64::from(*flows).log2());
    let (first, last) = (flows().fold(f64::INFINITY, f64::min), flows().fold(0.0, f64::max));
    let most = points.iter().map(|(_, _, cost)| *cost).fold(1.0, f64::max);
    // Four or five lines at 1, 2 or 5 times a power of ten.
    let power = 10.0_f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| most / step <= 5.0);
    let step = step.unwrap_or(power);
    let top = (most / step).ceil() * step;
    let x = |flows: u32| LEFT + (f64::from(flows).log2() - first) / (last - first).max(1.0) * WIDTH;
    let y = |cost: f64| TOP + HEIGHT - cost / top * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 700 350\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"700\" height=\"350\" \
         fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{title}</text>\n"
    );
    for n in 0..=(top / step).round() as u32 {
        let cost = f64::from(n) * step;
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {0:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"{1:.0}\" y=\"{2:.1}\" \
             text-anchor=\"end\">{cost:.0}</text>",
            y(cost),
            LEFT - 6.0,
            y(cost) + 4.0,
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"345\">{unit} per packet; number of flows to the right</text>"
    );
    let mut names: Vec<&str> = Vec::new();
    for (name, flows, _) in points {
        if !names.contains(name) {
            names.push(name);
        }
        if *name == names[0] {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                x(*flows),
                TOP + HEIGHT + 20.0,
                crate::flows::name(*flows),
            );
        }
    }
    for (name, colour) in names.iter().zip(COLOURS.iter().cycle()) {
        let line: Vec<(f64, f64)> = points
            .iter()
            .filter(|(of, ..)| of == name)
            .map(|(_, flows, cost)| (x(*flows), y(*cost)))
            .collect();
        let joined: Vec<String> = line.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (end_x, end_y) = line.last().copied().unwrap_or_default();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text \
             x=\"{:.0}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            joined.join(" "),
            end_x + 8.0,
            end_y + 4.0,
        );
    }
    svg + "</svg>\n"
}
