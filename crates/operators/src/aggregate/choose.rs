//! Chooses the way (the implementation of aggregation) for a row group, and gives the reason for EXPLAIN.
//!
//! Ways are tried from the cheapest to the most expensive; each decides whether it can be used. Decisions that depend
//! on the whole table were made when the aggregation was adapted to it ([`FittedAggregation`]).
//!
//! A *group number* is the array index of a group, computed from integer codes of its group keys (such as dictionary
//! codes).

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

/// The way (implementation) by which the rows of a row group are aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From zone maps alone; no row is read.
    Zones,
    /// Into one array for the whole table. Its indices are group numbers, computed from integer codes of the group
    /// keys (such as dictionary codes).
    Whole,
    /// Into an array for the row group. Its indices are group numbers, computed from integer codes of the group keys
    /// in the row group.
    Fused,
    /// As [`Way::Fused`], for an aggregation without group keys: bit-packed columns are summed while they are unpacked.
    Totals,
    /// From encoded values where possible, and decoded arrays otherwise. Groups are found by [`KeyForm`].
    Mixed(KeyForm),
    /// From decoded arrays only. This supports every aggregation.
    General,
}

/// The way that was chosen for a row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenWay {
    /// The way.
    pub way: Way,
    /// Whether rows are partitioned by the hash of their group keys once there are many groups.
    pub partitions: bool,
    /// Why this way was chosen and why each cheaper one cannot be used.
    pub reason: String,
}

/// The way chosen for a row group, with the data that it needs to run.
pub(crate) enum Choice<'a> {
    Zones(Vec<Known>),
    /// No way is needed: only the distinct group keys are wanted, and the worker has every possible one already.
    Complete,
    Whole(DenseRows<'a>),
    Fused(DenseRows<'a>),
    /// The mixed way, with the reason why the fused way cannot be used.
    Mixed(Unfit),
    /// The general way, because no other is allowed.
    General,
}

impl FittedAggregation {
    /// Chooses the way for `group`. `every_row` is true if all rows of `group` pass the filter. `table` is the
    /// worker's array of the whole-table way; `None` if that way is not used.
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

    /// Returns whether the result for `group` follows from its zone maps (minimum, maximum and NULL count of each
    /// column) alone. All its rows must pass the filter.
    pub(crate) fn is_told_by_zones(&self, group: &RowGroup) -> bool {
        self.aggregation.paths.fused && zones::known(&self.aggregation, group).is_some()
    }

    /// Returns the way for `group` and the reason for it.
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

    /// Returns whether the fused way can be used for `group`.
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
