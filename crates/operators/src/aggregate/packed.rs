//! The packed keys of the rows of one row group.

use super::compile::{Aggregation, Key};
use super::mixed::valid_bits;
use crate::bits;
use crate::group::Packing;
use crate::lanes::{BoundLanes, LaneBuffers, LaneId, RowSet};
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use farpool_columns::{Chunk, RowGroup};
use farpool_model::Result;

/// The keys of an aggregation that are packed, bound to a row group.
pub(super) struct PackedKeys<'a> {
    packing: &'a Packing,
    keys: Vec<(&'a Key, Source<'a>)>,
    codes: Vec<i64>,
}

/// Where the values of a key come from.
enum Source<'a> {
    Lane(LaneId),
    Boolean(&'a Chunk),
    /// NULL in all rows.
    Null,
}

impl<'a> PackedKeys<'a> {
    /// The keys of `aggregation` over `group`, if they are packed.
    pub(super) fn bind(
        aggregation: &'a Aggregation,
        lanes: &BoundLanes<'a>,
        group: &'a RowGroup,
    ) -> Option<Self> {
        let packing = aggregation.packing.as_deref()?;
        let source = |key: &'a Key| {
            let source = match (key.compiled.data_type(), key.compiled.as_column()) {
                (DataType::Boolean, Some(column)) => Source::Boolean(&group.chunks[column]),
                // A lane that holds in the whole table fails to where a column is all NULL.
                _ => key.lane.filter(|l| lanes.interval(*l).is_some()).map_or(Source::Null, Source::Lane),
            };
            (key, source)
        };
        let keys = aggregation.keys.iter().map(source).collect();
        Some(PackedKeys { packing, keys, codes: Vec::new() })
    }

    /// The lanes that keys are read from.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.keys.iter().filter_map(|(_, source)| match source {
            Source::Lane(lane) => Some(*lane),
            _ => None,
        })
    }

    /// The packed key of each row.
    ///
    /// # Errors
    /// None but defects.
    pub(super) fn codes(
        &mut self,
        group: &RowGroup,
        rows: RowSet<'_>,
        lanes: &LaneBuffers,
    ) -> Result<&[i64]> {
        let codes = &mut self.codes;
        codes.clear();
        codes.resize(rows.len(), 0);
        for (index, (key, source)) in self.keys.iter().enumerate() {
            match source {
                Source::Lane(lane) => {
                    self.packing.add_values(index, &lanes.values(*lane)[..rows.len()], codes);
                }
                Source::Boolean(chunk) => {
                    let values = match rows {
                        RowSet::Range(start, end) => chunk.decode(start..end)?,
                        RowSet::Rows(rows) => chunk.gather(rows)?,
                    };
                    let values: Vec<i64> = values.as_boolean().values().iter().map(i64::from).collect();
                    self.packing.add_values(index, &values, codes);
                }
                Source::Null => {
                    self.packing.set_nulls(index, 0..rows.len(), codes);
                    continue;
                }
            }
            if let Some(valid) = valid_bits(group, key.compiled.columns(), rows) {
                let nulls = (0..rows.len()).filter(|row| !bits::get(&valid, *row));
                self.packing.set_nulls(index, nulls, codes);
            }
        }
        Ok(codes)
    }
}
