//! A load: rows that a client sends are encoded as row groups, which become a new version of a table.
//!
//! A load is a state machine without threads of its own: rows are buffered until they fill a row group, which is then
//! encoded in pieces (`pieces.rs`) on any thread, and added in the order of the rows. A caller with threads of its own
//! calls [`Load::push`], which does the pieces itself, with [`HelperThreads`]; a scheduler calls [`Load::buffer`],
//! [`Load::next_piece`], [`Load::done`] and, in the end, [`Load::complete`]. An append puts its rows behind the version
//! that is the newest when it commits (`append.rs`), so that concurrent appends lose nothing.
//!
//! In a catalog with a data directory, the row groups of a load that is not small are written to segments while it runs
//! ([`ChunkWriter`]); [`Load::seal`] makes these durable before the load is published. A row group for which the pool
//! has no room waits a limited time: memory in use by others is usually freed soon. Other threads do all of this
//! waiting (`waits.rs`), and the load has no piece meanwhile.
//!
//! The row groups of a new table are passed to a tap, which profiles them in the background; the tap stays with the
//! version. Appended row groups get a tap once they are no longer merged.
//!
//! Invariant: a load that is dropped, for whatever reason, frees all its pages: they belong to the row groups that it
//! holds.
//!
//! Terms: a *claim* reserves the name of the table that a load creates (`claims.rs`). A *segment* is a file of column
//! chunks in the data directory. The *profile* of a table is the statistics of its rows.

use super::append::{Append, Rows};
use super::changes::NewTable;
use super::claims::Claim;
use super::durable::{ChunkWriter, RetryBudget};
use super::load_waits::{LoadWaits, WaitReason, WaitingGroup};
use super::pieces::{Piece, PieceDone, PieceOutcome, Pieces, Placement};
use super::state::Expected;
use super::tap::{AwaitedProfile, Tap};
use super::{Catalog, Commit, Tapped};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use farpool_columns::{Encoder, MemoryCipher, PlainGroup, RowGroup, Table, TableBuilder};
use farpool_disk::TableKey;
use farpool_memory::{Reservation, size_text};
use farpool_model::cast::u64_from;
use farpool_model::{
    Error, ErrorKind, LoadId, LoadMode, Residency, Result, TableInfo, TableName, TenantName, limits, schema,
};
use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum of the default number of workers, each of which holds an unencoded row group.
const WORKERS_DEFAULT_MAX: usize = 8;

/// Maximum number of segments of a load that are being made durable at once. Their chunks cannot be evicted before.
const SEGMENTS_WAITING_MAX: usize = 2;

/// Maximum number of row groups that wait to be written, in addition to those that are being encoded.
const UNWRITTEN_MAX: usize = 2;

/// A load in progress: buffers rows, encodes them, and publishes them as a table version.
#[derive(Debug)]
pub struct Load {
    catalog: Arc<Catalog>,
    tenant: TenantName,
    name: TableName,
    mode: LoadMode,
    id: Option<LoadId>,
    /// Claim to the table's name; `None` if the load does not create a table.
    claim: Option<Arc<Claim>>,
    /// Encoded bytes of the version that this load replaces; `None` if it replaces none. Both versions are in the
    /// pool until the swap.
    bytes_before: Option<u64>,
    builder: TableBuilder,
    encoder: Encoder,
    /// Tap (background computation of the profile) of the rows; `None` if they are not profiled, or only after they
    /// are in the table.
    tap: Option<Arc<Tap>>,
    /// Row groups of an append that are in the pool.
    appended: Vec<Arc<RowGroup>>,
    /// All rows of a small append, which are encoded together with those of other appends.
    small: Option<PlainGroup>,
    /// Full row groups that are being encoded or wait for it, in pieces.
    pieces: Pieces,
    /// Reservation of the working memory (outside the pool) that the row groups take.
    outside: Option<Reservation>,
    /// Writes the row groups to segments. `None` without a data directory, and while a worker has it.
    writer: Option<ChunkWriter>,
    has_disk: bool,
    /// Row groups that wait to be written to a segment.
    to_keep: Vec<Arc<RowGroup>>,
    waits: Arc<LoadWaits>,
    /// Encryption key of the table's data in segments; `None` if the table has none.
    key: Option<Arc<TableKey>>,
    /// Eviction policy of the rows: whether they must stay in memory.
    residency: Residency,
    /// Whether the rows do not become a table of the catalog; see [`Load::is_detached`].
    is_detached: bool,
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
        mode: LoadMode,
        (rows_schema, cipher, rows_hint): (&Schema, Option<Arc<MemoryCipher>>, Option<u64>),
        base: Option<Arc<Table>>,
    ) -> Result<Self> {
        let canonical = schema::canonical_schema(rows_schema)?;
        if let Some(base) = &base {
            check_agree(&name, &base.schema, &canonical)?;
        }
        let builder = TableBuilder::new(catalog.pool().clone(), tenant.clone(), &canonical, rows_hint)?;
        let builder = builder.encrypting(cipher.as_ref());
        let encoder = builder.encoder();
        let closed = catalog.taps_closed.load(Ordering::Relaxed);
        // Rows that are encrypted in memory are not profiled, because the profile would have values in the clear.
        let is_tapped = !closed && cipher.is_none() && mode != LoadMode::Append;
        let tap = is_tapped.then(|| catalog.tap(&tenant, builder.schema()));
        let workers = catalog.helpers.threads_max().clamp(1, WORKERS_DEFAULT_MAX);
        let waits = Arc::<LoadWaits>::default();
        let writer = catalog.durable.get().map(|durable| ChunkWriter::beside(durable.clone(), &waits));
        Ok(Load {
            outside: catalog.outside(&tenant),
            has_disk: writer.is_some(),
            writer,
            to_keep: Vec::new(),
            waits,
            key: None,
            id: None,
            catalog,
            tenant,
            name,
            mode,
            claim: None,
            bytes_before: None,
            pieces: Pieces::new(encoder.clone()),
            builder,
            encoder,
            tap,
            appended: Vec::new(),
            small: None,
            residency: Residency::Cached,
            is_detached: false,
            rows_buffered: 0,
            rows_added: 0,
            workers,
            failed: None,
        })
    }

    /// Sets the encryption key of the table in segments. Must be called before rows are added, because row groups are
    /// written with it.
    pub(super) fn keyed(self, key: Option<Arc<TableKey>>) -> Self {
        Load { key, ..self }
    }

    /// Sets the claim to the name of the table that this load creates.
    pub(super) fn under(self, claim: Option<Arc<Claim>>) -> Self {
        Load { claim, ..self }
    }

    /// Sets the encoded bytes of the version that this load replaces, if there is one.
    pub(super) fn replacing(self, bytes_before: Option<u64>) -> Self {
        Load { bytes_before, ..self }
    }

    /// Marks the load as one whose rows do not become a table of the catalog. `mode` is the mode that the client
    /// requested.
    pub(super) fn detached(self, mode: LoadMode) -> Self {
        Load { mode, is_detached: true, writer: None, has_disk: false, tap: None, ..self }
    }

    /// Returns whether the rows do not become a table of the catalog. The load then ends with [`Load::into_table`].
    pub fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// Encodes the remaining rows, as [`Load::push`] does. Blocks until then.
    ///
    /// # Errors
    /// As [`Load::push`].
    pub fn finish(&mut self) -> Result<()> {
        self.check()?;
        self.complete();
        self.encode(true)
    }

    /// Returns the rows as a table that is in no catalog. All rows must have been encoded.
    ///
    /// # Errors
    /// As [`Load::push`].
    pub fn into_table(self) -> Result<Table> {
        self.check_encoded()?;
        self.builder.finish()
    }

    /// Sets the id with which the client may ask for the outcome of the load.
    pub fn set_id(&mut self, id: LoadId) {
        self.id = Some(id);
    }

    /// Sets the callback that is called when other threads have done what the load waits for, so that it may have a
    /// piece.
    pub fn set_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.waits.set_wake(wake);
    }

    /// Sets whether the rows stay in memory.
    ///
    /// # Errors
    /// `Invalid` if rows are to be pinned in a table that is not pinned, and for any residency but
    /// [`Residency::Cached`] without a data directory.
    pub(super) fn set_residency(&mut self, residency: Residency) -> Result<()> {
        if residency != Residency::Cached && !self.catalog.is_durable() {
            return Err(Error::invalid(
                "the pool has no data directory: its rows are in memory and nowhere else",
            )
            .advise("leave out --pin and --no-cache, or start the node with --data-dir"));
        }
        let is_pinned = match self.mode {
            LoadMode::Append | LoadMode::ReplaceVersion(_) => {
                self.catalog.newest(&self.tenant, &self.name)?.is_pinned
            }
            LoadMode::Create | LoadMode::Replace => residency == Residency::Pinned,
        };
        if residency == Residency::Pinned && !is_pinned {
            let message = format!(
                "table {:?} is not pinned, and its new rows cannot be pinned alone",
                self.name.as_str()
            );
            return Err(Error::invalid(message)
                .advise("load the whole table with --pin (--replace takes the place of this one), or append without it"));
        }
        self.residency = if is_pinned { Residency::Pinned } else { residency };
        Ok(())
    }

    /// Sets the number of threads on which [`Load::push`] encodes, including the caller's. The default is the number of
    /// the catalog's helper threads, at most eight.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Disables profiling of the rows, for tables that live no longer than the query that needs them.
    pub fn without_tap(&mut self) {
        self.tap = None;
    }

    /// Adds rows, and encodes full row groups when there is one per worker. Columns are matched by index; values are
    /// cast to the types that the load began with. Blocks until the encoding is done.
    ///
    /// # Errors
    /// `Invalid` if a value does not fit; `OverLimit`, with sizes, if the table does not or will not fit into the pool;
    /// `Exists` if a replacement has taken the name that is to be created. After an error the load can only be dropped:
    /// later calls return the same error.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.buffer(batch)?;
        if self.pieces.groups_count() < self.workers {
            return Ok(());
        }
        self.encode(false)
    }

    /// Adds rows without encoding anything.
    ///
    /// # Errors
    /// As [`Load::push`].
    pub fn buffer(&mut self, batch: &RecordBatch) -> Result<()> {
        self.check()?;
        // The load fails here if a replacement has ended its claim to the name, so that the client need not send the
        // rest.
        let buffered = self.claim.as_ref().map_or(Ok(()), |claim| claim.check());
        let buffered = buffered.and_then(|()| self.builder.buffer(batch));
        self.keep_failure(buffered)?;
        self.rows_buffered += u64_from(batch.num_rows());
        if !self.is_small() {
            self.catalog.background.rows_came();
        }
        while let Some(group) = self.builder.take_full_row_group() {
            self.pieces.add(group);
        }
        Ok(())
    }

    /// Ends the input. The last rows, which do not fill a row group, are queued for encoding; those of a small append
    /// are kept, and are encoded together with other appends.
    pub fn complete(&mut self) {
        if self.is_small() {
            self.small = self.builder.take_last_row_group();
            return;
        }
        while let Some(group) = self.builder.take_last_row_group() {
            self.pieces.add(group);
        }
    }

    /// Returns whether [`Load::next_piece`] has a piece.
    pub fn has_piece(&self) -> bool {
        let has_own = || self.may_keep() || self.pieces.has_next(self.may_begin());
        self.failed.is_none() && (self.waits.have_news() || has_own())
    }

    /// Takes the next piece of encoding work; `None` if every piece has been taken, or the remaining ones cannot be
    /// done yet.
    pub fn next_piece(&mut self) -> Option<Piece> {
        if self.failed.is_some() {
            return None;
        }
        self.catalog.background.rows_came();
        if let Some(outcome) = self.waits.take() {
            return Some(Piece::of_done(outcome));
        }
        if self.may_keep()
            && let Some(writer) = self.writer.take()
        {
            return Some(Piece::keep(writer, mem::take(&mut self.to_keep), self.key.clone()));
        }
        self.pieces.next(self.may_begin())
    }

    /// Returns whether row groups can be written to a segment now.
    fn may_keep(&self) -> bool {
        let is_behind = || self.waits.under_way(WaitReason::Disk) >= SEGMENTS_WAITING_MAX;
        !self.to_keep.is_empty() && self.writer.is_some() && !is_behind()
    }

    /// Returns whether the encoding of another row group can begin now.
    fn may_begin(&self) -> bool {
        self.to_keep.len() < UNWRITTEN_MAX && self.waits.under_way(WaitReason::Room) == 0
    }

    /// Returns whether other threads work on a part of the load, or it waits for them. There will then be another
    /// piece.
    pub fn is_waiting(&self) -> bool {
        let is_kept = !self.has_disk || self.writer.is_some() && self.to_keep.is_empty();
        self.failed.is_none() && (self.waits.are_left() || !is_kept)
    }

    /// Takes the result of a piece, and adds the row groups that are complete with it.
    ///
    /// # Errors
    /// As [`Load::push`].
    pub fn done(&mut self, piece: Result<PieceDone>) -> Result<()> {
        self.check()?;
        self.catalog.background.rows_came();
        let taken = piece.and_then(|PieceDone(outcome)| self.take_back(outcome));
        self.keep_failure(taken)
    }

    fn take_back(&mut self, outcome: PieceOutcome) -> Result<()> {
        match outcome {
            PieceOutcome::Encoded { group, column, chunk } => self.pieces.encoded(group, column, chunk),
            PieceOutcome::Placed { group, placed } => {
                self.pieces.placed(group, placed);
                self.add_placed()?;
            }
            PieceOutcome::Crowded(placement, error) => self.wait_for_room(placement, error)?,
            PieceOutcome::Kept(writer) => self.writer = Some(writer),
            PieceOutcome::Stored => {}
        }
        Ok(())
    }

    /// Lets another thread place a row group when the pool has room.
    ///
    /// # Errors
    /// The error of the pool, if the pool evicts nothing.
    fn wait_for_room(&mut self, placement: Placement, error: Error) -> Result<()> {
        if !self.catalog.pool.reclaims() {
            return Err(self.with_both_versions(error));
        }
        let (wait, background) = (self.waits.begin(WaitReason::Room), self.catalog.background.clone());
        WaitingGroup { placement, wait, background, retries: RetryBudget::new() }.go_on();
        Ok(())
    }

    /// Returns the number of rows received so far, encoded or not.
    pub fn rows_buffered(&self) -> u64 {
        self.rows_buffered
    }

    /// Returns the number of rows that are encoded and in the pool. They are the first rows of the load.
    pub fn rows_added(&self) -> u64 {
        self.rows_added
    }

    /// Returns whether this is an append of few rows, which are encoded together with those of other appends.
    fn is_small(&self) -> bool {
        self.is_append()
            && self.rows_buffered <= u64_from(limits::SMALL_APPEND_ROWS)
            && self.bytes_held() <= limits::SMALL_APPEND_BYTES
            && self.rows_added == 0
            && !self.is_encoding()
    }

    /// Returns whether a full row group is being encoded or waits for it.
    pub fn is_encoding(&self) -> bool {
        self.pieces.groups_count() > 0
    }

    /// Returns the bytes of memory of rows that are not in the pool yet: up to one row group per worker, plus one that
    /// is not full, each of at most [`limits::ROW_GROUP_BYTES_MAX`] uncompressed.
    pub fn bytes_held(&self) -> usize {
        let small = self.small.as_ref().map_or(0, PlainGroup::bytes_held);
        self.builder.bytes_held() + self.pieces.bytes_held() + small
    }

    /// Makes all rows visible at once, as the table's new version. First encodes the remaining rows, as [`Load::push`]
    /// does, and computes the profiles that [`Load::profile_before`] requires. Blocks until the version is durable.
    ///
    /// # Errors
    /// As [`Load::push`]; `Exists` if a replacement has created the table that is to be created; `Stale` if the version
    /// to be replaced is no longer the current one; `NotFound` or `Invalid` if the table to append to was dropped or
    /// got other columns in the meantime.
    pub fn commit(mut self) -> Result<TableInfo> {
        self.finish()?;
        while let Some(profile) = self.profile_before(Box::new(|| {})) {
            // The append does not need the profile, so that errors of the profile, such as a timeout, do not fail it.
            if let Err(error) = profile.finish(&*self.catalog.helpers) {
                profile.give_up(&error);
            }
        }
        if self.seal() {
            self.encode(true)?;
        }
        match self.mode {
            LoadMode::Append => self.append(Box::new(|| {}))?.commit(),
            LoadMode::Create | LoadMode::Replace | LoadMode::ReplaceVersion(_) => self.publish()?.wait(),
        }
    }

    /// Starts making the written segments durable. Returns whether the load must wait for that; it then has another
    /// piece. All rows must have been encoded.
    pub fn seal(&mut self) -> bool {
        if !self.is_waiting()
            && let Some(writer) = &mut self.writer
        {
            let finished = writer.finish();
            // An error is also stored in `failed`, and reported when the load is published.
            drop(self.keep_failure(finished));
        }
        self.is_waiting()
    }

    /// Returns the claim to the name of the table; `None` if this load does not create it. The claim can be given up
    /// before the load is dropped.
    pub fn claim(&self) -> Option<&Arc<Claim>> {
        self.claim.as_ref()
    }

    /// Returns whether the rows are added to an existing table. The load then ends with [`Load::append`], otherwise
    /// with [`Load::publish`].
    pub fn is_append(&self) -> bool {
        self.mode == LoadMode::Append && !self.is_detached
    }

    /// Returns the name of the table.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Returns the mode of the load.
    pub fn mode(&self) -> LoadMode {
        self.mode
    }

    /// Returns the profiles that must be computed before an append may be published, because too many earlier versions
    /// have none yet; `None` if there are few enough. `wake` is called when another step may be ready, or when the
    /// profiles are complete.
    pub fn profile_before(&self, wake: Box<dyn Fn() + Send + Sync>) -> Option<AwaitedProfile> {
        if !self.is_append() {
            return None;
        }
        // A dropped table has no profile to wait for; committing the append reports that it is dropped.
        let tap = self.catalog.newest(&self.tenant, &self.name).ok()?.tap?;
        (tap.unsettled() > limits::TAPS_WAITING_MAX).then(|| AwaitedProfile::new(tap, wake))
    }

    /// Makes the rows of a new table or of a replacement visible, all at once. All rows must have been encoded.
    ///
    /// # Errors
    /// As [`Load::commit`].
    pub fn publish(self) -> Result<Commit<TableInfo>> {
        self.check_encoded()?;
        let is_pinned = self.residency == Residency::Pinned;
        let Load { catalog, tenant, name, mode, id, claim, builder, encoder, tap, key, .. } = self;
        let expected = match (mode, &claim) {
            (LoadMode::Append, _) => return Err(Error::internal("an append is not published by itself")),
            (LoadMode::Create, Some(claim)) => claim.expected(),
            (LoadMode::Create, None) => return Err(Error::internal("a create without a claim to its name")),
            (LoadMode::Replace, _) => Expected::Anything,
            (LoadMode::ReplaceVersion(version), _) => Expected::Version(version),
        };
        let tapped = tap.map(|tap| Tapped { tap, before: None, encoder });
        let table = Arc::new(catalog.holding(&tenant, builder.finish()?)?);
        catalog.put(&tenant, &name, NewTable { table, key, is_pinned }, tapped, expected, id)
    }

    /// Adds the rows to the queue of appends of the table. All rows must have been encoded, except those of a small
    /// append. `wake` is called when [`Append::try_commit`] may return an outcome or has work to do.
    ///
    /// # Errors
    /// `NotFound` if the table was dropped in the meantime.
    pub fn append(self, wake: Box<dyn Fn() + Send + Sync>) -> Result<Append> {
        self.check_encoded()?;
        let Load { catalog, tenant, name, id, builder, appended, small, outside, .. } = self;
        let rows = Rows { schema: builder.schema().clone(), groups: appended, small, load: id };
        Append::stand_in_line(catalog, tenant, name, rows, outside, wake)
    }

    fn check_encoded(&self) -> Result<()> {
        self.check()?;
        let small = self.small.as_ref().map_or(0, |small| u64_from(small.rows()));
        match self.rows_added + small == self.rows_buffered {
            true => Ok(()),
            false => Err(Error::internal("a load that is not encoded cannot be committed")),
        }
    }

    fn add_placed(&mut self) -> Result<()> {
        while let Some(group) = self.pieces.take_placed() {
            let group = match self.is_detached {
                true => Arc::new(group),
                false => Arc::new(self.catalog.with_handles(&self.tenant, group)),
            };
            group.chunks.iter().for_each(|chunk| chunk.set_residency(self.residency));
            self.rows_added += u64_from(group.rows);
            if let Some(outside) = &mut self.outside {
                outside.try_grow(group.bytes_outside_pool())?;
            }
            let added = self.builder.add_row_group(group.clone());
            added.map_err(|error| self.with_both_versions(error))?;
            self.check_disk()?;
            self.check_pin()?;
            if self.has_disk {
                self.to_keep.push(group.clone());
            }
            if self.is_append() {
                self.appended.push(group);
            } else if let Some(tap) = &self.tap {
                tap.add(group);
            }
        }
        Ok(())
    }

    /// Checks the tenant's disk quota while rows arrive, so that the client need not send the rest of a load that will
    /// fail.
    fn check_disk(&self) -> Result<()> {
        if self.is_detached {
            return Ok(());
        }
        let state = self.catalog.state.read();
        self.catalog.check_disk(&state, &self.tenant, &self.name, self.builder.bytes_added())
    }

    /// Checks the limit of pinned bytes while rows arrive, so that the client need not send the rest of a load that
    /// will fail.
    fn check_pin(&self) -> Result<()> {
        match self.residency {
            Residency::Pinned if !self.is_append() => {
                let state = self.catalog.state.read();
                self.catalog.check_pins(&state, &self.tenant, &self.name, self.builder.bytes_added())
            }
            Residency::Pinned | Residency::Cached | Residency::Passing => Ok(()),
        }
    }

    /// Adds to the error of a replacement for which the pool has no room the bytes of the version to be replaced, which
    /// stays in the pool until the swap.
    fn with_both_versions(&self, error: Error) -> Error {
        let Some(before) = self.bytes_before.filter(|_| error.kind == ErrorKind::OverLimit) else {
            return error;
        };
        let added = self.builder.bytes_added();
        let free = self.catalog.pool.bytes_free(&self.tenant) + added;
        let needed = match self.builder.bytes_projected() {
            Some(bytes) => format!("about {}", size_text(bytes)),
            None => format!("more than {}", size_text(added)),
        };
        let (before, free) = (size_text(before), size_text(free));
        let message = format!(
            "the pool has no room for table {:?} and its replacement: the table takes {before}, what replaces it needs \
             {needed}, and {free} are free for that",
            self.name.as_str()
        );
        Error::over_limit(message).advise(match self.mode {
            LoadMode::ReplaceVersion(_) => "give the pool more memory, or drop other tables",
            _ => "drop the table first (farpool drop) and load it again, or give the pool more memory",
        })
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn keep_failure<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.pieces = Pieces::new(self.encoder.clone());
            self.to_keep.clear();
            self.tap = None;
        }
        outcome
    }

    /// Encodes all full row groups, on the calling thread and helper threads. Blocks until they are done, and if
    /// `is_end`, until all other work for the load is done, too.
    fn encode(&mut self, is_end: bool) -> Result<()> {
        while self.is_encoding() || is_end && self.is_waiting() {
            if !self.has_piece() {
                if !self.waits.wait() {
                    return Err(Error::internal("a load waits for nobody"));
                }
                continue;
            }
            let threads = self.workers.min(self.pieces.groups_count()).max(1);
            let helpers = self.catalog.helpers.clone();
            let load = Mutex::new(&mut *self);
            let encode_some = || {
                loop {
                    // A separate statement, so that the lock is released while the piece of work runs.
                    let piece = load.lock().next_piece();
                    let Some(piece) = piece else { return };
                    let done = piece.run();
                    // The error is also stored in `failed`, and returned below.
                    drop(load.lock().done(done));
                }
            };
            let helped = helpers.run(threads, &encode_some);
            self.keep_failure(helped)?;
            self.check()?;
        }
        self.check()
    }
}

/// Checks that the rows have the column names and types of the table, in the same order.
pub(super) fn check_agree(name: &TableName, table: &Schema, rows: &Schema) -> Result<()> {
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

/// Checks that columns declared NOT NULL have no NULLs.
pub(super) fn check_nulls(name: &TableName, table: &Schema, has_nulls: impl Fn(usize) -> bool) -> Result<()> {
    let mut fields = table.fields().iter().enumerate();
    match fields.find(|(column, field)| !field.is_nullable() && has_nulls(*column)) {
        Some((_, field)) => Err(Error::invalid(format!(
            "these rows do not fit table {:?}: column {:?} may not be NULL",
            name.as_str(),
            field.name()
        ))),
        None => Ok(()),
    }
}
