//! `farpool tables`: lists the tables and views of a node, or the columns of a table or the query of a view.

use super::literals;
use super::output::TextFormat;
use super::output::grid::{Align, Grid};
use super::pool_args::PoolArgs;
use super::size;
use super::stop::Outcome;
use super::terminal::printable_lines;
use farpool::model::{Listing, Relation, View, sql_name};
use farpool::{TableInfo, TableName, TenantName};
use serde_json::json;

/// List the tables and views of a memory node, or the columns of a table or the query of a view
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  farpool tables\n  farpool tables trips\n  farpool tables --format json")]
pub struct Args {
    /// Table whose columns, or view whose query, is shown [default: list all]
    table: Option<String>,

    /// Format of the output; `json` prints one object per table or view, one per line
    #[arg(long, value_enum, default_value = "table")]
    format: TextFormat,

    /// List tables of another tenant; requires a token for the role admin
    #[arg(long, conflicts_with = "table", value_parser = |text: &str| TenantName::new(text))]
    tenant: Option<TenantName>,

    #[command(flatten)]
    pool: PoolArgs,
}

/// Requests the list or the description and prints it.
pub fn run(args: Args) -> Outcome {
    super::run_until_interrupted(async move {
        let name = args.table.as_deref().map(TableName::parse).transpose()?;
        let pool = args.pool.connect().await?;
        let text = match &name {
            Some(name) => match (pool.relation(name).await?, args.format) {
                (Relation::Table(table), TextFormat::Json) => as_json(&[table]),
                (Relation::Table(table), _) => columns(&table),
                (Relation::View(view), format) => query(&view, format),
            },
            None => {
                let Listing { tables, views, .. } = pool.list(args.tenant.as_ref()).await?;
                if tables.is_empty() && views.is_empty() {
                    eprintln!("no tables yet; 'farpool load TABLE FILE' adds one");
                }
                match args.format {
                    TextFormat::Json => as_json(&tables) + &views_as_json(&views),
                    _ => overview(&tables, &views),
                }
            }
        };
        args.format.print(&text)
    })
}

fn overview(tables: &[TableInfo], views: &[TableName]) -> String {
    if tables.is_empty() && views.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&[
        ("table", Align::Left),
        ("rows", Align::Right),
        ("columns", Align::Right),
        ("plain", Align::Right),
        ("encoded", Align::Right),
        ("ratio", Align::Right),
        ("in memory", Align::Right),
        ("version", Align::Right),
    ]);
    for table in tables {
        grid.row(vec![
            table.name.written(),
            size::count(table.rows),
            table.columns.len().to_string(),
            size::bytes(table.bytes_plain),
            size::bytes(table.bytes_encoded),
            size::factor(table.bytes_plain, table.bytes_encoded),
            resident(table),
            table.version.to_string(),
        ]);
    }
    for view in views {
        let none = || "-".to_string();
        let name = format!("{} (view)", view.written());
        grid.row(vec![name, none(), none(), none(), none(), none(), none(), none()]);
    }
    grid.to_string()
}

/// Formats how much of a table is in memory, in percent: 100 only if all of it is.
fn resident(table: &TableInfo) -> String {
    let part = resident_part(table);
    if table.is_pinned { format!("{part}, pinned") } else { part }
}

fn resident_part(table: &TableInfo) -> String {
    match table.bytes_resident {
        None => "-".to_string(),
        Some(bytes) if bytes >= table.bytes_encoded => "100%".to_string(),
        Some(bytes) => format!("{}%", (u128::from(bytes) * 100 / u128::from(table.bytes_encoded)).min(99)),
    }
}

fn query(view: &View, format: TextFormat) -> String {
    match format {
        TextFormat::Json => {
            format!(
                "{}\n",
                json!({ "schema": view.name().schema(), "name": view.name().table(), "view": true, "query": view.text() })
            )
        }
        TextFormat::Table => format!("{}: a view\n{}\n", view.name(), printable_lines(view.text())),
    }
}

fn columns(table: &TableInfo) -> String {
    let mut grid = Grid::new(&[
        ("column", Align::Left),
        ("type", Align::Left),
        ("NULLs", Align::Right),
        ("distinct", Align::Right),
        ("least", Align::Left),
        ("greatest", Align::Left),
        ("encoded", Align::Right),
    ]);
    for (field, column) in table.schema.fields().iter().zip(&table.columns) {
        let value = |v: &Option<farpool::model::Literal>| v.as_ref().map_or("-".to_string(), shortened);
        grid.row(vec![
            field.name().clone(),
            sql_name(field.data_type()),
            size::count(column.null_count),
            distinct(column.distinct_count, column.distinct_estimate),
            value(&column.min),
            value(&column.max),
            size::bytes(column.bytes_encoded),
        ]);
    }
    let title = format!(
        "{}: {}, {} plain, {} encoded ({})\n",
        table.name,
        size::counted(table.rows, "row"),
        size::bytes(table.bytes_plain),
        size::bytes(table.bytes_encoded),
        size::factor(table.bytes_plain, table.bytes_encoded)
    );
    let title = match table.encryption {
        Some(tier) => format!("{}, encrypted in memory: {tier}\n", title.trim_end()),
        None => title,
    };
    title + &grid.to_string()
}

/// Formats the exact or estimated number of distinct values.
fn distinct(exact: Option<u64>, estimate: Option<u64>) -> String {
    match (exact, estimate) {
        (Some(count), _) => size::count(count),
        (None, Some(estimate)) => format!("~{}", size::count(estimate)),
        (None, None) => "-".to_string(),
    }
}

/// Truncates a value, because long strings would push the other columns off the screen.
fn shortened(literal: &farpool::model::Literal) -> String {
    const CHARACTERS: usize = 28;
    let text = literals::text(literal);
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn as_json(tables: &[TableInfo]) -> String {
    tables.iter().map(|table| format!("{}\n", farpool::table_json(table))).collect()
}

fn views_as_json(views: &[TableName]) -> String {
    views
        .iter()
        .map(|name| format!("{}\n", json!({ "schema": name.schema(), "name": name.table(), "view": true })))
        .collect()
}
