//! Figures as files of their own: SVG without style sheets, offered by a link that holds the data.

use std::fmt::Write as _;

/// Between panels, as on the page.
const GAP: f64 = 20.0;
/// Beside the panels: half of the last number of an axis reaches beyond it.
const MARGIN: f64 = 12.0;
/// Room for the legend.
const LEGEND: f64 = 24.0;
/// Estimated advance of a character of the legend.
const CHAR: f64 = 6.6;

/// A legend entry: a mark drawn in a box of 30 by 12, and words.
pub(crate) struct LegendEntry {
    /// SVG markup.
    pub(crate) mark: String,
    /// Plain text, escaped.
    pub(crate) text: String,
}

/// The panels in `html` (SVG elements with a `viewBox` from 0 0) as one picture of so many columns,
/// its legend on top. Empty if there is no panel. What only serves pointing at windows is left out.
pub(crate) fn picture(html: &str, columns: usize, legend: &[LegendEntry]) -> String {
    let panels: Vec<(f64, f64, &str)> = html
        .split("<svg ")
        .skip(1)
        .filter_map(|rest| {
            let (svg, _) = rest.split_once("</svg>")?;
            let (attributes, content) = svg.split_once('>')?;
            let sizes = attributes.split("viewBox=\"0 0 ").nth(1)?.split('"').next()?;
            let (width, height) = sizes.split_once(' ')?;
            Some((width.parse().ok()?, height.parse().ok()?, content))
        })
        .collect();
    if panels.is_empty() {
        return String::new();
    }
    let columns = columns.clamp(1, panels.len());
    let mut body = String::new();
    let mut y = if legend.is_empty() { 0.0 } else { LEGEND };
    let mut width: f64 = 0.0;
    for row in panels.chunks(columns) {
        let mut x = 0.0;
        for (w, h, content) in row {
            let _ = write!(
                body,
                "<svg x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} \
                 {h}\" overflow=\"visible\">{}</svg>",
                without_hits(content)
            );
            x += w + GAP;
        }
        width = width.max(x - GAP);
        y += row.iter().map(|(_, h, _)| *h).fold(0.0, f64::max) + GAP / 2.0;
    }
    let mut x = 0.0;
    for entry in legend {
        let _ = write!(
            body,
            "<g transform=\"translate({x:.0} 2)\">{}<text class=\"entry\" x=\"37\" \
             y=\"10\">{}</text></g>",
            entry.mark, entry.text
        );
        x += 37.0 + entry.text.chars().count() as f64 * CHAR + 22.0;
    }
    let (width, height) = (width.max(x) + MARGIN, y);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\">\n<style>{}</style>\n<rect width=\"100%\" \
         height=\"100%\" fill=\"#ffffff\"/>\n{body}\n</svg>\n",
        style()
    )
}

/// A link that saves `svg` under `name`; nothing for an empty picture.
pub(crate) fn link(name: &str, svg: &str) -> String {
    if svg.is_empty() {
        return String::new();
    }
    format!(
        " <a class=\"save\" download=\"{name}.svg\" href=\"data:image/svg+xml;base64,{}\">SVG</a>",
        base64(svg.as_bytes())
    )
}

/// Without the rectangles that show numbers when pointed at.
pub(crate) fn without_hits(content: &str) -> String {
    let mut out = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = rest.find("<rect class=\"hit\"") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once("</rect>").map_or("", |(_, after)| after);
    }
    out + rest
}

/// The rules of the page's style sheet that concern drawings, colours put in: programs that draw
/// SVG know no variables.
pub(crate) fn style() -> String {
    let css = include_str!("style.css");
    let root =
        css.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(root, _)| root);
    let colours: Vec<(&str, &str)> = root
        .split(';')
        .filter_map(|rule| rule.trim().split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .filter(|(name, _)| name.starts_with("--"))
        .collect();
    let drawn = |line: &&str| {
        let numbered = |kind: &str| {
            line.strip_prefix(kind)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        line.starts_with("svg .")
            || line.starts_with("svg text")
            || line.starts_with(".mark")
            || numbered(".l")
            || numbered(".f")
    };
    let mut rules =
        "svg { font-family: Helvetica, Arial, \"Liberation Sans\", sans-serif; }\nsvg .entry { \
         font-size: 12.5px; }\n"
            .to_owned();
    for line in css.lines().filter(drawn).filter(|line| !line.contains(":hover")) {
        rules.push_str(line);
        rules.push('\n');
    }
    for (name, value) in colours {
        rules = rules.replace(&format!("var({name})"), value);
    }
    rules
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .enumerate()
            .fold(0_u32, |word, (i, byte)| word | u32::from(*byte) << (16 - 8 * i));
        for digit in 0..4 {
            out.push(if digit <= chunk.len() {
                char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63])
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_the_standard() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn a_picture_stands_alone() {
        let panel = "<svg viewBox=\"0 0 100 50\" role=\"img\"><path class=\"line l0\"/><rect \
                     class=\"hit\" x=\"1\"><title>t</title></rect><text>a</text></svg>";
        let html = format!("<div>{panel}{panel}{panel}</div>");
        let entry = LegendEntry { mark: String::new(), text: "class1".to_owned() };
        let svg = picture(&html, 2, &[entry]);
        assert!(svg.contains("viewBox=\"0 0 232 144\""), "{svg}");
        // Half of the last number of an axis.
        assert!(svg.contains("height=\"50\" viewBox=\"0 0 100 50\" overflow=\"visible\""));
        assert!(svg.contains("<svg x=\"120\" y=\"24\" width=\"100\" height=\"50\""));
        assert!(!svg.contains("class=\"hit\"") && !svg.contains("var("), "{svg}");
        assert_eq!(svg.matches("<text>a</text>").count(), 3);
        assert_eq!(picture("<p>nothing</p>", 2, &[]), "");
    }
}
