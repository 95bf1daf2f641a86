//! The one chooser: which way a row group goes, and why.
//!
//! The ways are tried in the order in which they pay, the cheapest first; each tells by itself whether it can be taken.
//! What holds for the whole table was found out before ([`FittedAggregation`]).

use super::dense::DenseRows;
use super::fitted::FittedAggregation;
use super::fused;
use super::mixed::{KeyForm, Mixed};
use super::unfit::Unfit;
use super::whole::WholeTable;
use super::zones::{self, Known};
use farpool_columns::RowGroup;
use farpool_model::Result;
use std::fmt;

/// How the rows of a row group are aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Zone maps tell the result; no row is read.
    Zones,
    /// Into one array for the whole table, indexed by the keys.
    Whole,
    /// Into arrays for a row group, indexed by the codes of its keys.
    Fused,
    /// The fused way without keys: on packed columns.
    Totals,
    /// Lanes and codes where they are there, the rest decoded; groups are found as [`KeyForm`] says.
    Mixed(KeyForm),
    /// Everything decoded.
    General,
}

/// A way that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenWay {
    /// The way.
    pub way: Way,
    /// Whether rows are partitioned once there are many groups.
    pub partitions: bool,
    /// Why it is this one and none that comes before it.
    pub reason: String,
}

/// A way for a row group, with what it needs to run.
pub(crate) enum Choice<'a> {
    Zones(Vec<Known<'a>>),
    /// No row can add anything to what the worker's table has.
    Complete,
    Whole(DenseRows<'a>),
    Fused(DenseRows<'a>),
    /// Because the fused way is not fit.
    Mixed(Unfit),
    /// Because nothing else is allowed.
    General,
}

impl FittedAggregation {
    /// The way for `group`, of which every row passes the filter or some do, for a worker that has `table`.
    ///
    /// # Errors
    /// `Internal` when the row group is of another table.
    pub(super) fn choose<'a>(
        &'a self,
        group: &'a RowGroup,
        every_row: bool,
        table: Option<&WholeTable>,
    ) -> Result<Choice<'a>> {
        let asked = &self.aggregation;
        if !asked.paths.fused {
            return Ok(Choice::General);
        }
        if every_row && let Some(known) = zones::known(asked, group) {
            return Ok(Choice::Zones(known));
        }
        if let Ok(whole) = &self.whole {
            return match table {
                Some(table) if table.is_complete(whole) => Ok(Choice::Complete),
                _ => DenseRows::within(asked, whole.keys(), whole.measures(), group).map(Choice::Whole),
            };
        }
        Ok(fused::bind(asked, group)?.map_or_else(Choice::Mixed, Choice::Fused))
    }

    /// The way for `group`, and why.
    ///
    /// # Errors
    /// As [`FittedAggregation::choose`].
    pub(crate) fn explain(&self, group: &RowGroup, every_row: bool) -> Result<ChosenWay> {
        let (way, reason) = match self.choose(group, every_row, None)? {
            Choice::Zones(_) => (Way::Zones, "every row passes and zone maps tell all".to_string()),
            Choice::Complete => (Way::Whole, "every group is there".to_string()),
            Choice::Whole(rows) => {
                (Way::Whole, format!("the keys are within a domain of {}", rows.keys.domain))
            }
            Choice::Fused(rows) if rows.keys.is_empty() => {
                (Way::Totals, "all is computed on lanes".to_string())
            }
            Choice::Fused(rows) => {
                (Way::Fused, format!("the keys of a row group are within a domain of {}", rows.keys.domain))
            }
            Choice::Mixed(Unfit(reason)) => {
                (Way::Mixed(Mixed::key_form(&self.aggregation, group)?), reason.to_string())
            }
            Choice::General => (Way::General, "no other way is allowed".to_string()),
        };
        let partitions = self.radix.is_some() && matches!(way, Way::Mixed(KeyForm::Packed | KeyForm::Words));
        Ok(ChosenWay { way, partitions, reason })
    }

    /// Whether `group` can go the fused way.
    #[cfg(test)]
    pub(crate) fn fuses(&self, group: &RowGroup) -> bool {
        fused::bind(&self.aggregation, group).is_ok_and(|rows| rows.is_ok())
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Zones => "from zone maps",
            Way::Whole => "by one array for the table",
            Way::Fused => "by arrays for each row group",
            Way::Totals => "on packed columns",
            Way::Mixed(KeyForm::None) => "column by column",
            Way::Mixed(KeyForm::Dense) => "by hash table, once per key and row group",
            Way::Mixed(KeyForm::Packed) => "by hash table of packed keys",
            Way::Mixed(KeyForm::Words) => "by hash table of keys as words",
            Way::General => "on decoded arrays",
        })
    }
}

impl fmt::Display for ChosenWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitioned = if self.partitions { ", partitioned once there are many groups" } else { "" };
        write!(f, "{}{partitioned}: {}", self.way, self.reason)
    }
}
