//! The suite `groups`: queries of one client that read the same columns have these sent once.

mod definition;
mod link;
mod measure;
mod report;
mod scans;

use crate::suite;
use anyhow::Result;
use definition::Definition;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only tables whose names have this in them.
    #[arg(long)]
    tables: Option<String>,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let refused = link::enter();
    let mut definition = Definition::read(options.common.quick)?;
    definition.runs = options.common.runs.unwrap_or(definition.runs).max(1);
    let names = definition.tables.iter().map(|table| table.name.clone()).collect::<Vec<_>>();
    if let Some(part) = &options.tables {
        // Dashboards keep the table of their position.
        let kept = |place: usize| names[place].contains(part);
        definition.dashboards.retain(|dashboard| kept(dashboard.table));
        let places: Vec<usize> = (0..names.len()).filter(|place| kept(*place)).collect();
        for dashboard in &mut definition.dashboards {
            dashboard.table = places.iter().position(|place| *place == dashboard.table).unwrap_or_default();
        }
        definition.tables.retain(|table| table.name.contains(part));
    }
    let notes = refused.into_iter().map(|why| format!("without a network of its own: {why}")).collect();
    let results = measure::run(&definition, notes)?;
    options.common.report(&results.date, "groups", &results, &report::text(&results, &definition))
}
