//! The suite `clients`: the interference between clients of one node. Measures the shares of CPU time among tenants and
//! connections that always have work, the effect of floods on a client of small queries, the mutual effects of writers
//! and readers of growing tables, and the time of statements that change a part of a table.

mod appends;
mod changes;
mod definition;
mod growing;
mod inserts;
mod measure;
mod report;
mod served;

use crate::suite;
use anyhow::Result;
use clap::ValueEnum;
use definition::Definition;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Option<Vec<Part>>,
}

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Shares of CPU time.
    Shares,
    /// Small queries during floods.
    Floods,
    /// Rows inserted one by one during queries.
    Inserts,
    /// Scans after rows were appended one by one.
    Appends,
    /// UPDATE and DELETE of a part of a table.
    Changes,
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let definition: Definition = options.common.definition("clients")?;
    let parts = options.parts.as_deref().unwrap_or(Part::value_variants());
    let results = measure::run(&definition, parts)?;
    let name = suite::name_of_parts("clients", options.parts.as_deref());
    options.common.report(&results.head.date, &name, &results, &report::text(&results))
}
