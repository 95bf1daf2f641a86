//! Converts profiles (sketches, histograms and moments of a table's columns) to encoded states and back. States
//! are sent and stored in encoded form.

use super::{ColumnMoments, ColumnProfile, Profile};
use crate::{Histogram, Moments, Sketch};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::{ColumnStates, Error, MomentsState, Result, TableStatistics};

impl Profile {
    /// Encodes all states, in the order that [`Profile::arrange`] expects: those of each column, then that of the
    /// moments.
    pub fn states(&self) -> Vec<Vec<u8>> {
        let columns = (0..self.columns.len()).flat_map(|column| self.column_states(column));
        columns.chain(self.moments_state()).collect()
    }

    /// Encodes the states of one column, which must exist.
    pub fn column_states(&self, column: usize) -> Vec<Vec<u8>> {
        let column = &self.columns[column];
        let histogram = column.histogram.as_ref().map(Histogram::to_bytes);
        std::iter::once(column.sketch.to_bytes()).chain(histogram).collect()
    }

    /// Returns the state of the moments, if there are any.
    pub fn moments_state(&self) -> Option<Vec<u8>> {
        self.moments.as_ref().map(|moments| moments.moments.to_bytes())
    }

    /// Merges the states of one column into those of earlier rows, `before`, and keeps the result in this profile.
    /// The caller must do so for all columns, and call [`Profile::put_moments_behind`], because the parts of a
    /// profile must refer to the same rows.
    ///
    /// # Errors
    /// `Corrupt` when the states are corrupt or not of the column.
    pub fn put_column_behind(&mut self, column: usize, before: &ColumnStates) -> Result<()> {
        let data_type = self.schema.field(column).data_type();
        let mut whole = ColumnProfile::read(before, data_type)?;
        whole.merge(&self.columns[column])?;
        self.columns[column] = whole;
        Ok(())
    }

    /// Merges the moments into those of earlier rows, `before`, and keeps the result in this profile.
    ///
    /// # Errors
    /// `Corrupt` when the state is corrupt or of other columns.
    pub fn put_moments_behind(&mut self, before: Option<&MomentsState>) -> Result<()> {
        let before = before.map(|state| ColumnMoments::read(state, &self.schema)).transpose()?;
        match (before, &mut self.moments) {
            (Some(mut whole), Some(ours)) if whole.columns == ours.columns => {
                whole.moments.merge(&ours.moments)?;
                *ours = whole;
                Ok(())
            }
            (None, None) => Ok(()),
            _ => Err(Error::corrupt("moments of other columns than the table's")),
        }
    }

    /// Assigns encoded states, which must be in the order of [`Profile::states`], to the columns and the moments.
    pub fn arrange(&self, states: Vec<Bytes>) -> (Vec<ColumnStates>, Option<MomentsState>) {
        let mut states = states.into_iter();
        let columns = self.columns.iter().map(|column| ColumnStates {
            sketch: states.next(),
            histogram: column.histogram.as_ref().and_then(|_| states.next()),
        });
        let columns = columns.collect();
        let moments = self.moments.as_ref().and_then(|moments| {
            let columns = moments.columns.iter().map(|column| *column as u32).collect();
            Some(MomentsState { columns, state: states.next()? })
        });
        (columns, moments)
    }

    /// Decodes the profile in the statistics of a table; `None` if they have none.
    ///
    /// # Errors
    /// `Corrupt` when a state is corrupt or not of its column.
    pub fn read(statistics: &TableStatistics) -> Result<Option<Profile>> {
        Profile::from_states(&statistics.table.schema, &statistics.columns, statistics.moments.as_ref())
    }

    /// Decodes the profile of a table of `schema` from its states; `None` if some are missing.
    ///
    /// # Errors
    /// As [`Profile::read`].
    pub fn from_states(
        schema: &SchemaRef,
        columns: &[ColumnStates],
        moments: Option<&MomentsState>,
    ) -> Result<Option<Profile>> {
        if columns.len() != schema.fields().len() || columns.iter().any(|c| c.sketch.is_none()) {
            return Ok(None);
        }
        let read = columns.iter().zip(schema.fields()).map(|(states, field)| {
            ColumnProfile::read(states, field.data_type()).map_err(|error| error.at(field.name()))
        });
        Ok(Some(Profile {
            columns: read.collect::<Result<_>>()?,
            moments: moments.map(|state| ColumnMoments::read(state, schema)).transpose()?,
            schema: schema.clone(),
            repeats: super::Repeats::default(),
        }))
    }
}

impl ColumnProfile {
    fn read(states: &ColumnStates, data_type: &arrow_schema::DataType) -> Result<ColumnProfile> {
        let sketch = Sketch::from_bytes(states.sketch.as_deref().unwrap_or_default())?;
        if sketch.data_type() != data_type {
            let message = format!("a sketch of {} where the column is {data_type}", sketch.data_type());
            return Err(Error::corrupt(message));
        }
        let histogram = states.histogram.as_deref().map(Histogram::from_bytes).transpose()?;
        if histogram.as_ref().is_some_and(|histogram| !histogram.is_for(data_type)) {
            return Err(Error::corrupt(format!("a histogram of other values than {data_type}")));
        }
        Ok(ColumnProfile { sketch, histogram })
    }
}

impl ColumnMoments {
    fn read(state: &MomentsState, schema: &SchemaRef) -> Result<ColumnMoments> {
        let moments = Moments::from_bytes(&state.state)?;
        let columns: Vec<usize> = state.columns.iter().map(|column| *column as usize).collect();
        let type_of = |column: &usize| schema.fields().get(*column).map(|field| field.data_type());
        let fit = columns.is_sorted_by(|a, b| a < b)
            && columns.len() == moments.columns()
            && columns.iter().map(type_of).eq(moments.types().iter().map(Some));
        match fit {
            true => Ok(ColumnMoments { columns, moments }),
            false => Err(Error::corrupt("moments of other columns than the table's")),
        }
    }
}
