//! SVG pictures of one column: its histogram, large and small, and its frequent values.

use super::super::{Bin, Column, Frequent, text};
use super::{cut_to, escape};
use crate::size;
use std::fmt::Write;

/// Width of the pictures of a column in SVG units.
const WIDTH: f64 = 320.0;

/// Renders a small histogram for a table row.
pub fn spark(bins: &[Bin]) -> String {
    format!(
        "<svg class=\"spark\" width=\"112\" height=\"22\" viewBox=\"0 0 112 22\" aria-hidden=\"true\">{}</svg>",
        bars(bins, 112.0, 22.0)
    )
}

/// Renders the histogram of a card, with the range below it.
pub fn histogram(column: &Column) -> String {
    let [low, high] = [&column.min, &column.max].map(|value| escape(&text::value(value)));
    format!(
        "<svg class=\"histogram\" viewBox=\"0 0 {WIDTH} 104\" role=\"img\" aria-label=\"Histogram\">{}\
         <line class=\"axis\" x1=\"0\" x2=\"{WIDTH}\" y1=\"84.5\" y2=\"84.5\"/>\
         <text x=\"0\" y=\"100\">{low}</text><text class=\"end\" x=\"{WIDTH}\" y=\"100\">{high}</text></svg>\n",
        bars(&column.histogram, WIDTH, 84.0)
    )
}

fn bars(bins: &[Bin], width: f64, height: f64) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1) as f64;
    let step = width / bins.len().max(1) as f64;
    let gap = if step > 5.0 { 1.0 } else { 0.5 };
    let mut out = String::new();
    for (place, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.count > 0) {
        // A bar has at least one pixel, so that even a single value is visible.
        let tall = (bin.count as f64 / most * (height - 2.0)).max(1.0);
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\">\
             <title>{} to {}: {}</title></rect>",
            place as f64 * step,
            height - tall,
            (step - gap).max(0.5),
            escape(&text::value(&bin.low)),
            escape(&text::value(&bin.high)),
            size::count(bin.count),
        );
    }
    out
}

/// Renders the frequent values for a table row: the share of each in the rows of all frequent values.
pub fn shares(top: &[Frequent]) -> String {
    let sum: f64 = top.iter().map(|value| value.count as f64).sum::<f64>().max(1.0);
    let mut out = "<svg class=\"spark\" width=\"112\" height=\"22\" viewBox=\"0 0 112 22\">".to_string();
    let mut x = 0.0;
    for value in top {
        let width = value.count as f64 / sum * 112.0;
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"7\" width=\"{:.1}\" height=\"8\"><title>{}: {}</title></rect>",
            (width - 1.0).max(0.5),
            escape(&text::cut(&text::value(&value.value), 60)),
            size::count(value.count)
        );
        x += width;
    }
    out + "</svg>"
}

/// Renders a bar for each frequent value. Its length is proportional to the number of rows.
pub fn top(top: &[Frequent], rows: u64) -> String {
    const LINE: f64 = 20.0;
    // Width of a label; the inner `svg` clips the text of a wider font.
    const LABEL: f64 = 124.0;
    const NUMBERS: f64 = 92.0;
    let most = top.iter().map(|value| value.count).max().unwrap_or(0).max(1) as f64;
    let height = LINE * top.len() as f64;
    let mut out = format!(
        "<svg class=\"top\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Most frequent values\">"
    );
    for (place, value) in top.iter().enumerate() {
        let y = place as f64 * LINE;
        let long = (value.count as f64 / most * (WIDTH - LABEL - NUMBERS)).max(1.0);
        let name = text::value(&value.value);
        let about = if value.low == value.high { "" } else { "≈ " };
        let _ = write!(
            out,
            "<g><title>{}: {about}{} ({} to {}), {}</title>\
             <svg width=\"{LABEL}\" height=\"{height}\"><text x=\"0\" y=\"{:.0}\">{}</text></svg>\
             <rect class=\"bar\" x=\"{LABEL}\" y=\"{:.0}\" width=\"{long:.1}\" height=\"12\"/>\
             <text class=\"end\" x=\"{WIDTH}\" y=\"{:.0}\">{about}{}</text></g>",
            escape(&text::cut(&name, 200)),
            size::count(value.count),
            size::count(value.low),
            size::count(value.high),
            escape(&text::percent(value.count, rows)),
            y + 14.0,
            escape(&cut_to(&name, LABEL - 6.0)),
            y + 4.0,
            y + 14.0,
            size::count(value.count),
        );
    }
    out + "</svg>\n"
}
