//! A tap: the profile of rows, made on their way into a table by the threads that encode them.
//!
//! Invariant: a tap never keeps a load from going on. Where a profile cannot be made or kept, the table just
//! has none.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;
use farpool_columns::{Chunk, Encoder, PlainGroup, RowGroup};
use farpool_model::{ColumnStates, MomentsState, Result, Spread};
use farpool_statistics::{Codes, Known, Profile};
use parking_lot::Mutex;
use std::sync::Arc;

/// See the file's comment. Each thread takes a profile, adds to it and puts it back, so that there are as
/// many as threads.
#[derive(Debug)]
pub(super) struct Tap {
    schema: SchemaRef,
    /// `None` once one failed, and if there are to be none.
    idle: Mutex<Option<Vec<Profile>>>,
}

/// What was gathered of a version of a table, in the pool with its row groups.
#[derive(Clone, Debug)]
pub(super) struct Gathered {
    pub columns: Vec<ColumnStates>,
    pub moments: Option<MomentsState>,
    /// About how many distinct values each column has.
    pub distinct: Vec<Option<u64>>,
    /// How the values of each column are spread.
    pub spreads: Vec<Option<Arc<Spread>>>,
}

impl Tap {
    /// A tap on rows of `schema`, which is canonical.
    pub fn new(schema: SchemaRef) -> Self {
        Tap { schema, idle: Mutex::new(Some(Vec::new())) }
    }

    /// One that lets rows pass unseen.
    pub fn closed(schema: SchemaRef) -> Self {
        Tap { schema, idle: Mutex::new(None) }
    }

    /// Encodes a row group and adds its rows to a profile, column by column while each is in the core's cache.
    ///
    /// # Errors
    /// As [`Encoder::encode`]; there are none of the profile's.
    pub fn encode(&self, encoder: &Encoder, group: &PlainGroup) -> Result<RowGroup> {
        let Some(idle) = self.idle.lock().as_mut().map(Vec::pop) else { return encoder.encode(group) };
        let profile = idle.map_or_else(|| Profile::new(&self.schema), Ok);
        let mut watching = Watching { profile, numbers: Vec::new() };
        let encoded = encoder.encode_watched(group, &mut |column, values, chunk| {
            watching.observe(column, values, chunk);
        });
        let profile = encoded.is_ok().then(|| watching.finish().ok()).flatten();
        let mut idle = self.idle.lock();
        match (profile, idle.as_mut()) {
            (Some(profile), Some(idle)) => idle.push(profile),
            _ => *idle = None,
        }
        encoded
    }

    /// The profile of all rows.
    pub fn finish(self) -> Option<Profile> {
        let mut parts = self.idle.into_inner()?.into_iter();
        let first = parts.next().map_or_else(|| Profile::new(&self.schema), Ok);
        parts.try_fold(first.ok()?, |mut whole, part| whole.merge(&part).ok().map(|()| whole))
    }
}

/// A profile that rows are added to.
struct Watching {
    profile: Result<Profile>,
    /// The columns of the moments, which are taken together.
    numbers: Vec<ArrayRef>,
}

impl Watching {
    fn observe(&mut self, column: usize, values: &ArrayRef, chunk: &Chunk) {
        let Ok(profile) = &mut self.profile else { return };
        if profile.moments().is_some_and(|moments| moments.place(column).is_some()) {
            self.numbers.push(values.clone());
        }
        if let Err(error) = profile.update_column(column, values, known(chunk)) {
            self.profile = Err(error);
        }
    }

    fn finish(self) -> Result<Profile> {
        let mut profile = self.profile?;
        profile.update_moments(&self.numbers)?;
        Ok(profile)
    }
}

/// Rows of a chunk for each value that it may have, from which on counting by code pays.
const ROWS_PER_VALUE_MIN: usize = 2;

/// What the encoder found out about the values of a chunk.
fn known(chunk: &Chunk) -> Known {
    let zone = chunk.zone();
    Known { codes: codes(chunk), bounds: zone.min.clone().zip(zone.max.clone()) }
}

/// Numbers of the values of a chunk, if they are few: the codes of a dictionary, or numbers close together.
fn codes(chunk: &Chunk) -> Option<Codes> {
    let integers = match chunk.dictionary() {
        Some(dictionary) => dictionary.codes(),
        None => chunk.integers()?,
    };
    let domain = usize::try_from(integers.max().checked_sub(integers.min())?).ok()?.checked_add(1)?;
    if domain > chunk.rows() / ROWS_PER_VALUE_MIN {
        return None;
    }
    let mut of_rows = Vec::new();
    integers.widen_deltas_u32(0..chunk.rows(), &mut of_rows);
    Some(Codes { of_rows, domain })
}

impl Gathered {
    /// `profile` in the pool, beside the chunks of `encoder`.
    pub fn keep(profile: &Profile, encoder: &Encoder) -> Option<Self> {
        let states = encoder.keep(&profile.states()).ok()?;
        let (columns, moments) = profile.arrange(states);
        let distinct =
            profile.columns().iter().map(|c| c.sketch.distinct().map(|e| e.value as u64)).collect();
        let spreads = profile.columns().iter().map(|c| c.spread().map(Arc::new)).collect();
        Some(Gathered { columns, moments, distinct, spreads })
    }

    /// The profile of these rows and of `more`.
    pub fn with(&self, schema: &SchemaRef, more: &Profile) -> Option<Profile> {
        let mut profile = Profile::from_states(schema, &self.columns, self.moments.as_ref()).ok()??;
        profile.merge(more).ok().map(|()| profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, Int32Array, Int64Array, RecordBatch, StringViewArray};
    use arrow_schema::{DataType, Field, Schema};
    use farpool_columns::TableBuilder;
    use farpool_memory::{Pool, PoolConfig};
    use farpool_model::TenantName;

    #[test]
    fn codes_of_the_encoder_tell_what_the_values_tell() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("few", DataType::Utf8View, true),
            Field::new("close", DataType::Int32, true),
            Field::new("apart", DataType::Int64, true),
            Field::new("null", DataType::Int32, true),
        ]));
        let unless = |value: i64, every: i64| (value % every != 0).then_some(value);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(
                (0..9000)
                    .map(|i| unless(i, 7).map(|i| format!("name {}", i % 11)))
                    .collect::<StringViewArray>(),
            ),
            Arc::new((0..9000).map(|i| unless(i, 5).map(|i| (i % 300) as i32 - 100)).collect::<Int32Array>()),
            Arc::new((0..9000).map(|i| unless(i, 3).map(|i| i * i * 1_000_003)).collect::<Int64Array>()),
            Arc::new(Int32Array::new_null(9000)),
        ];
        let pool = Pool::new(PoolConfig { bytes_limit: 16 << 20 }).unwrap();
        let mut builder = TableBuilder::new(pool, TenantName::default(), &schema, None).unwrap();
        builder.buffer(&RecordBatch::try_new(schema.clone(), columns.clone()).unwrap()).unwrap();
        let tap = Tap::new(schema.clone());
        let group = tap.encode(&builder.encoder(), &builder.take_last_row_group().unwrap()).unwrap();
        assert!(codes(&group.chunks[0]).is_some() && codes(&group.chunks[1]).is_some());
        assert!(codes(&group.chunks[2]).is_none());
        let (tapped, mut plain) = (tap.finish().unwrap(), Profile::new(&schema).unwrap());
        plain.update(&columns).unwrap();
        for ((ours, plain), column) in tapped.columns().iter().zip(plain.columns()).zip(&columns) {
            let answers = |sketch: &farpool_statistics::Sketch| {
                let bounds = (sketch.minimum().cloned(), sketch.maximum().cloned());
                (sketch.rows(), sketch.nulls(), bounds, sketch.distinct(), sketch.second_moment())
            };
            assert_eq!(answers(&ours.sketch), answers(&plain.sketch));
            assert_eq!(ours.sketch.nulls(), column.null_count() as u64);
            let bins = |profile: &farpool_statistics::ColumnProfile| {
                profile.histogram.as_ref().map(|h| h.to_bytes())
            };
            assert_eq!(bins(ours), bins(plain));
        }
    }
}
