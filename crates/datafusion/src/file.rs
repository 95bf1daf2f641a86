//! Files named in FROM. While the statement is planned, a placeholder with the file's schema stands for the file; it is
//! then replaced by a table of only those columns that the plan needs, for example in a pool (store of tables) in this
//! process.

use crate::table::PoolTable;
use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, internal_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableSource, TableType};
use datafusion::physical_plan::ExecutionPlan;
use farpool_model::{FileSpec, OperatorAnswer};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Opens the files that statements name in FROM, as tables. The program that embeds the engine provides it.
#[async_trait]
pub trait FileOpener: Send + Sync {
    /// Returns the schema of the files.
    ///
    /// # Errors
    /// `Stale` if the schema is not the one of the last call, because the file has changed.
    async fn schema(&self, files: &FileSpec) -> farpool_model::Result<SchemaRef>;

    /// Returns a table of the columns of `files` at the given positions of the schema from [`FileOpener::schema`], in
    /// this order, under their names. If `columns` is empty, only the number of rows matters, and the table may have
    /// any columns.
    ///
    /// # Errors
    /// `Stale` if the schema turned out to be different: the statement is then planned again.
    async fn open(
        &self,
        files: &FileSpec,
        columns: &[usize],
        access: FileAccess,
    ) -> farpool_model::Result<Arc<dyn TableProvider>>;
}

/// The part of a file that a statement reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Only the first rows are needed; reading stops when there are enough.
    Look,
    /// All rows may be read.
    Read,
}

/// A file as a table of one statement: a placeholder until the file is opened.
pub(crate) struct FileTable {
    /// The name of the file as written in the statement.
    name: String,
    files: FileSpec,
    schema: SchemaRef,
    opened: OnceLock<Opened>,
}

/// The table of the needed columns; and for each column of the file its position in that table, `None` if it is not
/// needed.
type Opened = (Arc<dyn TableProvider>, Vec<Option<usize>>);

impl fmt::Debug for FileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FileTable {
    /// Creates the placeholder for a file.
    pub(crate) async fn stand_in(
        opener: &dyn FileOpener,
        name: &str,
        files: FileSpec,
    ) -> farpool_model::Result<Self> {
        let schema = held_schema(&*opener.schema(&files).await?);
        Ok(FileTable { name: name.to_string(), files, schema, opened: OnceLock::new() })
    }

    async fn open(
        &self,
        opener: &dyn FileOpener,
        columns: &[usize],
        access: FileAccess,
        pushdown: bool,
    ) -> farpool_model::Result<()> {
        let mut table = opener.open(&self.files, columns, access).await?;
        if let Some(of_pool) = table.downcast_ref::<PoolTable>() {
            table = Arc::new(of_pool.clone().with_pushdown(pushdown));
        }
        let held = table.schema();
        let position = |field: &arrow_schema::FieldRef| held.index_of(field.name()).ok();
        let positions = self.schema.fields().iter().map(position).collect();
        let _ = self.opened.set((table, positions));
        Ok(())
    }
}

/// Returns the file's schema with the pool's types. Columns whose types a pool does not support keep their types: that
/// is an error only if they are needed.
fn held_schema(schema: &Schema) -> SchemaRef {
    let held = schema.fields().iter().map(|field| {
        let data_type = farpool_model::schema::canonical_type(field.data_type());
        let data_type = data_type.unwrap_or_else(|| field.data_type().clone());
        arrow_schema::Field::new(field.name(), data_type, field.is_nullable())
    });
    Arc::new(Schema::new(held.collect::<Vec<_>>()))
}

/// Replaces the placeholders in `plan`, which has been optimized, by opened files with only the columns that the plan
/// needs. Without `pushdown`, no operators are pushed down to them.
pub(crate) async fn open_files(
    plan: &LogicalPlan,
    opener: &dyn FileOpener,
    pushdown: bool,
) -> farpool_model::Result<()> {
    let access = if looks(plan) { FileAccess::Look } else { FileAccess::Read };
    let mut needed: BTreeMap<String, (Arc<dyn TableSource>, Vec<usize>)> = BTreeMap::new();
    let collected = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(name) = with_file(&scan.source, |file| file.name.clone())
        {
            let all = || (0..scan.source.schema().fields().len()).collect();
            let columns = scan.projection.clone().unwrap_or_else(all);
            needed.entry(name).or_insert_with(|| (Arc::clone(&scan.source), Vec::new())).1.extend(columns);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    collected.map_err(farpool_sql::error::unwrap)?;
    for (source, mut columns) in needed.into_values() {
        columns.sort_unstable();
        columns.dedup();
        let Ok(provider) = source_as_provider(&source) else { continue };
        if let Some(file) = provider.downcast_ref::<FileTable>() {
            file.open(opener, &columns, access, pushdown).await?;
        }
    }
    Ok(())
}

/// Returns whether `plan` needs only some rows of its one table, no matter which (LIMIT without ORDER BY).
fn looks(plan: &LogicalPlan) -> bool {
    let mut is_limited = false;
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Limit(limit) => {
                is_limited |= limit.fetch.is_some();
                &limit.input
            }
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Explain(explain) => &explain.plan,
            LogicalPlan::Analyze(analyze) => &analyze.input,
            LogicalPlan::TableScan(scan) => return is_limited || scan.fetch.is_some(),
            _ => return false,
        }
    }
}

fn with_file<T>(source: &Arc<dyn TableSource>, f: impl FnOnce(&FileTable) -> T) -> Option<T> {
    source_as_provider(source).ok()?.downcast_ref::<FileTable>().map(f)
}

/// Returns whether `plan` names files.
pub(crate) fn has_files(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            found |= with_file(&scan.source, |_| ()).is_some();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Adds operators that are not pushed down, with their reasons, to the table behind `source`; `None` if that is not a
/// table of a pool.
pub(crate) fn with_kept(
    source: &Arc<dyn TableSource>,
    kept: Vec<OperatorAnswer>,
) -> Option<Arc<dyn TableSource>> {
    with_table(source, |table| table.with_kept(kept))
}

/// Replaces the table of a pool behind `source` by what `change` makes of it; `None` if that is not a table of a pool.
pub(crate) fn with_table(
    source: &Arc<dyn TableSource>,
    change: impl FnOnce(PoolTable) -> PoolTable,
) -> Option<Arc<dyn TableSource>> {
    let (table, positions) = pool_table(source)?;
    let table: Arc<dyn TableProvider> = Arc::new(change(table));
    let noted = with_file(source, |file| FileTable {
        name: file.name.clone(),
        files: file.files.clone(),
        schema: Arc::clone(&file.schema),
        opened: OnceLock::from((Arc::clone(&table), positions)),
    });
    Some(provider_as_source(noted.map_or(table, |file| Arc::new(file))))
}

/// If `source` is a table of a pool, returns the table, and for each column of the source its position in the table;
/// otherwise `None`.
pub(crate) fn pool_table(source: &Arc<dyn TableSource>) -> Option<(PoolTable, Vec<Option<usize>>)> {
    let provider = source_as_provider(source).ok()?;
    if let Some(table) = provider.downcast_ref::<PoolTable>() {
        let positions = (0..table.info().schema.fields().len()).map(Some).collect();
        return Some((table.clone(), positions));
    }
    let (table, positions) = provider.downcast_ref::<FileTable>()?.opened.get()?;
    Some((table.downcast_ref::<PoolTable>()?.clone(), positions.clone()))
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let (table, positions) = self.opened.get()?;
        let inner = table.statistics()?;
        let column = |position: &Option<usize>| {
            position.and_then(|i| inner.column_statistics.get(i).cloned()).unwrap_or_default()
        };
        let column_statistics = positions.iter().map(column).collect();
        Some(Statistics { column_statistics, ..inner.clone() })
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        match self.opened.get() {
            Some((table, _)) => table.supports_filters_pushdown(filters),
            // No filter is pushed into the placeholder: the columns that only the filter uses would not be among the
            // columns that the plan needs, and the file would be opened without them.
            None => Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()]),
        }
    }

    // Written out, as `async_trait` would write it, so that the future is made elsewhere ([`farpool_model::Opaque`] says why).
    fn scan<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        state: &'life1 dyn Session,
        projection: Option<&'life2 Vec<usize>>,
        filters: &'life3 [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        Self: 'async_trait,
    {
        self.scanned(state, projection, filters, limit)
    }
}

impl FileTable {
    /// Scans the file, which has been opened.
    fn scanned<'a>(
        &'a self,
        state: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        async move {
            let Some((table, positions)) = self.opened.get() else {
                return internal_err!("{} was not opened", self.name);
            };
            let every: Vec<usize> = (0..self.schema.fields().len()).collect();
            let wanted = projection.unwrap_or(&every);
            let inner: Option<Vec<usize>> =
                wanted.iter().map(|&i| positions.get(i).copied().flatten()).collect();
            let Some(inner) = inner else {
                return internal_err!("{} was opened without a column that the plan needs", self.name);
            };
            table.scan(state, Some(&inner), filters, limit).await
        }
        .boxed()
    }
}
