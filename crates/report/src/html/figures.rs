//! Figures of a page: numbered, with a caption and a link that saves them.

use super::download::{self, LegendEntry};
use super::panels::legend_html;

/// Numbers figures.
pub(super) struct Figures {
    /// What files of figures are called.
    name: String,
    count: u32,
}

impl Figures {
    pub(super) fn named(name: &str) -> Self {
        Self { name: if name.is_empty() { "figure".to_owned() } else { name.to_owned() }, count: 0 }
    }

    /// A caption with a link that saves the figure; `html` is markup, `picture` a whole SVG.
    pub(super) fn saved(&mut self, html: &str, picture: &str) -> String {
        self.count += 1;
        let link = download::link(&format!("{}-{}", self.name, self.count), picture);
        format!(
            "<figcaption><span class=\"label\">Figure {}</span> {html}{link}</figcaption>",
            self.count
        )
    }

    /// A whole figure: legend, panels, caption. `columns` is how many panels stand side by side in
    /// the file that it is saved as.
    pub(super) fn figure(
        &mut self,
        panels: &str,
        legend: &[LegendEntry],
        columns: usize,
        caption: &str,
    ) -> String {
        let shown = if legend.is_empty() { String::new() } else { legend_html(legend) };
        let saved = self.saved(caption, &download::picture(panels, columns, legend));
        format!("<figure>\n{shown}{panels}\n{saved}</figure>\n")
    }
}
