//! The owners of the tables: loads that create, append and replace, in steps between which anything may happen,
//! and that may be given up or run out of memory.

use crate::client::Checked;
use crate::model::Model;
use crate::random::Random;
use crate::rows::{Row, batch, random_rows, schema};
use farpool_model::{Error, ErrorKind, LoadMode, TableInfo, TableName};
use farpool_node::Caller;
use farpool_store::Load;
use std::sync::Arc;

/// A load that is under way.
pub struct Loading {
    load: Load,
    /// Whose table it is, by index.
    pub tenant: usize,
    table: String,
    mode: LoadMode,
    rows: Vec<Row>,
}

/// Begins a load, unless the node rightly says that it cannot be.
pub fn begin(
    random: &mut Random,
    owner: &Caller,
    tenant: usize,
    model: &Model,
    table: String,
) -> Checked<Option<Loading>> {
    let mode = random.pick(&[LoadMode::Create, LoadMode::Create, LoadMode::Append, LoadMode::Replace]);
    let name = TableName::new(&table).map_err(|error| error.to_string())?;
    match owner.begin_load(&name, &schema(), mode, None) {
        Ok(mut load) => {
            // Other threads would make what happens depend on the machine.
            load.set_workers(1);
            Ok(Some(Loading { load, tenant, table, mode, rows: Vec::new() }))
        }
        Err(error) => explained(&error, mode, model.newest(&table).is_some(), false).map(|()| None),
    }
}

impl Loading {
    /// Adds some rows; `None` when the pool has no room for them, which it may only say when it is `tight`.
    pub fn push(mut self, random: &mut Random, rows_max: usize, tight: bool) -> Checked<Option<Loading>> {
        let count = random.magnitude(rows_max);
        let rows = random_rows(random, count);
        match self.load.push(&batch(&rows)) {
            Ok(()) => {
                self.rows.extend(rows);
                Ok(Some(self))
            }
            Err(error) => explained(&error, self.mode, true, tight).map(|()| None),
        }
    }

    /// Commits; the rows are visible from event `step` on. Tells what became of it.
    pub fn commit(self, model: &mut Model, step: u64, tight: bool) -> Checked<String> {
        let Loading { load, table, mode, rows, .. } = self;
        let newest = model.newest(&table);
        let info = match load.commit() {
            Ok(info) => info,
            Err(error) => {
                explained(&error, mode, newest.is_some(), tight)?;
                return Ok(format!("load of {table} fails: {:?}", error.kind));
            }
        };
        let before = newest.as_ref().map(|(version, _)| *version);
        if (mode == LoadMode::Create && newest.is_some())
            || before.is_some_and(|before| info.version <= before)
        {
            return Err(format!("{mode:?} of {table} made {}, after {before:?}", info.version));
        }
        let base = newest.filter(|_| mode == LoadMode::Append).map(|(_, rows)| rows.to_vec());
        let all = base.into_iter().flatten().chain(rows).collect::<Vec<Row>>();
        check_rows(&info, all.len())?;
        let told = format!("{mode:?} of {table} makes {} of {} rows", info.version, all.len());
        model.change(step, &table, Some((info.version, Arc::new(all))));
        Ok(told)
    }
}

fn check_rows(info: &TableInfo, rows: usize) -> Checked {
    match info.rows == rows as u64 {
        true => Ok(()),
        false => Err(format!("a load made {} rows, and by the node {}", rows, info.rows)),
    }
}

/// Whether a load may have failed like this.
fn explained(error: &Error, mode: LoadMode, exists: bool, tight: bool) -> Checked {
    let may_be = match error.kind {
        ErrorKind::OverLimit => tight,
        ErrorKind::Exists => mode == LoadMode::Create && exists,
        ErrorKind::NotFound => mode == LoadMode::Append && !exists,
        _ => false,
    };
    if may_be { Ok(()) } else { Err(format!("{mode:?} failed: {error}")) }
}
