//! A profile for a terminal: a line per column, then the strongest correlations.

use super::super::output::grid::{Align, Grid};
use super::super::size;
use farpool::report::{Bin, Column, Correlation, Report, text};
use std::fmt::Write;

/// Maximum number of pairs of columns whose correlation is listed.
const PAIRS: usize = 8;

/// Minimum absolute correlation coefficient that is listed.
const STRONG: f64 = 0.3;

/// Number of characters per line if there is no terminal.
const WIDTH: usize = 100;

/// Maximum number of characters per value.
const VALUE: usize = 40;

/// Number of characters of a histogram. The most frequent value and its share get more if there is room.
const SHAPE: usize = 10;

/// Characters for the bars of a histogram, by height.
const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Formats the whole profile.
pub fn render(report: &Report) -> String {
    let columns = size::counted(report.columns.len() as u64, "column");
    let mut out = format!("{}: {}, {columns}\n", report.name, size::counted(report.rows, "row"));
    let width = crate::cli::terminal::size().map_or(WIDTH, |(columns, _)| columns);
    // Texts, and bounds that may be texts.
    let is_text = [true, true, false, false, true, false, true, true];
    out += &grid(report).fitted(width, &is_text, text::cut);
    if let Some(correlation) = &report.correlation {
        out += &strongest(correlation);
    }
    if report.columns.iter().any(|c| c.distinct.as_ref().is_some_and(|d| d.low < d.high)) {
        out += "~ estimated; --format json has the bounds\n";
    }
    out
}

fn grid(report: &Report) -> Grid {
    let mut grid = Grid::new(&[
        ("column", Align::Left),
        ("type", Align::Left),
        ("NULLs", Align::Right),
        ("distinct", Align::Right),
        ("least", Align::Right),
        ("mean", Align::Right),
        ("greatest", Align::Right),
        ("shape", Align::Left),
    ]);
    for column in &report.columns {
        let distinct = column.distinct.as_ref();
        grid.row(vec![
            text::cut(&column.name, VALUE),
            text::cut(&column.data_type, VALUE),
            text::percent(column.nulls, report.rows),
            distinct.map_or("–".into(), |d| {
                format!("{}{}", if d.low == d.high { "" } else { "~" }, text::short(d.value))
            }),
            text::cut(&text::value(&column.min), VALUE),
            column.mean.map_or_else(String::new, text::float),
            text::cut(&text::value(&column.max), VALUE),
            shape(column, report.rows),
        ]);
    }
    grid
}

/// Formats the histogram of a numeric column, or the most frequent value of a text column with its share.
fn shape(column: &Column, rows: u64) -> String {
    if !column.histogram.is_empty() {
        return spread(&column.histogram);
    }
    let Some(top) = column.top.first() else { return String::new() };
    let share = text::percent(top.count, rows);
    format!("{share} {}", text::cut(&text::value(&top.value), VALUE))
}

fn spread(bins: &[Bin]) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1) as f64;
    let heights = bins
        .chunks(bins.len().div_ceil(SHAPE).max(1))
        .map(|pair| pair.iter().map(|bin| bin.count).max().unwrap_or(0));
    let mark = |count: u64| match count {
        0 => ' ',
        count => MARKS[((count as f64 / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    heights.map(mark).collect()
}

fn strongest(correlation: &Correlation) -> String {
    let names = &correlation.columns;
    let mut pairs: Vec<(f64, usize, usize)> = Vec::new();
    for (i, row) in correlation.matrix.iter().enumerate() {
        let above = row.iter().enumerate().skip(i + 1);
        pairs.extend(above.filter_map(|(j, r)| Some((r.filter(|r| r.abs() >= STRONG)?, i, j))));
    }
    if pairs.is_empty() {
        return String::new();
    }
    pairs.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let mut out = "strongest correlations\n".to_string();
    for (r, i, j) in pairs.iter().take(PAIRS) {
        let _ = writeln!(out, "  {r:>6.3}  {} ~ {}", text::cut(&names[*i], 40), text::cut(&names[*j], 40));
    }
    if pairs.len() > PAIRS {
        let _ = writeln!(out, "  and {} more of at least {STRONG}", pairs.len() - PAIRS);
    }
    out
}
