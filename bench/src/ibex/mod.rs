//! The suite `ibex`: the experiments of the Ibex paper through a database system. Tables of a node are foreign tables of a
//! PostgreSQL, and compared with tables of its own.

mod definition;
mod goals;
mod measure;
mod report;
mod stage;
mod tables;

use crate::suite;
use anyhow::Result;
use clap::ValueEnum;
use definition::Definition;
use serde::Serialize;

/// Options of the suite.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    common: suite::Options,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Option<Vec<Part>>,
    /// Another scale factor of TPC-H than the suite's, for all parts that have one.
    #[arg(long)]
    scale: Option<f64>,
}

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Groups, by the size of the table.
    Sizes,
    /// Groups, by the number of aggregates.
    Aggregates,
    /// A count, by the number of predicates.
    Predicates,
    /// Groups, by the share of rows that have a group of their own.
    Bypass,
    /// Filters over `lineitem`.
    Filters,
    /// TPC-H's query 13 in the forms of the paper.
    Q13,
    /// The 22 queries of TPC-H.
    Tpch,
}

impl Part {
    /// Returns the title in the report.
    fn title(self) -> &'static str {
        match self {
            Part::Sizes => "groups, by the size of the values (figure 9)",
            Part::Aggregates => "groups, by aggregates (figure 11)",
            Part::Predicates => "count, by predicates",
            Part::Bypass => "groups, by the share of rows with a key of their own (figure 10)",
            Part::Filters => "filters over lineitem (figure 13)",
            Part::Q13 => "TPC-H Q13 as in the paper (figure 14)",
            Part::Tpch => "TPC-H",
        }
    }
}

/// Runs the suite and prints its report.
pub fn run(options: &Options) -> Result<()> {
    let mut definition: Definition = options.common.definition("ibex")?;
    if let Some(scale) = options.scale {
        definition.filters.scales = vec![scale];
        definition.q13.scale = scale;
        definition.tpch.scale = scale;
    }
    let parts = options.parts.as_deref().unwrap_or(Part::value_variants());
    let results = suite::runtime(definition.threads)?.block_on(measure::run(&definition, parts))?;
    let name = suite::name_of_parts("ibex", options.parts.as_deref());
    options.common.report(&results.head.date, &name, &results, &report::text(&results))
}
