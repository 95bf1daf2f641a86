//! A profile as one self-contained HTML page: no network, no script. Pictures are SVG; hovering over them shows the
//! exact values.
//!
//! Invariant: every name and value goes through [`escape`].

mod heat;
mod svg;
#[cfg(test)]
mod tests;

use super::{Column, Distinct, Quantile, Report, Source, text};
use crate::size;
use std::fmt::Write;

/// Minimum width in pixels of a fact (a label with its value) that shares a line with another fact in the narrowest
/// card.
const FACT: f64 = 130.0;

const STYLE: &str = include_str!("style.css");

/// Renders the whole page.
pub fn render(report: &Report) -> String {
    let mut page = String::new();
    let title = escape(&report.name);
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} – profile</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    let _ = write!(page, "<h1>{title}</h1>\n<p class=\"tiles\">{}</p>\n", tiles(report));
    page += "<section>\n<h2>Columns</h2>\n<div class=\"wide\">\n";
    page += &overview(report);
    page += "</div>\n</section>\n";
    if let Some(correlation) = &report.correlation {
        page += "<section>\n<h2>Correlation</h2>\n<div class=\"wide\">\n";
        page += &heat::map(correlation);
        page += "</div>\n<p class=\"note\">Pearson's coefficient of each pair; rows with a NULL in either are \
                 left out. A dash: a column is constant.</p>\n</section>\n";
    }
    page += "<section>\n<h2>Each column</h2>\n<div class=\"cards\">\n";
    for (place, column) in report.columns.iter().enumerate() {
        card(&mut page, place, column, report.rows);
    }
    page += "</div>\n</section>\n</main>\n";
    let _ = write!(page, "<footer>{}</footer>\n</body>\n</html>\n", NOTE);
    page
}

const NOTE: &str = "Made by farpool. Counts with ≈ are estimates of sketches (HyperLogLog, Count-Min, \
Fast-AGMS); the range in which the truth lies is shown on hover. Skew is how many times larger the \
self-join of a column is than if its values were equally frequent. Quantiles come from a histogram.";

fn tiles(report: &Report) -> String {
    let nulls: u64 = report.columns.iter().map(|c| c.nulls).fold(0, u64::saturating_add);
    let cells = report.rows.saturating_mul(report.columns.len() as u64);
    let source = match report.source {
        Source::File => "file",
        Source::Stream => "stream",
        Source::Pool => "table in the pool",
    };
    let tile = |value: &str, what: &str| format!("<span class=\"tile\"><b>{value}</b> {what}</span>");
    let rows = if report.rows == 1 { "row" } else { "rows" };
    let columns = if report.columns.len() == 1 { "column" } else { "columns" };
    [
        tile(&size::count(report.rows), rows),
        tile(&size::count(report.columns.len() as u64), columns),
        tile(&escape(&text::percent(nulls, cells)), "NULL"),
        tile(source, ""),
    ]
    .concat()
}

fn overview(report: &Report) -> String {
    let mut out = "<table>\n<thead><tr><th>column</th><th>type</th><th class=\"n\">NULL</th>\
                   <th class=\"n\">distinct</th><th class=\"n\">least</th><th class=\"n\">mean</th>\
                   <th class=\"n\">greatest</th><th>spread</th></tr></thead>\n<tbody>\n"
        .to_string();
    for (place, column) in report.columns.iter().enumerate() {
        let shown = |value| escape(&text::cut(&text::value(value), 28));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><a href=\"#c{place}\">{}</a></th><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escape(&column.name),
            escape(&column.data_type),
            escape(&text::percent(column.nulls, report.rows)),
            column.distinct.as_ref().map_or_else(dash, |d| distinct(d, &text::short(d.value))),
            shown(&column.min),
            column.mean.map_or_else(String::new, text::float),
            shown(&column.max),
            small(column),
        );
    }
    out + "</tbody>\n</table>\n"
}

/// Renders the histogram, or the shares of the most frequent values if there is none.
fn small(column: &Column) -> String {
    match column.histogram.is_empty() {
        false => svg::spark(&column.histogram),
        true => svg::shares(&column.top),
    }
}

fn card(page: &mut String, place: usize, column: &Column, rows: u64) {
    let _ = writeln!(
        page,
        "<article id=\"c{place}\">\n<h3>{}<span class=\"type\">{}</span></h3>\n<dl>{}</dl>",
        escape(&column.name),
        escape(&column.data_type),
        facts(column, rows)
    );
    if !column.histogram.is_empty() {
        *page += &svg::histogram(column);
    }
    if !column.top.is_empty() {
        *page += "<h4>Most frequent</h4>\n";
        *page += &svg::top(&column.top, rows);
    }
    *page += "</article>\n";
}

fn facts(column: &Column, rows: u64) -> String {
    let mut out = String::new();
    let mut fact = |name: &str, value: String| {
        // The label is 13 pixels high and the value 14, with 10 pixels between the two.
        let needed = (13.0 * width_of(name) + 14.0 * width_of(&visible(&value))) / SIZE + 10.0;
        let long = if needed > FACT { " class=\"long\"" } else { "" };
        let _ = write!(out, "<div{long}><dt>{name}</dt><dd>{value}</dd></div>");
    };
    let value = |value| escape(&text::cut(&text::value(value), 40));
    let nulls = format!("{} ({})", size::count(column.nulls), text::percent(column.nulls, rows));
    fact("NULL", if column.nulls == 0 { "0".to_string() } else { escape(&nulls) });
    fact("distinct", column.distinct.as_ref().map_or_else(dash, |d| distinct(d, &size::count(d.value))));
    fact("least", value(&column.min));
    fact("greatest", value(&column.max));
    if let Some(mean) = column.mean {
        fact("mean", text::float(mean));
    }
    if let Some(deviation) = column.stddev {
        fact("std. deviation", text::float(deviation));
    }
    if let Some(quantiles) = &column.quantiles {
        fact("lower quartile", quantile(&quantiles.p25));
        fact("median", quantile(&quantiles.p50));
        fact("upper quartile", quantile(&quantiles.p75));
    }
    if let Some(skew) = column.skew {
        fact("skew", format!("≈ {}", text::float(skew)));
    }
    out
}

/// Returns the text of `markup` without its tags.
fn visible(markup: &str) -> String {
    markup.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
}

/// Height in pixels of the text that [`width_of`] measures.
const SIZE: f64 = 12.0;

/// Returns the estimated width in pixels of a text of 12 pixels, which a page without scripts cannot measure: for the
/// wider of the usual fonts.
fn width_of(text: &str) -> f64 {
    text.chars().map(width_of_character).sum()
}

fn width_of_character(c: char) -> f64 {
    use unicode_width::UnicodeWidthChar;
    match c {
        'M' | 'W' | 'm' | 'w' | '@' | '%' | '…' | '≈' => 11.0,
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | ' ' => 4.0,
        'f' | 'r' | 't' | '-' | '(' | ')' | '[' | ']' | '/' => 5.5,
        c if c.is_uppercase() => 9.0,
        c => 7.2 * c.width().unwrap_or(1) as f64,
    }
}

/// Cuts the text so that it takes at most `pixels`.
fn cut_to(text: &str, pixels: f64) -> String {
    if width_of(text) <= pixels {
        return text.to_string();
    }
    let mut used = width_of_character('…');
    let fits = |c: &char| {
        used += width_of_character(*c);
        used <= pixels
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

fn distinct(distinct: &Distinct, shown: &str) -> String {
    if distinct.low == distinct.high {
        return shown.to_string();
    }
    let (low, high) = (size::count(distinct.low), size::count(distinct.high));
    let confidence = text::float(distinct.confidence * 100.0);
    format!("<span title=\"{low} to {high}, with {confidence} % confidence\">≈ {shown}</span>")
}

fn quantile(quantile: &Quantile) -> String {
    let [shown, low, high] = [&quantile.value, &quantile.low, &quantile.high]
        .map(|value| escape(&text::cut(&text::value(value), 40)));
    if quantile.low == quantile.high {
        return shown;
    }
    let confidence = text::float(quantile.confidence * 100.0);
    format!("<span title=\"{low} to {high}, with {confidence} % confidence\">≈ {shown}</span>")
}

fn dash() -> String {
    "–".to_string()
}

/// Escapes `text` for use between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Characters that HTML does not allow, or that change the direction of the text.
            c if c.is_control() => out.extend(c.escape_default()),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}
