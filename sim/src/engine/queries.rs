//! Programs (queries over one table) of a simulated engine that are run immediately, or prepared and run later on the
//! version that they were prepared for.

use super::Engine;
use crate::checks::{Checked, check_prepared, check_result};
use crate::model::Rows;
use crate::query::Query;
use crate::random::Random;
use crate::rows::{Cell, rows_of, schema};
use crate::state::pause;
use farpool_model::{Error, ErrorKind};
use farpool_transfer::{BatchStream, Execution, Handle, Pool};
use futures::StreamExt;
use std::sync::Arc;

/// Maximal number of prepared programs that an engine holds: fewer than a node keeps for one connection.
const HELD_MAX: usize = 6;

/// A prepared program that an engine holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    handle: Handle,
    query: Arc<Query>,
    /// The candidates for the rows of the table version that the program reads.
    rows: Vec<Rows>,
}

/// Outcome of reading a result.
enum Outcome {
    Whole(Vec<Vec<Cell>>, u64),
    /// The streams were dropped before their end.
    Dropped,
    Failed(Error),
}

impl Engine {
    pub(super) async fn execute(&self, query: &Query, random: &mut Random, first: u64) -> Checked<String> {
        let streams = 1 + random.below(3);
        let execution = match self.pool.execute(&query.program(), streams).await {
            Ok(execution) => execution,
            Err(error) => return self.explained(&error, &query.table, first),
        };
        let may_be = {
            let state = self.shared.lock();
            check_prepared(&execution.prepared, query, &state.models[self.tenant], state.span_since(first))?
        };
        self.check_rows(execution, query, &may_be, random, first).await
    }

    pub(super) async fn prepare(&self, query: &Query, first: u64) -> Checked<String> {
        let handle = match self.pool.prepare(&query.program(), &schema()).await {
            Ok(handle) => handle,
            Err(error) => return self.explained(&error, &query.table, first),
        };
        let state = self.shared.lock();
        let rows = check_prepared(&handle, query, &state.models[self.tenant], state.span_since(first))?;
        let mut held = self.held.lock();
        if held.len() == HELD_MAX {
            held.remove(0);
        }
        let told = format!("holds {} of {}", handle.version, query.table);
        held.push(Held { handle, query: Arc::new(query.clone()), rows });
        Ok(told)
    }

    /// Runs a held program, which reads the version for which it was prepared, even if the table has changed since.
    pub(super) async fn run_held(&self, random: &mut Random, first: u64) -> Checked<String> {
        let held = {
            let held = self.held.lock();
            if held.is_empty() {
                return Ok("holds nothing".into());
            }
            held[random.below(held.len())].clone()
        };
        let narrowed = if random.chance(50) { held.query.narrowed(random) } else { None };
        let conditions = narrowed.as_ref().and_then(Query::filter);
        let streams = 1 + random.below(3);
        let execution = match self.pool.execute_prepared(&held.handle, conditions.as_ref(), streams).await {
            Ok(execution) => execution,
            // Handles, and possibly the versions that they hold, are lost with their connection.
            Err(error) if error.kind == ErrorKind::Stale && self.has_lost(&held) => {
                self.held.lock().retain(|other| other.handle.version != held.handle.version);
                return Ok("its version is gone".into());
            }
            Err(error) if error.kind == ErrorKind::NotFound && self.has_lost(&held) => {
                return Ok("its table is gone".into());
            }
            Err(error) => return self.explained(&error, &held.query.table, first),
        };
        if execution.prepared.version != held.handle.version {
            return Err(format!("{} was prepared, and {:?} ran", held.handle.version, execution.prepared));
        }
        let query = narrowed.unwrap_or_else(|| (*held.query).clone());
        self.check_rows(execution, &query, &held.rows, random, first).await
    }

    /// Returns whether the connection on which a program was prepared may be lost.
    fn has_lost(&self, _held: &Held) -> bool {
        self.cuts.explain(0) || self.shared.lock().weather.is_slow
    }

    async fn check_rows(
        &self,
        execution: Execution,
        query: &Query,
        may_be: &[Rows],
        random: &mut Random,
        first: u64,
    ) -> Checked<String> {
        match self.read(execution, random).await? {
            Outcome::Whole(rows, rows_returned) => {
                check_result(query, may_be, &rows, rows_returned)?;
                Ok(format!("{} rows", rows.len()))
            }
            Outcome::Dropped => Ok("dropped in the middle".into()),
            Outcome::Failed(error) => {
                // A running program holds its table version.
                match error.kind {
                    ErrorKind::NotFound => Err(format!("a program that ran lost its table: {error}")),
                    _ => self.explained(&error, &query.table, first),
                }
            }
        }
    }

    /// Reads all or some of a result, from its streams in any order.
    async fn read(&self, execution: Execution, random: &mut Random) -> Checked<Outcome> {
        let Execution { streams, receipt, .. } = execution;
        let mut streams: Vec<BatchStream> = streams;
        let mut batches_left = if random.chance(20) { random.magnitude(16) } else { usize::MAX };
        let mut rows = Vec::new();
        while !streams.is_empty() {
            if batches_left == 0 {
                return Ok(Outcome::Dropped);
            }
            batches_left -= 1;
            pause(&self.shared, random).await;
            let index = random.below(streams.len());
            match streams[index].next().await {
                Some(Ok(batch)) => rows.extend(rows_of(&batch)?),
                Some(Err(error)) => return Ok(Outcome::Failed(error)),
                None => drop(streams.swap_remove(index)),
            }
        }
        let receipt = receipt.get().ok_or("a result ended without a receipt")?;
        Ok(Outcome::Whole(rows, receipt.rows_returned))
    }
}
