//! A load: rows become row groups, row groups become a version.
//!
//! Rows are buffered until there is a full row group for each worker; these are encoded side by side and
//! added in the order in which the rows came. An append encodes its rows on their own and puts them behind
//! whatever the newest version is when it commits, so that appends at the same time lose nothing.
//!
//! A tap is given the row groups and finds out behind the load what they hold; it stays with the version, and that of
//! an append comes behind that of the version it extends.
//!
//! Invariant: a load that is dropped, for whatever reason, gives back all its pages: they belong to the
//! row groups that it holds.

use super::tap::Tap;
use super::{Catalog, Current, Expected, Refused, Tapped};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use farpool_columns::{Encoder, PlainGroup, RowGroup, Table, TableBuilder};
use farpool_model::{Error, ErrorKind, LoadMode, Result, TableInfo, TableName, TenantName, limits, schema};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// Full row groups that wait until there is one for each worker.
    waiting: Vec<PlainGroup>,
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
        let tap = (!closed).then(|| Tap::new(builder.schema().clone(), catalog.crew.clone()));
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_DEFAULT_MAX);
        let waiting = Vec::new();
        Ok(Load { catalog, tenant, name, mode, builder, encoder, tap, waiting, workers, failed: None })
    }

    /// Encodes on up to `workers` threads at once, the caller's among them. By default as many as the
    /// machine has cores, up to eight.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Has nothing found out about the rows: for tables that live no longer than the query that wants them.
    pub fn without_tap(&mut self) {
        self.tap = None;
    }

    /// Adds rows. Columns go by position; types are cast to those that the load began with.
    ///
    /// # Errors
    /// `Invalid` when a value does not fit; `OverLimit`, with sizes, when the table does not or will not
    /// fit into the pool. After an error the load can only be dropped: later calls give the same error.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check()?;
        let pushed = self.try_push(batch);
        self.keep_failure(pushed)
    }

    /// Bytes of memory that the rows hold which wait to be encoded: up to a row group for each worker and the one that
    /// is not full yet, each of at most [`limits::ROW_GROUP_BYTES_MAX`] as plain values.
    pub fn bytes_held(&self) -> usize {
        self.builder.bytes_held() + self.waiting.iter().map(PlainGroup::bytes_held).sum::<usize>()
    }

    /// Makes the rows visible as the table's new version, all at once.
    ///
    /// # Errors
    /// As [`Load::push`]; `Exists` when a table to be created was created by another load meanwhile;
    /// `NotFound` or `Invalid` when the table to append to was dropped or got other columns meanwhile.
    pub fn commit(mut self) -> Result<TableInfo> {
        self.check()?;
        let arrival = self.catalog.crew.make_way();
        self.encode_waiting()?;
        if let Some(group) = self.builder.take_last_row_group() {
            let group = self.encoder.encode(&group);
            self.add(group)?;
        }
        let Load { catalog, tenant, name, mode, builder, encoder, tap, .. } = self;
        let table = builder.finish()?;
        drop(arrival);
        let expected = match mode {
            LoadMode::Append => return append(&catalog, &tenant, &name, &table, tap, &encoder),
            LoadMode::Create => Expected::Nothing,
            LoadMode::Replace => Expected::Anything,
        };
        let tapped = tap.map(|tap| Tapped { tap, before: None, encoder });
        catalog.put(&tenant, &name, table, tapped, expected).map_err(|refused| refused.error)
    }

    fn add(&mut self, group: Result<RowGroup>) -> Result<()> {
        let group = Arc::new(group?);
        self.builder.add_row_group(group.clone())?;
        if let Some(tap) = &self.tap {
            tap.add(group);
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep_failure<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.waiting.clear();
            self.tap = None;
        }
        outcome
    }

    fn try_push(&mut self, batch: &RecordBatch) -> Result<()> {
        let _arrival = self.catalog.crew.make_way();
        self.builder.buffer(batch)?;
        while let Some(group) = self.builder.take_full_row_group() {
            self.waiting.push(group);
            if self.waiting.len() >= self.workers {
                self.encode_waiting()?;
            }
        }
        Ok(())
    }

    fn encode_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        for group in encode_all(&self.encoder, &waiting, self.workers) {
            self.add(group)?;
        }
        Ok(())
    }
}

/// Encodes row groups on up to `workers` threads; the results in the order of the row groups.
fn encode_all(encoder: &Encoder, groups: &[PlainGroup], workers: usize) -> Vec<Result<RowGroup>> {
    let next = AtomicUsize::new(0);
    let encode_some = || {
        let mut encoded = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            match groups.get(index) {
                Some(group) => encoded.push((index, encoder.encode(group))),
                None => return encoded,
            }
        }
    };
    let others = workers.min(groups.len()).saturating_sub(1);
    let mut encoded = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..others).map(|_| scope.spawn(encode_some)).collect();
        let mut encoded = encode_some();
        for thread in threads {
            match thread.join() {
                Ok(more) => encoded.extend(more),
                // First in order, so that it is what the load fails with.
                Err(_) => {
                    encoded.insert(0, (0, Err(Error::internal("a defect stopped the encoding of a load"))))
                }
            }
        }
        encoded
    });
    // Stable: a failure that was put in front stays there.
    encoded.sort_by_key(|(index, _)| *index);
    encoded.into_iter().map(|(_, group)| group).collect()
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
        match catalog.put(tenant, name, builder.finish()?, tapped, Expected::Version(version)) {
            Ok(info) => {
                keep_up(tap.as_deref());
                return Ok(info);
            }
            Err(Refused { error, .. }) if error.kind == ErrorKind::Unavailable => {}
            Err(Refused { error, .. }) => return Err(error),
        }
    }
}

/// An append that finds too many profiles of others unfinished works on them before it goes on.
fn keep_up(tap: Option<&Tap>) {
    if let Some(tap) = tap.filter(|tap| tap.behind() > limits::TAPS_WAITING_MAX) {
        // Whether there is a profile in the end does not concern the append.
        drop(tap.wait());
    }
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
