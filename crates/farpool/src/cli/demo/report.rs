//! The final output of the demo: a table of costs, and commands to try next.

use super::measure::Measured;
use super::queries::DemoQuery;
use crate::cli::size;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use farpool::TableInfo;

/// Summarizes the loaded tables in one line.
pub fn loaded(tables: &[TableInfo]) -> String {
    let sum = |of: fn(&TableInfo) -> u64| tables.iter().map(of).sum::<u64>();
    let (plain, encoded) = (sum(|t| t.bytes_plain), sum(|t| t.bytes_encoded));
    format!(
        "{} tables with {}: {} plain, {} in the pool, {} smaller",
        tables.len(),
        size::counted(sum(|t| t.rows), "row"),
        size::bytes(plain),
        size::bytes(encoded),
        size::factor(plain, encoded),
    )
}

/// Renders the costs without and with push-down, a line for each query.
pub fn costs(results: &[(&DemoQuery, Measured)]) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections);
    table.set_header([
        "query",
        "answer\nrows",
        "time\noff",
        "time\non",
        "scanned\nin pool",
        "network\noff",
        "network\non",
        "network\nsaved",
    ]);
    for (query, measured) in results {
        let (off, on) = (&measured.off, &measured.on);
        table.add_row([
            query.title.to_string(),
            size::count(farpool::model::cast::u64_from(measured.rows)),
            size::duration(off.time),
            size::duration(on.time),
            size::bytes(on.receipt.bytes_scanned),
            size::bytes(off.receipt.bytes_on_wire),
            size::bytes(on.receipt.bytes_on_wire),
            size::factor(off.receipt.bytes_on_wire, on.receipt.bytes_on_wire),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    // Removes the padding after the last column.
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Explains the columns of the table.
pub fn legend(runs: usize) -> String {
    format!(
        "off: the node sends whole columns and everything runs here. on: the node runs the first operators.\n\
         Medians of {runs} runs in turns; every answer was the same both ways. Both sides share this\n\
         machine and its memory; over a real network, the bytes saved are time saved as well.\n"
    )
}

/// Lists commands to try next; `url` is set if the node keeps running.
pub fn next(url: Option<&str>) -> String {
    match url {
        Some(url) => format!(
            "The node stays until Ctrl-C. In another terminal:\n\
             \x20 farpool tables --pool {url}\n\
             \x20 farpool sql --pool {url} --explain -c \"select count(*) from lineitem where l_tax < 0.02\"\n\
             \x20 farpool status --pool {url}\n"
        ),
        None => "Try next:\n\
             \x20 farpool demo --keep                                    the node stays for your queries\n\
             \x20 farpool sql -c \"select count(*) from 'FILE.parquet'\"   a file of yours, no server needed\n\
             \x20 farpool serve                                          a node of your own; then, elsewhere:\n\
             \x20 farpool load mytable FILE.parquet\n\
             \x20 farpool sql --pool farpool://127.0.0.1:9797 -c \"select count(*) from mytable\"\n"
            .to_string(),
    }
}
