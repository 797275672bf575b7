//! Samples to tables, figures, judged expectations and one self-contained HTML page.
