//! Key spaces (namespaces of keys) as tables: reading keys by SQL while clients change them.
//!
//! A program over a space reads all keys of the space as of one moment (`farpool_kv::KeyCut`, a point-in-time view), in
//! parts. Each part is copied into a row group when a worker begins with it. If the filter of the program names single
//! keys, only these are looked up.

mod awaited;
mod change;
mod condition;
mod gather;
mod lookup;
mod recomputation;
mod stepped;
#[cfg(test)]
mod tests;

pub(crate) use condition::LastCondition;
pub use stepped::SteppedHost;

use crate::caller::Caller;
use crate::rights::Verb;
use arrow_schema::{Field, SchemaRef};
use awaited::AwaitedRecord;
use farpool_columns::{FilteredLiveRows, LiveGroup, LiveGroupBounds, LiveRows, RowGroup, Table};
use farpool_keystore::Keyspaces;
use farpool_kv::predicate::plain_schema;
use farpool_kv::{
    Fingerprint, KeyCut, KeyCutPart, Keyspace, ReadCount, RowFilter, RowSchema, Space, SpaceId, Spaces,
};
use farpool_model::cast::u64_from;
use farpool_model::limits::{KV_KEY_BYTES_MAX, RETRY_AFTER_MS, STRING_BYTES_MAX};
use farpool_model::{
    ColumnStatistics, Error, Expr, Program, Result, SchemaName, TableInfo, TableName, TenantName, Version,
};
use gather::ColumnSelection;
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Maximum number of entries of a row group; the next constant is its maximum bytes. Reason for both: making a row
/// group takes less than a millisecond.
const PART_ENTRIES: usize = 8 << 10;
const PART_BYTES: usize = 1 << 20;

/// Ids of the spaces that clients select with `SELECT`, except 0.
const SELECTED: std::ops::Range<SpaceId> = 1..16;

/// Name of the table with the keys of space 0 that belong to no named space.
const DEFAULT: &str = "default";

/// A space (namespace) of a tenant's keys, as a table that SQL reads.
#[derive(Clone, Debug)]
struct SpaceTable {
    keyspace: Arc<Keyspace>,
    id: SpaceId,
    /// Definition of the space; `None` unless it is a named space.
    named: Option<Arc<Space>>,
    name: TableName,
    /// Prefix of the keys, which is not part of the values of the first column.
    prefix: Box<[u8]>,
    rows: Option<RowSchema>,
    schema: SchemaRef,
}

/// The rows of a space that one program reads: those of a point-in-time view, or those of single keys.
#[derive(Debug)]
struct SpaceRows {
    space: SpaceTable,
    what: RowSource,
    awaited: Option<AwaitedRecord>,
}

#[derive(Debug)]
enum RowSource {
    /// The rows are not chosen yet. They are chosen when a program over the space is prepared.
    ToCome,
    Cut(Arc<CutRows>),
    /// The rows of single keys, and the fingerprint of each key, which tells whether it has changed since.
    Found(Arc<RowGroup>, HashMap<Vec<u8>, Fingerprint>),
}

/// A cut (point-in-time view) of the space, divided into parts.
#[derive(Debug)]
struct CutRows {
    cut: KeyCut,
    parts: Vec<KeyCutPart>,
}

/// The rows of a cut that a filter on the stored entries has passed, so that a condition may be true for them.
#[derive(Debug)]
struct FilteredRows {
    space: SpaceTable,
    rows: Arc<CutRows>,
    filter: RowFilter,
    /// Columns that the condition reads.
    columns: Vec<usize>,
    awaited: Option<AwaitedRecord>,
}

impl CutRows {
    /// Copies the entries of a part into a row group.
    fn make(
        &self,
        space: &SpaceTable,
        place: usize,
        wanted: ColumnSelection<'_>,
        filter: Option<&RowFilter>,
    ) -> Result<LiveGroup> {
        let Some(part) = self.parts.get(place) else {
            // A space without keys has one part without rows.
            return Ok(space.gather(0, self.cut.now(), wanted, |_| Ok(()))?.into());
        };
        let mut count = ReadCount::default();
        // The number of rows that pass the filter is unknown.
        let about = if filter.is_some() { 0 } else { part.entries() };
        let group = space.gather(about, self.cut.now(), wanted, |f| {
            count = self.cut.read(part, filter, f)?;
            Ok(())
        })?;
        Ok(LiveGroup { rows_dropped: count.entries - group.rows, bytes_judged: count.bytes_judged, group })
    }
}

impl LiveRows for FilteredRows {
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.awaited.as_ref().is_some_and(|awaited| awaited.poll(context).is_pending()) {
            return Poll::Pending;
        }
        self.space.keyspace.poll_released(self.space.keyspace.releases(), context)
    }

    fn row_group(&self, place: usize, columns: &[usize]) -> Result<LiveGroup> {
        self.awaited.as_ref().map_or(Ok(()), AwaitedRecord::check)?;
        let wanted = ColumnSelection { columns, judged: &self.columns };
        self.rows.make(&self.space, place, wanted, Some(&self.filter))
    }
}

impl SpaceRows {
    /// Returns the fingerprint of a key that was looked up; `None` if the rows were read from a cut or the key was
    /// absent.
    fn expected(&self, key: &[u8]) -> Option<Fingerprint> {
        match &self.what {
            RowSource::Found(_, fingerprints) => fingerprints.get(key).copied(),
            RowSource::ToCome | RowSource::Cut(..) => None,
        }
    }

    /// Returns the cut whose rows are read; `None` if single keys were looked up.
    fn cut(&self) -> Option<&KeyCut> {
        match &self.what {
            RowSource::Cut(rows) => Some(&rows.cut),
            RowSource::ToCome | RowSource::Found(..) => None,
        }
    }
}

impl LiveRows for SpaceRows {
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.awaited.as_ref().is_some_and(|awaited| awaited.poll(context).is_pending()) {
            return Poll::Pending;
        }
        self.space.keyspace.poll_released(self.space.keyspace.releases(), context)
    }

    fn row_group(&self, place: usize, columns: &[usize]) -> Result<LiveGroup> {
        self.awaited.as_ref().map_or(Ok(()), AwaitedRecord::check)?;
        match &self.what {
            RowSource::Cut(rows) => rows.make(&self.space, place, ColumnSelection::of(columns), None),
            RowSource::Found(found, _) => {
                Ok(RowGroup { rows: found.rows, chunks: found.chunks.clone() }.into())
            }
            RowSource::ToCome => Err(Error::internal("a space is read before its moment was chosen")),
        }
    }

    fn filtered(&self, condition: &Expr) -> Option<FilteredLiveRows> {
        let RowSource::Cut(rows) = &self.what else { return None };
        let filter = RowFilter::of(condition, self.space.rows.as_ref(), self.space.prefix.len())?;
        let is_exact = filter.is_exact();
        let mut columns = BTreeSet::new();
        condition.collect_columns(&mut columns);
        let (space, rows, columns) = (self.space.clone(), rows.clone(), columns.into_iter().collect());
        let filtered = FilteredRows { space, rows, filter, columns, awaited: self.awaited.clone() };
        Some(FilteredLiveRows { rows: Arc::new(filtered), is_exact })
    }
}

impl SpaceTable {
    fn named(keyspace: &Arc<Keyspace>, space: &Arc<Space>) -> Option<SpaceTable> {
        let schema = match &space.schema {
            Some(schema) => schema.to_arrow(),
            None => plain_schema(space.is_binary).clone(),
        };
        let prefix = if space.schema.is_some() { space.prefix.clone() } else { Box::default() };
        Some(SpaceTable {
            keyspace: Arc::clone(keyspace),
            id: space.id,
            named: Some(Arc::clone(space)),
            name: TableName::decode(space.name.as_str()).ok()?,
            prefix,
            rows: space.schema.clone(),
            schema,
        })
    }

    fn selected(keyspace: &Arc<Keyspace>, id: SpaceId) -> Option<SpaceTable> {
        let name = if id == 0 { DEFAULT.to_string() } else { format!("db{id}") };
        Some(SpaceTable {
            keyspace: Arc::clone(keyspace),
            id,
            named: None,
            name: TableName::new(name).ok()?,
            prefix: Box::default(),
            rows: None,
            schema: plain_schema(false).clone(),
        })
    }

    /// Returns the description of the space as a table. Its numbers of rows and bytes are estimates.
    fn info(&self, version: Version) -> TableInfo {
        let count = self.keyspace.count(self.id);
        let (rows, bytes) = (u64_from(count.keys), u64_from(count.bytes));
        let columns = self.schema.fields().len();
        // There are no statistics of columns, so NULLs must be expected.
        let column = ColumnStatistics {
            null_count: 1,
            bytes_encoded: bytes / u64_from(columns),
            ..ColumnStatistics::default()
        };
        TableInfo {
            name: self.name.clone(),
            version,
            schema: self.schema.clone(),
            rows,
            bytes_plain: bytes,
            bytes_encoded: bytes,
            columns: vec![column; columns],
            rows_profiled: Some(0),
            encryption: None,
            bytes_resident: Some(bytes),
            is_pinned: false,
        }
    }

    /// Returns the space as a table whose rows are chosen later.
    fn table(self) -> Arc<Table> {
        let schema = self.schema.clone();
        Arc::new(Table::live(
            schema,
            &[],
            Arc::new(SpaceRows { space: self, what: RowSource::ToCome, awaited: None }),
        ))
    }

    /// Looks up some keys and returns their rows with all columns, and their fingerprints. Returns `None` if they have
    /// too many bytes, or if a value cannot be shown in its column; a scan reads only the requested columns and may
    /// succeed.
    fn look_up(&self, keys: &[Vec<u8>], now: u64) -> Option<(RowGroup, HashMap<Vec<u8>, Fingerprint>)> {
        let columns: Vec<usize> = (0..self.schema.fields().len()).collect();
        let (mut fingerprints, mut fits) = (HashMap::new(), true);
        let found = self.gather(keys.len(), now, ColumnSelection::of(&columns), |f| {
            fits = self.keyspace.read_keys(self.id, keys, (PART_BYTES, now), |entry| {
                fingerprints.insert(entry.key().to_vec(), self.keyspace.fingerprint(entry));
                f(&[entry]);
            })?;
            Ok(())
        });
        found.ok().filter(|_| fits).map(|found| (found, fingerprints))
    }

    /// Creates the table with the rows that `program` reads, as of now; also returns the bytes that this takes.
    fn at_once(self, program: &Program, keyspaces: &Keyspaces) -> Result<(Table, usize)> {
        let (schema, now) = (self.schema.clone(), keyspaces.time().now_ms());
        let keys = program.filter.as_ref().and_then(|filter| lookup::keys(filter, &self));
        if let Some((found, fingerprints)) = keys.and_then(|keys| self.look_up(&keys, now)) {
            let part = LiveGroupBounds {
                rows: found.rows,
                bytes_plain: found.chunks.iter().map(|chunk| chunk.bytes_plain()).collect(),
            };
            let bytes = part.bytes_plain.iter().sum();
            let awaited = AwaitedRecord::of(keyspaces, &self.keyspace);
            let parts = if found.rows == 0 && awaited.is_none() { vec![] } else { vec![part] };
            let rows =
                SpaceRows { space: self, what: RowSource::Found(Arc::new(found), fingerprints), awaited };
            return Ok((Table::live(schema, &parts, Arc::new(rows)), bytes));
        }
        let held = || Error::busy("a long command has the keys of the space", *RETRY_AFTER_MS.start());
        let cut = self.keyspace.try_cut(self.id, now).ok_or_else(held)?;
        let parts = cut.parts(PART_ENTRIES, PART_BYTES)?;
        let awaited = AwaitedRecord::of(keyspaces, &self.keyspace);
        let mut bounds: Vec<LiveGroupBounds> =
            parts.iter().map(|part| plain_part(&schema, part.entries(), part.bytes())).collect();
        if bounds.is_empty() && awaited.is_some() {
            // An empty part is added, so that an empty result, too, waits for the log record that it depends on.
            bounds.push(plain_part(&schema, 0, 0));
        }
        let bytes = cut.bytes() + parts.len() * size_of::<KeyCutPart>();
        let rows = SpaceRows { space: self, what: RowSource::Cut(Arc::new(CutRows { cut, parts })), awaited };
        Ok((Table::live(schema, &bounds, Arc::new(rows)), bytes))
    }
}

/// Returns upper bounds for a row group of `entries` entries and `bytes` bytes.
fn plain_part(schema: &SchemaRef, entries: usize, bytes: usize) -> LiveGroupBounds {
    let column = |(at, field): (usize, &Arc<Field>)| match field.data_type().primitive_width() {
        Some(width) => (width + 1) * entries,
        None => {
            // The first column is in the key. A value longer than a column can show is refused.
            let longest = if at == 0 { KV_KEY_BYTES_MAX } else { STRING_BYTES_MAX };
            bytes.min(entries * longest) + (size_of::<u32>() + 1) * entries
        }
    };
    LiveGroupBounds { rows: entries, bytes_plain: schema.fields().iter().enumerate().map(column).collect() }
}

/// A generator of version numbers for spaces as tables: each read of a space as of one moment has a version of its own.
#[derive(Debug)]
pub(crate) struct VersionGenerator(AtomicU64);

impl VersionGenerator {
    /// Creates a generator whose numbers are greater than all those given before the time `unix_ms`, also by earlier
    /// processes.
    pub fn from(unix_ms: u64) -> Self {
        VersionGenerator(AtomicU64::new(Version::FIRST_MOMENT.0 + unix_ms))
    }

    fn next(&self) -> Version {
        Version(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn newest(&self) -> Version {
        Version(self.0.load(Ordering::Relaxed))
    }
}

impl Caller {
    /// Returns the space with this name; `None` if there is none.
    fn space(&self, name: &TableName) -> Option<SpaceTable> {
        let keyspace = self.node().keyspaces().existing(self.tenant())?;
        if let Some(space) = keyspace.spaces().named(&name.encoded()) {
            return SpaceTable::named(&keyspace, space);
        }
        if !name.is_public() {
            return None;
        }
        let number = match name.as_str() {
            DEFAULT => Some(0),
            other => {
                other.strip_prefix("db").and_then(|id| id.parse().ok()).filter(|id| SELECTED.contains(id))
            }
        };
        let selected = SpaceTable::selected(&keyspace, number?)?;
        (selected.name == *name && keyspace.count(selected.id).keys > 0).then_some(selected)
    }

    /// Does the same as [`Caller::space`] for reading, where the default space (space 0) exists even without keys.
    fn space_to_read(&self, name: &TableName) -> Option<SpaceTable> {
        self.space(name).or_else(|| {
            let is_first = name.is_public() && name.as_str() == DEFAULT;
            is_first.then(|| SpaceTable::selected(&self.node().keyspaces().of(self.tenant()), 0)).flatten()
        })
    }

    /// Returns whether there is a space with this name.
    pub(crate) fn is_space(&self, name: &TableName) -> bool {
        self.space(name).is_some()
    }

    /// Describes the spaces of a tenant that are named or have keys, except those whose names are taken by tables.
    pub(crate) fn spaces_of(
        &self,
        tenant: &TenantName,
        is_taken: impl Fn(&TableName) -> bool,
    ) -> Vec<TableInfo> {
        let Some(keyspace) = self.node().keyspaces().existing(tenant) else { return Vec::new() };
        let spaces: Arc<Spaces> = keyspace.spaces();
        let named = spaces.iter().filter_map(|space| SpaceTable::named(&keyspace, space));
        let selected = std::iter::once(0).chain(SELECTED);
        let selected = selected.filter(|id| keyspace.count(*id).keys > 0);
        let selected = selected.filter_map(|id| SpaceTable::selected(&keyspace, id));
        let version = self.node().key_controls().moments().newest();
        let all = named.chain(selected).filter(|space| !is_taken(&space.name));
        let mut infos: Vec<TableInfo> = all.map(|space| space.info(version)).collect();
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        infos
    }

    /// Checks that a schema which is to be dropped contains no spaces.
    ///
    /// # Errors
    /// `Invalid`, with the name of a space, if the schema contains any.
    pub(crate) fn check_no_spaces_in(&self, schema: &SchemaName) -> Result<()> {
        let inside = self.spaces_of(self.tenant(), |name| name.schema() != *schema);
        let Some(first) = inside.first().filter(|_| !schema.is_public()) else { return Ok(()) };
        let (schema, name, count) = (schema.as_str(), first.name.written(), inside.len());
        let message = format!("schema {schema:?} is not empty: spaces of keys in it: {count} ({name})");
        Err(Error::invalid(message)
            .advise(format!("drop them over the Redis protocol: FP.SPACE DROP {name}")))
    }

    /// Returns the description of the space with this name; `None` if there is none.
    pub(crate) fn space_info(&self, name: &TableName) -> Option<TableInfo> {
        let version = self.node().key_controls().moments().newest();
        Some(self.space_to_read(name)?.info(version))
    }

    /// Returns the space with this name as a table, whose rows are chosen when a program is prepared; `None` if there
    /// is none.
    pub(crate) fn space_source(&self, name: &TableName) -> Option<(Version, Arc<Table>)> {
        let version = self.node().key_controls().moments().next();
        Some((version, self.space_to_read(name)?.table()))
    }

    /// Returns the table that `program` reads. For a space, its rows are chosen as of now, unless they were chosen
    /// before for the same statement: all programs of a statement must read the same moment, or a join of a space with
    /// itself would pair rows of different times.
    ///
    /// # Errors
    /// `OverLimit` when there is no memory for the cut; errors of reading single keys.
    pub(crate) fn chosen(&self, program: &Program, table: Arc<Table>) -> Result<Arc<Table>> {
        let Some(rows) = table.live_rows() else { return Ok(table) };
        let rows: &dyn Any = &**rows;
        let Some(SpaceRows { space, what, .. }) = rows.downcast_ref() else { return Ok(table) };
        if let RowSource::Cut(..) = what {
            return Ok(table);
        }
        self.check(Verb::ReadKeys)?;
        let (chosen, bytes) = space.clone().at_once(program, self.node().keyspaces())?;
        let bytes = bytes + farpool_model::cast::usize_saturating(chosen.bytes_outside_pool);
        Ok(Arc::new(chosen.holding(self.account().try_reserve(bytes)?)))
    }
}

/// Returns the error for an operation that tables support and spaces do not.
pub(crate) fn not_for_spaces(name: &TableName, advice: &str) -> Error {
    Error::invalid(format!("{:?} is a space of keys, not a table", name.as_str())).advise(advice.to_string())
}
