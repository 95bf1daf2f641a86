//! INSERT, UPDATE and DELETE of rows of key spaces (namespaces of keys that SQL reads and changes as tables).
//!
//! An UPDATE or DELETE reads the keys as of one moment, as any program does. For keys that clients have changed since,
//! the change is computed again (`recomputation.rs`) before it is applied. Rows are inserted in order, some hundred at
//! a time.

#![expect(clippy::disallowed_methods, reason = "the node is where threads come from")]

use super::recomputation::Recomputation;
use super::{SpaceRows, SpaceTable, not_for_spaces};
use crate::caller::Caller;
use crate::rights::Verb;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use farpool_catalog::{Commit, Load};
use farpool_columns::Table;
use farpool_kv::{ChangeAgain, KeyChange, KeyState, ReadEntry, TimeAndRandom};
use farpool_model::cast::u64_from;
use farpool_model::limits::KV_CHANGED_MAX;
use farpool_model::{
    Answer, Error, ErrorKind, Expr, LoadMode, NamedExpr, Output, Program, Result, TableInfo, TableName,
};
use farpool_pipeline::{BoundProgram, Run};
use parking_lot::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Number of rows that are inserted at a time, under the locks of their shards (parts of the keys); then the locks are
/// released, so that clients' commands can be executed in between.
const INSERT_ROWS: usize = 256;

/// Returns the space whose rows a table shows; `None` for an ordinary table.
fn space_of(table: &Table) -> Option<&SpaceTable> {
    let rows: &dyn Any = &**table.live_rows()?;
    rows.downcast_ref::<SpaceRows>().map(|rows| &rows.space)
}

impl Caller {
    /// Creates the run of a change of a space's rows, for [`Caller::start_change`]; returns `None` for a program over
    /// an ordinary table.
    ///
    /// # Errors
    /// `Invalid` for a change that spaces do not support.
    pub(crate) fn start_key_change(&self, program: &BoundProgram) -> Result<Option<Arc<Run>>> {
        let Some(space) = space_of(program.table()) else { return Ok(None) };
        self.check(Verb::WriteKeys)?;
        self.check_not_paused()?;
        let prepared = program.prepared();
        if let Some(answer) = prepared.answers.iter().find(|answer| answer.answer != Answer::Exact) {
            let reason = answer.reason.as_deref().unwrap_or("no reason is known");
            return Err(Error::invalid(format!("keys cannot be changed so: {}: {reason}", answer.operator)));
        }
        let Program { output: Output::Rows(outputs), limit: None, .. } = &prepared.effective else {
            return Err(Error::invalid("a change is made of rows, of all that pass"));
        };
        for (output, field) in outputs.iter().zip(prepared.schema.fields()) {
            let (column, of_space) = space.schema.column_with_name(&output.name).ok_or_else(|| {
                Error::invalid(format!("there is no column {:?} to be changed", output.name))
            })?;
            if column == 0 {
                let message = format!("{:?} is the key of this space, which cannot be changed", output.name);
                return Err(
                    Error::invalid(message).advise("insert a row with the new key, and delete the old one")
                );
            }
            if of_space.data_type() != field.data_type() {
                let message = format!(
                    "column {:?} is of type {}, and its new values are of type {}",
                    output.name,
                    of_space.data_type(),
                    field.data_type()
                );
                return Err(Error::invalid(message));
            }
        }
        let key = NamedExpr { name: "the key".to_string(), expr: Expr::Column(0) };
        let columns = std::iter::once(key).chain(outputs.iter().cloned()).collect();
        let program_of_keys =
            Program { output: Output::Rows(columns), version: None, ..prepared.effective.clone() };
        let budget = self.node().budget();
        let bound =
            BoundProgram::prepare(&program_of_keys, program.table().clone(), prepared.version, budget)?;
        Run::start_collecting(&bound, KV_CHANGED_MAX).map(Some)
    }

    /// Applies the change of a finished run of [`Caller::start_key_change`]; returns `None` for a program over an
    /// ordinary table. Blocks while long commands hold the keys, so call it on a thread of its own ([`Caller::apart`]).
    ///
    /// # Errors
    /// `Stale` when a key has changed and its row no longer passes; errors of `farpool_kv::Keyspace::change`.
    pub(crate) fn publish_key_change(
        &self,
        program: &BoundProgram,
        batches: &[RecordBatch],
        rows: u64,
    ) -> Result<Option<Commit<TableInfo>>> {
        let Some(space) = space_of(program.table()) else { return Ok(None) };
        let Output::Rows(outputs) = &program.prepared().effective.output else {
            return Err(Error::internal("a change that is no rows"));
        };
        let columns: Vec<usize> =
            outputs.iter().filter_map(|output| space.schema.index_of(&output.name).ok()).collect();
        let rows_read: &dyn Any = match program.table().live_rows() {
            Some(rows) => &**rows,
            None => &(),
        };
        let read = rows_read.downcast_ref::<SpaceRows>();
        let mut changes = Vec::new();
        for batch in batches {
            for row in 0..batch.num_rows() {
                let key = space.key_of(batch.column(0), row)?;
                let values = columns.iter().zip(&batch.columns()[1..]);
                let what = match outputs.is_empty() {
                    true => KeyState::Remove,
                    false => space.updated(values, row, self.node().keyspaces().time().now_ms())?,
                };
                let expected = read.and_then(|read| read.expected(&key));
                changes.push(KeyChange { key, expected, what });
            }
        }
        if u64_from(changes.len()) != rows {
            let message =
                format!("a change would be one of {} keys, not {rows}; nothing was changed", changes.len());
            return Err(Error::stale(message));
        }
        let cut = read.and_then(SpaceRows::cut);
        // Compiled in advance, because shards are locked when it is used.
        let compiled = Recomputation::new(self, space, &program.prepared().effective, &columns)?;
        let mut again = |entries: &[ReadEntry<'_>], now| compiled.states(self, entries, now);
        self.change_keys(space, &changes, cut, Some(&mut again))?;
        Ok(Some(self.changed(space)))
    }

    /// Returns whether a program that changes rows is about a space of keys.
    pub(crate) fn is_of_keys(program: &BoundProgram) -> bool {
        space_of(program.table()).is_some()
    }

    /// Fails while `CLIENT PAUSE` blocks changes of the tenant's keys. Does not wait for its end, which would block a
    /// thread.
    fn check_not_paused(&self) -> Result<()> {
        let now_ms = self.node().keyspaces().time().now_ms();
        match self.node().key_controls().pause(self.tenant()).blocks_writes(now_ms) {
            None => Ok(()),
            Some(left_ms) => Err(Error::unavailable(format!(
                "keys cannot be changed: CLIENT PAUSE has all clients wait for another {left_ms} ms"
            ))
            .advise("run the statement again when the pause is over, or end it with CLIENT UNPAUSE")),
        }
    }

    fn moment(&self) -> TimeAndRandom {
        let now = self.node().keyspaces().time().now_ms();
        // The random number distinguishes the parts of this log record from those of others.
        TimeAndRandom { now, random: self.node().key_controls().moments().next().0 }
    }

    fn change_keys(
        &self,
        space: &SpaceTable,
        changes: &[KeyChange],
        cut: Option<&farpool_kv::KeyCut>,
        again: Option<&mut ChangeAgain<'_>>,
    ) -> Result<()> {
        self.check_not_paused()?;
        let of = (space.id, space.named.as_ref());
        let recorded = space.keyspace.change(of, changes, (cut, again), self.moment())?;
        self.until_durable(recorded)
    }

    fn until_durable(&self, recorded: Option<u64>) -> Result<()> {
        match (recorded, self.node().keyspaces().log()) {
            (Some(number), Some(log)) if log.waits() => log.wait(number),
            _ => Ok(()),
        }
    }

    fn changed(&self, space: &SpaceTable) -> Commit<TableInfo> {
        let version = self.node().key_controls().moments().newest();
        Commit::durable(space.info(version), self.node().catalog())
    }

    /// Begins a load of rows into a space; returns `None` if there is no space with this name.
    ///
    /// # Errors
    /// `Exists` when a table is to be created; `Invalid` when the columns are not those of the space.
    pub(crate) fn begin_insert(
        &self,
        name: &TableName,
        schema: &arrow_schema::Schema,
        mode: LoadMode,
    ) -> Result<Option<Load>> {
        let Some(space) = self.space(name) else { return Ok(None) };
        if mode == LoadMode::Create {
            let message = format!("{:?} is a space of keys", name.as_str());
            return Err(Error::new(ErrorKind::Exists, message).advise("choose another name for the table"));
        }
        self.check(Verb::WriteKeys)?;
        self.check_not_paused()?;
        let given = farpool_model::schema::canonical_schema(schema)?;
        let is_same =
            given.fields().len() == space.schema.fields().len()
                && given.fields().iter().zip(space.schema.fields()).all(|(given, field)| {
                    (given.name(), given.data_type()) == (field.name(), field.data_type())
                });
        if !is_same {
            return Err(not_for_spaces(
                name,
                "rows for it must have its columns, with their types, in their order",
            ));
        }
        self.node().catalog().begin_detached(self.tenant(), name, schema, mode).map(Some)
    }

    /// Inserts the rows of a load of [`Caller::begin_insert`] on a new thread and calls `then` with the result.
    pub(crate) fn insert(&self, load: Load, then: impl FnOnce(Result<Commit<TableInfo>>) + Send + 'static) {
        self.apart(move |caller| caller.insert_now(load), then);
    }

    /// Calls `work`, which changes keys, on a new thread, and `then` with the result. Reason: `work` may block on a
    /// long command that holds the keys, and on the log, which threads that serve several tenants must not.
    pub(crate) fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Caller) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let (caller, then) = (self.clone(), Arc::new(Mutex::new(Some(then))));
        let tell = {
            let then = then.clone();
            move |outcome| {
                let then = then.lock().take();
                if let Some(then) = then {
                    then(outcome);
                }
            }
        };
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(|| work(&caller)));
            tell(done.unwrap_or_else(|_| Err(Error::internal("a change of keys has panicked"))));
        };
        let begun = std::thread::Builder::new().name("farpool-change".into()).spawn(job);
        if let Err(error) = begun
            && let Some(then) = then.lock().take()
        {
            then(Err(Error::over_limit(format!("there is no thread to change keys: {error}"))));
        }
    }

    /// Inserts the rows of a load that [`Caller::begin_load`] has begun for a space.
    ///
    /// # Errors
    /// `Exists` for a key that is present; rows before it have been inserted and stay.
    pub fn insert_now(&self, load: Load) -> Result<Commit<TableInfo>> {
        let (name, mode) = (load.name().clone(), load.mode());
        let space = self.space(&name).ok_or_else(|| Error::stale("the space was dropped meanwhile"))?;
        let table = load.into_table()?;
        if mode != LoadMode::Append {
            return self.empty_space(&space, table.rows);
        }
        let mut done = 0;
        for group in table.row_groups.iter() {
            for start in (0..group.rows).step_by(INSERT_ROWS) {
                let rows = start..group.rows.min(start + INSERT_ROWS);
                let columns = group.chunks.iter().map(|chunk| chunk.decode(rows.clone()));
                let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
                let changes: Vec<KeyChange> =
                    (0..rows.len()).map(|row| self.inserted(&space, &columns, row)).collect::<Result<_>>()?;
                self.change_keys(&space, &changes, None, None).map_err(|error| match done {
                    0 => error,
                    done => Error {
                        message: format!("{}; {done} rows before were inserted", error.message),
                        ..error
                    },
                })?;
                done += rows.len();
            }
        }
        Ok(self.changed(&space))
    }

    fn inserted(&self, space: &SpaceTable, columns: &[ArrayRef], row: usize) -> Result<KeyChange> {
        let key = space.key_of(&columns[0], row)?;
        let what = match &space.rows {
            Some(schema) => {
                let values = columns[1..].iter().enumerate().map(|(at, column)| (at, bytes_of(column, row)));
                debug_assert_eq!(schema.fields().len(), columns.len() - 1);
                KeyState::InsertRow(values.collect())
            }
            None => {
                let value = bytes_of(&columns[1], row).ok_or_else(|| no_value(space))?;
                let ttl = columns[2].as_primitive::<arrow_array::types::Int64Type>();
                let expiry = ttl
                    .is_valid(row)
                    .then(|| expiry(self.node().keyspaces().time().now_ms(), ttl.value(row)));
                KeyState::InsertString(value, expiry)
            }
        };
        Ok(KeyChange { key, expected: None, what })
    }

    /// Removes all keys of a space, for a load that replaces the rows and has no rows.
    fn empty_space(&self, space: &SpaceTable, rows: u64) -> Result<Commit<TableInfo>> {
        if rows > 0 || space.id == 0 {
            let advice = "UPDATE and DELETE what a condition names that the pool can carry out, or change keys one by one";
            return Err(not_for_spaces(&space.name, advice));
        }
        self.check_not_paused()?;
        let recorded = space.keyspace.remove_all(space.id, self.moment())?;
        self.until_durable(recorded)?;
        Ok(self.changed(space))
    }
}

impl SpaceTable {
    /// Returns the key for the value of the first column in a row; fails for NULL.
    fn key_of(&self, column: &ArrayRef, row: usize) -> Result<Vec<u8>> {
        let value = bytes_of(column, row).ok_or_else(|| {
            Error::invalid(format!(
                "the column {:?} is the key, which cannot be NULL",
                self.schema.field(0).name()
            ))
        })?;
        if let Some(space) = self.named.as_ref().filter(|space| !value.starts_with(&space.prefix))
            && self.rows.is_none()
        {
            let (key, prefix) = (value[..value.len().min(64)].escape_ascii(), space.prefix.escape_ascii());
            return Err(Error::invalid(format!(
                "the key '{key}' does not begin with '{prefix}', as those of this space do"
            )));
        }
        Ok(match &self.rows {
            Some(schema) => [&self.prefix, &*schema.key().kind.value_text(&value)].concat(),
            None => value,
        })
    }

    pub(super) fn updated<'a>(
        &self,
        values: impl Iterator<Item = (&'a usize, &'a ArrayRef)>,
        row: usize,
        now: u64,
    ) -> Result<KeyState> {
        if self.rows.is_some() {
            let fields = values.map(|(column, array)| (column - 1, bytes_of(array, row))).collect();
            return Ok(KeyState::UpdateRow(fields));
        }
        let (mut value, mut new_expiry) = (None, None);
        for (column, array) in values {
            match column {
                1 => value = Some(bytes_of(array, row).ok_or_else(|| no_value(self))?),
                _ => {
                    let ttl = array.as_primitive::<arrow_array::types::Int64Type>();
                    new_expiry = Some(ttl.is_valid(row).then(|| expiry(now, ttl.value(row))));
                }
            }
        }
        Ok(KeyState::UpdateString(value, new_expiry))
    }
}

fn no_value(space: &SpaceTable) -> Error {
    Error::invalid(format!("the value of a key in space {:?} cannot be NULL", space.name.as_str()))
}

/// Returns the expiry `seconds` seconds after `now`, in milliseconds since the epoch.
fn expiry(now: u64, seconds: i64) -> u64 {
    let after = u64::try_from(seconds).unwrap_or(0).saturating_mul(1000);
    now.saturating_add(after).min(i64::MAX as u64)
}

/// Returns the bytes of a value as stored in rows; `None` for NULL.
fn bytes_of(array: &ArrayRef, row: usize) -> Option<Vec<u8>> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::Utf8View => Some(array.as_string_view().value(row).as_bytes().to_vec()),
        DataType::BinaryView => Some(array.as_binary_view().value(row).to_vec()),
        DataType::Boolean => Some(vec![u8::from(array.as_boolean().value(row))]),
        other => {
            let width = other.primitive_width()?;
            let data = array.to_data();
            let start = (data.offset() + row) * width;
            Some(data.buffers().first()?.get(start..start + width)?.to_vec())
        }
    }
}
