//! A profile as the states that travel and lie in the pool, and back.

use super::{ColumnMoments, ColumnProfile, Profile};
use crate::{Histogram, Moments, Sketch};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use farpool_model::{ColumnStates, Error, MomentsState, Result, TableStatistics};

impl Profile {
    /// The states one by one, in the order in which [`Profile::arrange`] takes them.
    pub fn states(&self) -> Vec<Vec<u8>> {
        let of_column = |column: &ColumnProfile| {
            [Some(column.sketch.to_bytes()), column.histogram.as_ref().map(Histogram::to_bytes)]
        };
        let columns = self.columns.iter().flat_map(of_column).flatten();
        columns.chain(self.moments.as_ref().map(|m| m.moments.to_bytes())).collect()
    }

    /// The states of this profile, given one by one as [`Profile::states`] has them, by column.
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

    /// The profile that the statistics of a table hold; `None` if they were not gathered.
    ///
    /// # Errors
    /// `Corrupt` when a state is damaged or not of its column.
    pub fn read(statistics: &TableStatistics) -> Result<Option<Profile>> {
        Profile::from_states(&statistics.table.schema, &statistics.columns, statistics.moments.as_ref())
    }

    /// The profile of a table of `schema` from its states; `None` if there are not all of them.
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
