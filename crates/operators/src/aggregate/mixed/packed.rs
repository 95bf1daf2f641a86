//! Finds the groups of rows whose group keys are packed into one 64-bit integer, in one row group.

use super::keys::{KeyForm, KeyInput, KeyLookup};
use crate::aggregate::aggregation::{Aggregation, Key};
use crate::aggregate::radix;
use crate::aggregate::valid::valid_bits;
use crate::bits;
use crate::group::{Groups, Packing, lanes_of_array};
use crate::lanes::{BoundLanes, LaneId, RowSet};
use arrow_array::Array;
use farpool_columns::{Chunk, Integers, RowGroup};
use farpool_model::{Error, Result};
use std::collections::BTreeSet;

/// Packed group keys of an aggregation, bound to a row group.
pub(crate) struct PackedKeys<'a> {
    packing: &'a Packing,
    keys: Vec<(&'a Key, Source<'a>)>,
    codes: Vec<i64>,
    /// Scratch memory: for each row, the code in the whole table of a string group key.
    numbers: Vec<i64>,
}

/// Source of the values of one group key in the row group.
enum Source<'a> {
    Lane(LaneId),
    /// Dictionary codes of the chunk, and for each dictionary entry its code in the whole table.
    Texts(Integers<'a>, Vec<i64>),
    /// A column of booleans or floats.
    Column(&'a Chunk),
    /// An expression that is evaluated on decoded arrays.
    Computed,
    /// NULL in all rows.
    Null,
}

impl<'a> PackedKeys<'a> {
    /// Binds the group keys of `aggregation` to `group`; `None` if they are not packed.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    pub(super) fn bind(
        aggregation: &'a Aggregation,
        lanes: &BoundLanes<'a>,
        group: &'a RowGroup,
    ) -> Result<Option<Self>> {
        let Some(packing) = aggregation.packing.as_deref() else { return Ok(None) };
        let source =
            |(index, key): (usize, &'a Key)| Ok((key, source_of(packing, index, key, lanes, group)?));
        let keys = aggregation.keys.iter().enumerate().map(source).collect::<Result<_>>()?;
        Ok(Some(PackedKeys { packing, keys, codes: Vec::new(), numbers: Vec::new() }))
    }

    /// Returns the packed group keys of each row: one 64-bit integer per row.
    ///
    /// # Errors
    /// Fails only on a bug in this crate.
    fn codes(&mut self, input: KeyInput<'_>) -> Result<&[i64]> {
        let KeyInput { group, rows, frame, lanes } = input;
        let PackedKeys { codes, numbers, .. } = self;
        codes.clear();
        codes.resize(rows.len(), 0);
        for (index, (key, source)) in self.keys.iter().enumerate() {
            match source {
                Source::Lane(lane) => {
                    self.packing.add_values(index, &lanes.values(*lane)[..rows.len()], codes);
                }
                Source::Texts(integers, of_code) => {
                    match rows {
                        RowSet::Range(start, end) => integers.unpack(start..end, numbers),
                        RowSet::Rows(rows) => integers.gather(rows, numbers),
                    }
                    numbers.iter_mut().for_each(|number| *number = of_code[*number as usize]);
                    self.packing.add_values(index, numbers, codes);
                }
                Source::Column(chunk) => {
                    let values = match rows {
                        RowSet::Range(start, end) => chunk.decode(start..end)?,
                        RowSet::Rows(rows) => chunk.gather(rows)?,
                    };
                    self.packing.add_values(index, &lanes_of_array(&values)?, codes);
                }
                Source::Computed => {
                    let values = key.compiled.array(frame)?;
                    self.packing.add_values(index, &lanes_of_array(&values)?, codes);
                    if let Some(nulls) = values.nulls() {
                        let nulls = (0..rows.len()).filter(|row| nulls.is_null(*row));
                        self.packing.set_nulls(index, nulls, codes);
                    }
                    continue;
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

impl KeyLookup for PackedKeys<'_> {
    fn form(&self) -> KeyForm {
        KeyForm::Packed
    }

    fn lanes(&self, lanes: &mut Vec<LaneId>) {
        lanes.extend(self.keys.iter().filter_map(|(_, source)| match source {
            Source::Lane(lane) => Some(*lane),
            _ => None,
        }));
    }

    fn decoded(&self, columns: &mut BTreeSet<usize>) {
        let computed = self.keys.iter().filter(|(_, source)| matches!(source, Source::Computed));
        computed.for_each(|(key, _)| columns.extend(key.compiled.columns()));
    }

    fn identify(&mut self, input: KeyInput<'_>, groups: &mut Groups, ids: &mut Vec<u32>) -> Result<()> {
        groups.intern_codes(self.codes(input)?, ids)
    }

    fn partitionable(&mut self, input: KeyInput<'_>, _: &Groups) -> Result<Option<radix::Keys<'_>>> {
        Ok(Some(radix::Keys::Codes(self.codes(input)?)))
    }
}

fn source_of<'a>(
    packing: &Packing,
    index: usize,
    key: &Key,
    lanes: &BoundLanes<'a>,
    group: &'a RowGroup,
) -> Result<Source<'a>> {
    if let Some(lane) = key.lane.filter(|lane| lanes.interval(*lane).is_some()) {
        return Ok(Source::Lane(lane));
    }
    let Some(column) = key.compiled.as_column() else { return Ok(Source::Computed) };
    let chunk: &Chunk = &group.chunks[column];
    match packing.texts(index) {
        _ if chunk.null_count() == group.rows => Ok(Source::Null),
        None => Ok(Source::Column(chunk)),
        Some(texts) => {
            let dictionary = chunk.dictionary().ok_or_else(|| Error::internal("strings without numbers"))?;
            Ok(Source::Texts(dictionary.codes(), texts.numbers(dictionary.values())?))
        }
    }
}
