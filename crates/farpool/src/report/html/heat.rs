//! The correlation matrix as a heat map. Stronger correlations have more colour, in the same hue for positive and
//! negative coefficients.

use super::super::Correlation;
use super::{cut_to, escape, width_of};
use std::fmt::Write;

/// Maximum number of columns for which the cells show the coefficients.
const VALUES_MAX: usize = 14;

/// Maximum width of a label in pixels.
const LABEL: f64 = 124.0;

/// Renders the heat map as an SVG element.
pub fn map(correlation: &Correlation) -> String {
    let count = correlation.columns.len();
    let cell = if count <= VALUES_MAX { 42.0 } else { (900.0 / count as f64).clamp(14.0, 30.0) };
    let labels: Vec<String> = correlation.columns.iter().map(|name| cut_to(name, LABEL)).collect();
    let longest = labels.iter().map(|label| width_of(label)).fold(0.0, f64::max);
    let margin = longest + 10.0;
    // Labels above the columns are rotated by 45 degrees.
    let above = margin * 0.75 + 4.0;
    let size = cell * count as f64;
    let (width, height) = (margin + size + above, above + size + 2.0);
    let mut out = format!(
        "<svg class=\"heat\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         role=\"img\" aria-label=\"Correlation matrix\">\n"
    );
    for (i, label) in labels.iter().enumerate() {
        let middle = cell * (i as f64 + 0.5);
        let (x, y) = (margin + middle, above - 6.0);
        let name = escape(&correlation.columns[i]);
        let label = escape(label);
        let _ = writeln!(
            out,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\"><title>{name}</title>{label}</text>\
             <text x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-45 {x:.1} {y:.1})\"><title>{name}</title>{label}</text>",
            margin - 6.0,
            above + middle + 4.0,
        );
    }
    for (i, row) in correlation.matrix.iter().enumerate() {
        for (j, coefficient) in row.iter().enumerate() {
            let (x, y) = (margin + cell * j as f64, above + cell * i as f64);
            out += &cell_of(x, y, cell, *coefficient, &pair(correlation, i, j), count <= VALUES_MAX);
        }
        out.push('\n');
    }
    out + "</svg>\n"
}

fn pair(correlation: &Correlation, i: usize, j: usize) -> String {
    format!("{} ~ {}", escape(&correlation.columns[i]), escape(&correlation.columns[j]))
}

/// Formats `r` with `digits` decimals; zero has no sign.
fn rounded(r: f64, digits: usize) -> String {
    let text = format!("{r:.digits$}");
    let zero = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
    if zero { text.trim_start_matches('-').to_string() } else { text }
}

fn cell_of(x: f64, y: f64, cell: f64, coefficient: Option<f64>, pair: &str, with_value: bool) -> String {
    let side = cell - 1.0;
    let (class, strength, shown) = match coefficient {
        Some(r) => (if r < 0.0 { "minus" } else { "plus" }, r.abs(), rounded(r, 2)),
        None => ("none", 1.0, "–".to_string()),
    };
    let exact = coefficient.map_or_else(|| "not defined".to_string(), |r| rounded(r, 4));
    let mut out = format!(
        "<g><title>{pair}: {exact}</title><rect class=\"cell\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side:.1}\" \
         height=\"{side:.1}\"/><rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{side:.1}\" \
         height=\"{side:.1}\" fill-opacity=\"{strength:.2}\"/>"
    );
    if with_value {
        let strong = if strength > 0.6 && coefficient.is_some() { " strong" } else { "" };
        let _ = write!(
            out,
            "<text class=\"value{strong}\" x=\"{:.1}\" y=\"{:.1}\">{shown}</text>",
            x + side / 2.0,
            y + side / 2.0 + 4.0
        );
    }
    out + "</g>"
}
