//! A load: rows become row groups, row groups become a version.
//!
//! A load is a state machine without threads of its own: rows are buffered until they fill a row group, which is then
//! encoded in pieces (`pieces.rs`) that any thread may do, and added in the order in which the rows came. Who has a
//! thread to spend calls [`Load::push`], which does the pieces itself, with [`Helpers`]; who has a scheduler calls
//! [`Load::buffer`], [`Load::next_piece`], [`Load::done`] and, in the end, [`Load::complete`]. An append encodes its rows on their own and puts them behind
//! whatever the newest version is when it commits, so that appends at the same time lose nothing.
//!
//! A tap is given the row groups and finds out behind the load what they hold; it stays with the version, and that of
//! an append comes behind that of the version it extends.
//!
//! Invariant: a load that is dropped, for whatever reason, gives back all its pages: they belong to the
//! row groups that it holds.

use super::pieces::{Piece, PieceDone, Pieces};
use super::tap::{AwaitedProfile, Tap};
use super::{Catalog, Current, Expected, Refused, Tapped};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use farpool_columns::{Encoder, Table, TableBuilder};
use farpool_memory::Reservation;
use farpool_model::cast::{u64_from, usize_saturating};
use farpool_model::{Error, ErrorKind, LoadMode, Result, TableInfo, TableName, TenantName, limits, schema};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Workers beyond which a load does not go by itself: each holds a row group in plain form.
const WORKERS_DEFAULT_MAX: usize = 8;

/// See the file's comment.
#[derive(Debug)]
pub struct Load {
    catalog: Arc<Catalog>,
    tenant: TenantName,
    name: TableName,
    mode: LoadMode,
    builder: TableBuilder,
    encoder: Encoder,
    /// None where nothing is to be found out about the rows.
    tap: Option<Arc<Tap>>,
    /// Full row groups that are not in the table yet.
    pieces: Pieces,
    /// For what the row groups take outside the pool.
    outside: Option<Reservation>,
    rows_buffered: u64,
    rows_added: u64,
    workers: usize,
    failed: Option<Error>,
}

impl Load {
    pub(super) fn begin(
        catalog: Arc<Catalog>,
        tenant: TenantName,
        name: TableName,
        rows_schema: &Schema,
        mode: LoadMode,
        rows_hint: Option<u64>,
        base: Option<Arc<Table>>,
    ) -> Result<Self> {
        let canonical = schema::canonical_schema(rows_schema)?;
        if let Some(base) = &base {
            check_agree(&name, &base.schema, &canonical)?;
        }
        let builder = TableBuilder::new(catalog.pool().clone(), tenant.clone(), &canonical, rows_hint)?;
        let encoder = builder.encoder();
        let closed = catalog.taps_closed.load(Ordering::Relaxed);
        let tap = (!closed).then(|| catalog.tap(&tenant, builder.schema()));
        let workers = catalog.helpers.threads_max().clamp(1, WORKERS_DEFAULT_MAX);
        Ok(Load {
            outside: catalog.outside(&tenant),
            catalog,
            tenant,
            name,
            mode,
            pieces: Pieces::new(encoder.clone()),
            builder,
            encoder,
            tap,
            rows_buffered: 0,
            rows_added: 0,
            workers,
            failed: None,
        })
    }

    /// Has [`Load::push`] encode on up to `workers` threads at once, the caller's among them. By default as many as
    /// the catalog's helpers are, up to eight.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Has nothing found out about the rows: for tables that live no longer than the query that wants them.
    pub fn without_tap(&mut self) {
        self.tap = None;
    }

    /// Adds rows, and encodes the row groups that they complete once there is one for each worker. Columns go by
    /// position; types are cast to those that the load began with.
    ///
    /// # Errors
    /// `Invalid` when a value does not fit; `OverLimit`, with sizes, when the table does not or will not
    /// fit into the pool. After an error the load can only be dropped: later calls give the same error.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.buffer(batch)?;
        if self.pieces.groups_count() < self.workers {
            return Ok(());
        }
        self.encode()
    }

    /// Adds rows without encoding anything.
    ///
    /// # Errors
    /// As [`Load::push`].
    pub fn buffer(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check()?;
        self.catalog.profiler.rows_came();
        let buffered = self.builder.buffer(batch);
        self.keep_failure(buffered)?;
        self.rows_buffered += u64_from(batch.num_rows());
        while let Some(group) = self.builder.take_full_row_group() {
            self.pieces.add(group);
        }
        Ok(())
    }

    /// No more rows come: has those encoded, too, that do not fill a row group.
    pub fn complete(&mut self) {
        while let Some(group) = self.builder.take_last_row_group() {
            self.pieces.add(group);
        }
    }

    /// Whether [`Load::next_piece`] has a piece.
    pub fn has_piece(&self) -> bool {
        self.failed.is_none() && self.pieces.has_next()
    }

    /// A part of what is to be encoded; `None` when all is in other hands, or done.
    pub fn next_piece(&mut self) -> Option<Piece> {
        if self.failed.is_some() {
            return None;
        }
        self.catalog.profiler.rows_came();
        self.pieces.next()
    }

    /// Takes back a piece that was done, and adds the row groups that it completes.
    ///
    /// # Errors
    /// As [`Load::push`].
    pub fn done(&mut self, piece: Result<PieceDone>) -> Result<()> {
        self.check()?;
        self.catalog.profiler.rows_came();
        let added = piece.and_then(|piece| {
            self.pieces.done(piece);
            self.add_placed()
        });
        self.keep_failure(added)
    }

    /// Rows that were buffered, whether they have been encoded or not.
    pub fn rows_buffered(&self) -> u64 {
        self.rows_buffered
    }

    /// Rows, the first ones, that have been encoded and are in the pool.
    pub fn rows_added(&self) -> u64 {
        self.rows_added
    }

    /// Whether a full row group waits to be encoded, or is.
    pub fn is_encoding(&self) -> bool {
        self.pieces.groups_count() > 0
    }

    /// Bytes of memory that the rows hold which wait to be encoded: up to a row group for each worker and the one that
    /// is not full yet, each of at most [`limits::ROW_GROUP_BYTES_MAX`] as plain values.
    pub fn bytes_held(&self) -> usize {
        self.builder.bytes_held() + self.pieces.bytes_held()
    }

    /// Makes the rows visible as the table's new version, all at once. What is left to encode is encoded first, as by
    /// [`Load::push`], and so is done what [`Load::profile_before`] has.
    ///
    /// # Errors
    /// As [`Load::push`]; `Exists` when a table to be created was created by another load meanwhile;
    /// `NotFound` or `Invalid` when the table to append to was dropped or got other columns meanwhile.
    pub fn commit(mut self) -> Result<TableInfo> {
        self.check()?;
        self.complete();
        self.encode()?;
        while let Some(profile) = self.profile_before(Box::new(|| {})) {
            // Whether there is a profile in the end does not concern the append; nor does it wait without end.
            if let Err(error) = profile.finish(&*self.catalog.helpers) {
                profile.give_up(&error);
            }
        }
        self.publish()
    }

    /// What is to be done before an append may be published, if too many profiles of others before it are unfinished.
    /// `wake` is called when there may be more to do of it, or nothing more.
    pub fn profile_before(&self, wake: Box<dyn Fn() + Send + Sync>) -> Option<AwaitedProfile> {
        if self.mode != LoadMode::Append || self.tap.is_none() {
            return None;
        }
        // A table that is gone has no profile to wait for; the append will say so.
        let tap = self.catalog.current(&self.tenant, &self.name).ok()?.tap?;
        (tap.unsettled() > limits::TAPS_WAITING_MAX).then(|| AwaitedProfile::new(tap, wake))
    }

    /// Makes the rows visible as the table's new version, all at once, when all of them have been encoded.
    ///
    /// # Errors
    /// As [`Load::commit`].
    pub fn publish(self) -> Result<TableInfo> {
        self.check()?;
        if self.rows_added != self.rows_buffered {
            return Err(Error::internal("a load that is not encoded cannot be committed"));
        }
        let Load { catalog, tenant, name, mode, builder, encoder, tap, outside, .. } = self;
        let table = builder.finish()?;
        let expected = match mode {
            LoadMode::Append => return append(&catalog, &tenant, &name, &table, tap, &encoder),
            LoadMode::Create => Expected::Nothing,
            LoadMode::Replace => Expected::Anything,
        };
        let tapped = tap.map(|tap| Tapped { tap, before: None, encoder });
        let table = holding(table, outside)?;
        catalog.put(&tenant, &name, table, tapped, expected).map_err(|refused| refused.error)
    }

    fn add_placed(&mut self) -> Result<()> {
        while let Some(group) = self.pieces.take_placed() {
            let group = Arc::new(group);
            self.rows_added += u64_from(group.rows);
            if let Some(outside) = &mut self.outside {
                outside.try_grow(group.bytes_outside_pool())?;
            }
            self.builder.add_row_group(group.clone())?;
            if let Some(tap) = &self.tap {
                tap.add(group);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep_failure<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.pieces = Pieces::new(self.encoder.clone());
            self.tap = None;
        }
        outcome
    }

    /// Encodes all full row groups, on the calling thread and those that help it.
    fn encode(&mut self) -> Result<()> {
        let threads = self.workers.min(self.pieces.groups_count());
        if threads == 0 {
            return self.check();
        }
        let helpers = self.catalog.helpers.clone();
        let load = Mutex::new(&mut *self);
        let encode_some = || {
            loop {
                // In a statement of its own, so that the lock is free while the piece is done.
                let piece = load.lock().next_piece();
                let Some(piece) = piece else { return };
                let done = piece.run();
                // The load keeps its failure.
                drop(load.lock().done(done));
            }
        };
        let helped = helpers.run(threads, &encode_some);
        self.keep_failure(helped)?;
        self.check()
    }
}

/// Puts the row groups of `rows` behind those of the newest version, as often as another load is faster.
fn append(
    catalog: &Catalog,
    tenant: &TenantName,
    name: &TableName,
    rows: &Table,
    tap: Option<Arc<Tap>>,
    encoder: &Encoder,
) -> Result<TableInfo> {
    loop {
        let Current { version, table: base, tap: before } = catalog.current(tenant, name)?;
        check_agree(name, &base.schema, &rows.schema)?;
        check_nulls(name, &base, rows)?;
        let mut builder = TableBuilder::append_to(catalog.pool().clone(), &base, tenant.clone(), None)?;
        for group in &rows.row_groups {
            builder.add_row_group(group.clone())?;
        }
        // Of rows behind others that nothing is known of, too little is known.
        let taps = before.zip(tap.clone());
        let tapped = taps.map(|(before, tap)| Tapped { tap, before: Some(before), encoder: encoder.clone() });
        let table = holding(builder.finish()?, catalog.outside(tenant))?;
        match catalog.put(tenant, name, table, tapped, Expected::Version(version)) {
            Ok(info) => return Ok(info),
            Err(Refused { error, .. }) if error.kind == ErrorKind::Unavailable => {}
            Err(Refused { error, .. }) => return Err(error),
        }
    }
}

/// The table with what it takes outside the pool reserved. Versions share most of that, but each may be the last one.
fn holding(table: Table, outside: Option<Reservation>) -> Result<Table> {
    let Some(mut outside) = outside else { return Ok(table) };
    let bytes = usize_saturating(table.bytes_outside_pool);
    outside.try_grow(bytes.saturating_sub(outside.bytes()))?;
    outside.set(bytes);
    Ok(table.holding(outside))
}

/// Names and types must be the same, in the same order.
fn check_agree(name: &TableName, table: &Schema, rows: &Schema) -> Result<()> {
    let differ = |what: String| {
        Error::invalid(format!("these rows do not fit table {:?}: {what}", name.as_str()))
            .advise("to append, the columns must have the same names and types in the same order")
    };
    if table.fields().len() != rows.fields().len() {
        let (has, given) = (table.fields().len(), rows.fields().len());
        return Err(differ(format!("it has {has} columns, they have {given}")));
    }
    for (has, given) in table.fields().iter().zip(rows.fields()) {
        if (has.name(), has.data_type()) != (given.name(), given.data_type()) {
            return Err(differ(format!(
                "it has a column {:?} of type {} where they have {:?} of type {}",
                has.name(),
                has.data_type(),
                given.name(),
                given.data_type()
            )));
        }
    }
    Ok(())
}

fn check_nulls(name: &TableName, base: &Table, rows: &Table) -> Result<()> {
    let columns = base.schema.fields().iter().zip(&rows.statistics);
    match columns.into_iter().find(|(field, statistics)| !field.is_nullable() && statistics.null_count > 0) {
        Some((field, _)) => Err(Error::invalid(format!(
            "these rows do not fit table {:?}: column {:?} may not be NULL",
            name.as_str(),
            field.name()
        ))),
        None => Ok(()),
    }
}
