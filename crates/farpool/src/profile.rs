//! Profiles of files, streams and tables: statistics of their columns, computed in one pass.
//!
//! Invariant: a table's profile describes one version of it.

use crate::FileLoad;
use crate::files::{counted_tasks, held_columns};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use farpool_columns::to_canonical;
use farpool_files::Tasks;
use farpool_model::{Error, ReadOptions, Result, TableInfo, TableName, schema};
use farpool_statistics::Profile;
use farpool_transfer::Pool;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which the progress of a table's profile is polled. Reason: a progress bar needs no more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Files or a stream of rows that are about to be profiled.
pub struct Profiling {
    /// Schema of the requested columns.
    schema: SchemaRef,
    /// Indexes of the requested columns in the batches.
    columns: Vec<usize>,
    tasks: Tasks,
    rows_read: Arc<AtomicU64>,
}

impl Profiling {
    /// Prepares a profile of files; if `columns` is given, only of the columns with these names.
    ///
    /// # Errors
    /// `NotFound` for a column that does not exist; `Invalid` for a column whose type the pool does not support.
    pub fn of_files(load: FileLoad, columns: Option<&[String]>) -> Result<Self> {
        let positions = held_positions(load.schema(), columns)?;
        let schema = projected(load.schema(), &positions)?;
        let rows_read = load.rows_read();
        // Only the requested columns are read, in ascending order.
        let mut read = positions.clone();
        read.sort_unstable();
        let place = |p: &usize| read.binary_search(p).expect("read has every column");
        let places = positions.iter().map(place).collect();
        Ok(Profiling { schema, columns: places, tasks: load.select(read).tasks(), rows_read })
    }

    /// Prepares a profile of a stream of CSV, JSON or Arrow IPC data; errors refer to it by `name`.
    ///
    /// # Errors
    /// The errors of [`Profiling::of_files`], and those of the stream.
    pub fn of_stream(
        name: &str,
        from: impl Read + Send + 'static,
        columns: Option<&[String]>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let stream = farpool_files::open_stream(name, from, options)?;
        let columns = held_positions(&stream.schema, columns)?;
        let schema = projected(&stream.schema, &columns)?;
        let rows_read = Arc::new(AtomicU64::new(0));
        let tasks = counted_tasks(stream.tasks, rows_read.clone());
        Ok(Profiling { schema, columns, tasks, rows_read })
    }

    /// Returns the counter of the rows read so far.
    pub fn rows_read(&self) -> Arc<AtomicU64> {
        self.rows_read.clone()
    }

    /// Reads all rows, on the calling thread and other threads of this process, and returns their profile. Blocks until
    /// then.
    ///
    /// # Errors
    /// Fails if the files cannot be read.
    #[expect(clippy::disallowed_methods, reason = "a profile is made by threads that end with the call")]
    pub fn run(self) -> Result<Profile> {
        let Profiling { schema, columns, tasks, .. } = self;
        let tasks = Mutex::new(tasks);
        let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
        let profile_some = || {
            let mut profile = Profile::new(&schema)?;
            while let Some(task) = next() {
                for batch in task() {
                    let updated = batch.and_then(|batch| update(&mut profile, &batch, &columns));
                    // Makes the other threads stop after their current task.
                    updated.inspect_err(|_| {
                        *tasks.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(std::iter::empty());
                    })?;
                }
            }
            Ok(profile)
        };
        let parts: Vec<Result<Profile>> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..crate::processors()).map(|_| scope.spawn(profile_some)).collect();
            let own = profile_some();
            let defect = |_| Err(Error::internal("a defect stopped the making of a profile"));
            std::iter::once(own).chain(others.into_iter().map(|o| o.join().unwrap_or_else(defect))).collect()
        });
        merged(parts)
    }
}

/// The profile of one table version.
#[derive(Debug)]
pub struct TableProfile {
    /// Description of the table version.
    pub info: TableInfo,
    /// The profile of all columns of the table.
    pub profile: Profile,
    /// Indexes of the requested columns in the profile.
    pub columns: Vec<usize>,
}

/// Returns the profile of the newest version of a table in a pool, and computes it if no background task has done so.
/// If `columns` is given, [`TableProfile::columns`] has only the columns with these names. `rows_profiled` is updated
/// with the progress in the meantime.
///
/// # Errors
/// `NotFound` for the table or a column; the pool's error if it cannot answer.
pub async fn profile_table(
    pool: &dyn Pool,
    name: &TableName,
    columns: Option<&[String]>,
    rows_profiled: &AtomicU64,
) -> Result<TableProfile> {
    // An unknown column name is reported before any wait.
    column_positions(&pool.table(name).await?.schema, columns)?;
    let follow = async {
        loop {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            // Errors of this poll are ignored; the other request reports them.
            if let Some(rows) = pool.table(name).await.ok().and_then(|info| info.rows_profiled) {
                rows_profiled.store(rows, Ordering::Relaxed);
            }
        }
    };
    let statistics = tokio::select! {
        statistics = pool.statistics(name, None) => statistics?,
        () = follow => unreachable!("it goes on until there are statistics"),
    };
    let info = statistics.table.clone();
    let columns = column_positions(&info.schema, columns)?;
    let profile = Profile::read(&statistics)?
        .ok_or_else(|| Error::unavailable(format!("the pool does not say what {:?} holds", name.as_str())))?;
    Ok(TableProfile { info, profile, columns })
}

fn update(profile: &mut Profile, batch: &RecordBatch, columns: &[usize]) -> Result<()> {
    let schema = profile.schema().clone();
    let arrays = columns.iter().zip(schema.fields()).map(|(&i, field)| {
        to_canonical(batch.column(i), field.data_type()).map_err(|error| error.at(field.name()))
    });
    profile.update(&arrays.collect::<Result<Vec<_>>>()?)
}

/// Merges profiles of parts of the rows; returns the first failure.
fn merged(parts: Vec<Result<Profile>>) -> Result<Profile> {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_else(|| Err(Error::internal("a profile without parts")))?;
    parts.try_fold(first, |mut whole, part| whole.merge(&part?).map(|()| whole))
}

fn projected(schema: &Schema, columns: &[usize]) -> Result<SchemaRef> {
    let projected = schema.project(columns).map_err(|error| Error::internal(error.to_string()))?;
    schema::canonical_schema(&projected)
}

/// Returns the indexes of the columns with these names, in the order of `names`; without names, of the columns whose
/// types a pool supports.
fn held_positions(schema: &Schema, names: Option<&[String]>) -> Result<Vec<usize>> {
    match names {
        Some(_) => column_positions(schema, names),
        None => Ok(held_columns(schema)?.0.unwrap_or_else(|| (0..schema.fields().len()).collect())),
    }
}

/// Returns the indexes of the columns with these names, in the order of `names`; without names, of all columns.
///
/// # Errors
/// `NotFound` for a column that does not exist; `Invalid` for a column that is named twice.
pub fn column_positions(schema: &Schema, names: Option<&[String]>) -> Result<Vec<usize>> {
    let Some(names) = names else { return Ok((0..schema.fields().len()).collect()) };
    let mut found: Vec<usize> = Vec::new();
    for name in names {
        let position = schema.index_of(name).map_err(|_| {
            let known: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).take(20).collect();
            let more = schema.fields().len().saturating_sub(known.len());
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            Error::not_found(format!("there is no column {name:?}"))
                .advise(format!("there is: {}{more}", known.join(", ")))
        })?;
        if found.contains(&position) {
            return Err(Error::invalid(format!("column {name:?} is named twice")));
        }
        found.push(position);
    }
    Ok(found)
}

impl std::fmt::Debug for Profiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiling").field("schema", &self.schema).finish_non_exhaustive()
    }
}
