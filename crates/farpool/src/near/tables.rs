//! Tables of a memory node for programs (queries over one table) that run in this process: row groups of handles
//! (column chunks whose values are fetched on demand).

use super::chunks::{Chunks, places};
use arrow::datatypes::SchemaRef;
use farpool_columns::{Chunk, RowGroup, Table, TableBuilder};
use farpool_memory::{Account, Reservation};
use farpool_model::cast::u64_from;
use farpool_model::{Error, Result, TableInfo, TableName, limits};
use farpool_transfer::{ChunkOutline, Handle, Outlines};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::OnceCell;

/// Bytes that are charged for a chunk in addition to its values: its handle, bounds and places, or the overhead of a
/// small chunk.
const CHUNK_BYTES: usize = 1 << 10;

/// One version of a table at a node, with handles for the chunks of some columns.
#[derive(Debug)]
pub(super) struct NearTable {
    /// Id of the node's process, and the id of the version's list of row groups there.
    id: (u64, u64),
    columns: BTreeSet<usize>,
    pub table: Arc<Table>,
    /// Programs over the version that are prepared at the node. The node keeps the version while one of them exists.
    handles: Mutex<Vec<Weak<Handle>>>,
    /// Number of prepared programs that have not run yet, by the columns that they read.
    coming: Mutex<HashMap<usize, u64>>,
    /// The node's description of the table, for estimates; fetched at first use.
    pub info: OnceCell<TableInfo>,
}

/// A prepared program that has neither read its columns in this process nor started at the node.
pub(super) struct Coming {
    table: Arc<NearTable>,
    columns: Vec<usize>,
    is_over: AtomicBool,
}

impl Coming {
    /// Records that the program will not read its columns any more.
    pub fn over(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let mut coming = self.table.coming.lock().unwrap_or_else(PoisonError::into_inner);
            for column in &self.columns {
                if let Some(count) = coming.get_mut(column) {
                    *count -= 1;
                }
            }
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.over();
    }
}

impl NearTable {
    /// Adds a prepared program through which the node keeps the version.
    pub fn keep(&self, handle: &Arc<Handle>) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(handle));
    }

    /// Returns a prepared program through which the node keeps the version; `None` if there is none any more.
    pub fn handle(&self) -> Option<Handle> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().rev().find_map(Weak::upgrade).map(|handle| Handle::clone(&handle))
    }

    /// Records a program that will read `columns`.
    pub fn expect(self: &Arc<Self>, columns: &[usize]) -> Coming {
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        columns.iter().for_each(|column| *coming.entry(*column).or_default() += 1);
        Coming { table: self.clone(), columns: columns.to_vec(), is_over: AtomicBool::new(false) }
    }

    /// Returns the encoded bytes of `columns`, each multiplied by the number of prepared programs that will read it.
    pub fn bytes_coming(&self, columns: &[usize]) -> u64 {
        let times = |column: &usize| {
            self.coming
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(column)
                .copied()
                .unwrap_or_default()
        };
        columns.iter().map(|column| times(column) * self.bytes(&[*column]).map_or(0, |(all, _)| all)).sum()
    }

    /// Returns the encoded bytes of `columns`: of all, and of those whose values are not in this process. `None` if
    /// there are no handles for these columns.
    pub fn bytes(&self, columns: &[usize]) -> Option<(u64, u64)> {
        if !columns.iter().all(|column| self.columns.contains(column)) {
            return None;
        }
        let (mut all, mut absent) = (0, 0);
        for group in self.table.row_groups.iter() {
            for chunk in columns.iter().map(|column| &group.chunks[*column]) {
                all += u64_from(chunk.bytes_encoded());
                absent += if chunk.is_absent() { u64_from(chunk.bytes_encoded()) } else { 0 };
            }
        }
        Some((all, absent))
    }
}

/// The tables of the node that programs in this process have read.
#[derive(Debug, Default)]
pub(super) struct NearTables {
    tables: Mutex<HashMap<TableName, Arc<NearTable>>>,
    making: tokio::sync::Mutex<()>,
}

impl NearTables {
    /// Returns the last known version of a table; `None` if there is none.
    pub fn get(&self, name: &TableName) -> Option<Arc<NearTable>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn put(&self, name: &TableName, table: &Arc<NearTable>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if !tables.contains_key(name)
            && tables.len() >= limits::NEAR_TABLES_MAX
            && let Some(other) = tables.keys().next().cloned()
        {
            tables.remove(&other);
        }
        // The old version is dropped after the new one has its handles.
        let before = tables.insert(name.clone(), table.clone());
        drop(tables);
        drop(before);
    }

    /// Returns the version that the program `handle` reads, with handles for at least `columns`.
    ///
    /// # Errors
    /// `Invalid` for a table whose chunks clients may not cache; `Corrupt` if the received metadata do not fit;
    /// `OverLimit` if there is no memory for them; errors of the connection.
    pub async fn version(
        &self,
        chunks: &Chunks,
        account: &Account,
        handle: &Handle,
        schema: &SchemaRef,
        columns: &[usize],
    ) -> Result<Arc<NearTable>> {
        let instance = chunks.remote().instance(handle)?;
        if instance == 0 {
            return Err(Error::invalid("a node that does not say who it is"));
        }
        if let Some(known) = self.known(chunks, handle, instance, columns).await? {
            return Ok(known);
        }
        // Tables are built one at a time: if two were built concurrently for different columns, the chunks of one would
        // be lost.
        let _turn = self.making.lock().await;
        if let Some(known) = self.known(chunks, handle, instance, columns).await? {
            return Ok(known);
        }
        let name = &handle.effective.table;
        let mut wanted: BTreeSet<usize> = columns.iter().copied().collect();
        let before = self.get(name).filter(|before| before.id.0 == instance);
        wanted.extend(before.iter().flat_map(|before| &before.columns));
        wanted.retain(|column| *column < schema.fields().len());
        let wanted: Vec<usize> = wanted.into_iter().collect();
        let mut builder = Building::new(chunks, account, schema, &wanted, instance)?;
        let mut number = None;
        loop {
            let next = builder.row_groups;
            let outlines = chunks.remote().outlines(handle, &wanted, next, 0).await?;
            if *number.get_or_insert(outlines.table) != outlines.table {
                return Err(misfit());
            }
            builder.add(&outlines)?;
            if builder.row_groups >= outlines.row_groups as usize {
                break;
            }
            if outlines.rows.is_empty() {
                return Err(misfit());
            }
        }
        let table = builder.finish((instance, number.unwrap_or_default()))?;
        self.put(name, &table);
        Ok(table)
    }

    /// Returns the version that the program `handle` reads, if it is known with these columns; `None` otherwise.
    async fn known(
        &self,
        chunks: &Chunks,
        handle: &Handle,
        instance: u64,
        columns: &[usize],
    ) -> Result<Option<Arc<NearTable>>> {
        let Some(known) = self.get(&handle.effective.table) else { return Ok(None) };
        if known.id.0 != instance || !columns.iter().all(|column| known.columns.contains(column)) {
            return Ok(None);
        }
        // Beyond the last row group there is nothing to describe.
        let outlines = chunks.remote().outlines(handle, columns, u32::MAX as usize, known.id.1).await?;
        Ok(Some(known).filter(|known| known.id.1 == outlines.table))
    }
}

fn misfit() -> Error {
    Error::corrupt("the pool describes chunks that do not fit their table")
        .advise("client and pool may be of different versions: upgrade the older one")
}

/// A table under construction.
struct Building<'a> {
    chunks: &'a Chunks,
    schema: &'a SchemaRef,
    columns: &'a [usize],
    instance: u64,
    builder: TableBuilder,
    row_groups: usize,
    /// Chunks of NULLs for the columns that are not read, by their number of rows.
    nulls: BTreeMap<usize, Vec<Arc<Chunk>>>,
    held: Reservation,
}

impl<'a> Building<'a> {
    fn new(
        chunks: &'a Chunks,
        account: &Account,
        schema: &'a SchemaRef,
        columns: &'a [usize],
        instance: u64,
    ) -> Result<Self> {
        let builder = TableBuilder::new(chunks.pool().clone(), chunks.tenant().clone(), schema, None)?;
        let (nulls, held) = (BTreeMap::new(), account.empty());
        Ok(Building { chunks, schema, columns, instance, builder, row_groups: 0, nulls, held })
    }

    fn add(&mut self, outlines: &Outlines) -> Result<()> {
        if outlines.chunks.len() != outlines.rows.len() * self.columns.len() {
            return Err(misfit());
        }
        let mut described = outlines.chunks.iter();
        for rows in outlines.rows.iter().map(|rows| *rows as usize) {
            if rows == 0 || rows > limits::ROW_GROUP_ROWS {
                return Err(misfit());
            }
            let mut chunks = self.nulls(rows)?;
            // Memory is reserved as the chunks arrive, because the node determines their number.
            self.held.try_grow(self.columns.len() * CHUNK_BYTES + chunks.len() * size_of::<Arc<Chunk>>())?;
            for (column, outline) in self.columns.iter().zip(&mut described) {
                let chunk = self.chunk(outline)?;
                if chunk.rows() != rows || chunk.data_type() != self.schema.field(*column).data_type() {
                    return Err(misfit());
                }
                chunks[*column] = chunk;
            }
            self.builder.add_row_group(Arc::new(RowGroup { rows, chunks }))?;
            self.row_groups += 1;
        }
        Ok(())
    }

    fn nulls(&mut self, rows: usize) -> Result<Vec<Arc<Chunk>>> {
        if let Some(nulls) = self.nulls.get(&rows) {
            return Ok(nulls.clone());
        }
        let encoder = self.builder.encoder();
        let columns = 0..self.schema.fields().len();
        let nulls: Vec<Arc<Chunk>> =
            columns.map(|column| encoder.nulls_of(column, rows).map(Arc::new)).collect::<Result<_>>()?;
        self.nulls.insert(rows, nulls.clone());
        Ok(nulls)
    }

    fn chunk(&mut self, outline: &ChunkOutline) -> Result<Arc<Chunk>> {
        let Some(data) = &outline.data else {
            return self.chunks.handle(self.instance, outline.number, &outline.head);
        };
        self.held.try_grow(data.len())?;
        Ok(Arc::new(Chunk::from_image(&outline.head, &arrow::buffer::Buffer::from(data.to_vec()))?))
    }

    fn finish(self, id: (u64, u64)) -> Result<Arc<NearTable>> {
        let columns = self.columns.iter().copied().collect();
        let table = Arc::new(self.builder.finish()?.holding(self.held));
        let (handles, coming, info) = (Mutex::default(), Mutex::default(), OnceCell::new());
        let near = Arc::new(NearTable { id, columns, table, handles, coming, info });
        for (row_group, group) in near.table.row_groups.iter().enumerate() {
            for column in &near.columns {
                if let Some(places) = places(&group.chunks[*column]) {
                    places.add(&near, row_group, *column);
                }
            }
        }
        Ok(near)
    }
}
