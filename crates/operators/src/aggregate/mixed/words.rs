//! Finds the groups of rows with group keys of any type: the group keys of a row are encoded as a sequence of
//! 64-bit words.
//!
//! Values come from decoded arrays or from *lanes* (columns or expressions evaluated as 64-bit integers).

use super::keys::{KeyForm, KeyInput, KeyLookup};
use crate::aggregate::aggregation::{Aggregation, Key};
use crate::aggregate::radix;
use crate::aggregate::valid::valid_bits;
use crate::bits;
use crate::group::{Groups, KeyValues, Rows};
use crate::lanes::{BoundLanes, LaneId};
use arrow_buffer::NullBuffer;
use farpool_model::Result;
use std::collections::BTreeSet;

/// Group keys as sequences of words, bound to one row group.
pub(crate) struct WordKeys<'a> {
    keys: Vec<(&'a Key, Source)>,
    words: Rows,
}

/// Source of the values of one group key.
#[derive(Clone, Copy)]
enum Source {
    Lane(LaneId),
    Array,
}

impl<'a> WordKeys<'a> {
    /// Binds the group keys of `aggregation` to a row group.
    pub(super) fn bind(aggregation: &'a Aggregation, lanes: &BoundLanes<'_>) -> Self {
        let source = |key: &Key| match key.lane.filter(|lane| lanes.interval(*lane).is_some()) {
            Some(lane) => Source::Lane(lane),
            None => Source::Array,
        };
        let keys = aggregation.keys.iter().map(|key| (key, source(key))).collect();
        WordKeys { keys, words: Rows::default() }
    }

    /// Returns the values of all group keys for some rows.
    fn values<'v>(&self, input: KeyInput<'v>) -> Result<Vec<KeyValues<'v>>> {
        let values = |(key, source): &(&Key, Source)| match source {
            Source::Lane(lane) => {
                let valid = valid_bits(input.group, key.compiled.columns(), input.rows);
                let rows = input.rows.len();
                let nulls = valid.map(|valid| NullBuffer::new(bits::to_buffer(&valid, rows)));
                Ok(KeyValues::Lane { values: &input.lanes.values(*lane)[..rows], nulls })
            }
            Source::Array => Ok(KeyValues::Array(key.compiled.array(input.frame)?)),
        };
        self.keys.iter().map(values).collect()
    }
}

impl KeyLookup for WordKeys<'_> {
    fn form(&self) -> KeyForm {
        KeyForm::Words
    }

    fn lanes(&self, lanes: &mut Vec<LaneId>) {
        lanes.extend(self.keys.iter().filter_map(|(_, source)| match source {
            Source::Lane(lane) => Some(*lane),
            Source::Array => None,
        }));
    }

    fn decoded(&self, columns: &mut BTreeSet<usize>) {
        let arrays = self.keys.iter().filter(|(_, source)| matches!(source, Source::Array));
        arrays.for_each(|(key, _)| columns.extend(key.compiled.columns()));
    }

    fn identify(&mut self, input: KeyInput<'_>, groups: &mut Groups, ids: &mut Vec<u32>) -> Result<()> {
        groups.intern(&self.values(input)?, input.rows.len(), ids)
    }

    fn partitionable(&mut self, input: KeyInput<'_>, groups: &Groups) -> Result<Option<radix::Keys<'_>>> {
        let values = self.values(input)?;
        groups.encode(&values, input.rows.len(), &mut self.words)?;
        Ok(Some(radix::Keys::Rows(&self.words)))
    }
}
