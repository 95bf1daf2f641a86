//! A pool for tests. It runs programs naively, with DataFusion itself, and records which programs ran.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::execution::FunctionRegistry;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{Expr as Logical, ExprFunctionExt, Operator, binary_expr, cast, lit, when};
use datafusion::prelude::SessionContext;
use farpool_model::{
    AggregateFunction, Answer, ArithmeticOp, ColumnStates, ColumnStatistics, CompareOp, Error, Expr, Listing,
    Literal, LoadMode, LoadOptions, OperatorAnswer, Output, Prepared, Program, QueryInfo, Receipt, Relation,
    Result, SchemaName, Spread, StateFunction, Status, TableChange, TableInfo, TableName, TableStatistics,
    TenantName, Value, Version, View, Weakened, schema, weaken,
};
use farpool_sql::literal::to_scalar;
use farpool_statistics::Profile;
use farpool_transfer::{BatchStream, Execution, Handle, Pool, ReceiptHandle};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A table that the fake pool holds: its version, its schema and its rows.
type Held = (Version, SchemaRef, Vec<RecordBatch>);

/// A fake pool that runs programs naively, with switches for its behaviour.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub remote: bool,
    /// Whether the pool refuses to push down every aggregation (answers `refused`).
    pub refuses_aggregation: bool,
    /// Whether the pool refuses to push down every filter (answers `refused`), whatever the planner expects.
    pub refuses_filters: bool,
    pub tables: Mutex<BTreeMap<TableName, Held>>,
    pub views: Mutex<BTreeMap<TableName, View>>,
    pub schemas: Mutex<BTreeSet<SchemaName>>,
    /// The programs that ran, one line each.
    pub ran: Mutex<Vec<String>>,
    /// Whether the pool computes statistics of the columns of loaded tables, as a node does.
    pub gathers: bool,
    /// Seed of arbitrary values that replace all statistics that are only estimates; `None` if the pool reports the
    /// true ones.
    pub misleads: Option<u64>,
    /// The statistics of the tables.
    pub gathered: Mutex<BTreeMap<TableName, Profile>>,
    /// Number of times that a table was described.
    pub described: AtomicUsize,
    /// Number of times that the statistics of a table were requested.
    pub asked: AtomicUsize,
    /// Number of result streams that have not ended.
    pub streams_open: Arc<AtomicUsize>,
}

impl Fake {
    pub(super) async fn with(self, name: &str, batches: Vec<RecordBatch>) -> Self {
        let schema = batches[0].schema();
        let stream = futures::stream::iter(batches.into_iter().map(Ok)).boxed();
        self.load(&TableName::new(name).unwrap(), LoadMode::Replace.into(), schema, None, stream)
            .await
            .unwrap();
        self
    }

    fn find(&self, name: &TableName) -> Result<(Version, SchemaRef, Vec<RecordBatch>)> {
        let tables = self.tables.lock();
        tables.get(name).cloned().ok_or_else(|| Error::not_found(format!("there is no table {name}")))
    }

    fn answer(&self, program: &Program) -> Result<Prepared> {
        let info = self.info(&program.table)?;
        if program.version.is_some_and(|wanted| wanted != info.version) {
            return Err(Error::not_found("another version was meant"));
        }
        let mut effective = program.clone();
        let mut answers = Vec::new();
        let mut answer = |operator, detail: String, answer, reason: Option<String>| {
            answers.push(OperatorAnswer { operator, detail, answer, reason });
        };
        if let Some(filter) = &program.filter {
            let detail = filter.display(&info.schema).to_string();
            let weakened = match weaken(filter) {
                _ if self.refuses_filters => Weakened::Refused("no filters here".to_string()),
                other => other,
            };
            effective.filter = match weakened {
                Weakened::Exact(expr) => {
                    answer(farpool_model::Operator::Filter, detail, Answer::Exact, None);
                    Some(expr)
                }
                Weakened::Superset(expr, reason) => {
                    answer(farpool_model::Operator::Filter, detail, Answer::Superset, Some(reason));
                    Some(expr)
                }
                Weakened::Refused(reason) => {
                    answer(farpool_model::Operator::Filter, detail, Answer::Refused, Some(reason));
                    None
                }
            };
        }
        if let Output::Aggregate { keys, .. } = &program.output {
            let operator = if keys.is_empty() {
                farpool_model::Operator::Aggregate
            } else {
                farpool_model::Operator::Group
            };
            let (how, reason) = match self.refuses_aggregation {
                true => (Answer::Refused, Some("no aggregation here".to_string())),
                false => (Answer::Exact, None),
            };
            answer(operator, String::new(), how, reason);
        }
        let schema = effective.result_schema(&info.schema)?;
        Ok(Prepared { version: info.version, answers, effective, schema })
    }

    fn info(&self, name: &TableName) -> Result<TableInfo> {
        let (version, schema, batches) = self.find(name)?;
        let mut columns: Vec<_> = (0..schema.fields().len()).map(|i| statistics(&batches, i)).collect();
        if let Some(profile) = self.gathered.lock().get(name) {
            for (column, found) in columns.iter_mut().zip(profile.columns()) {
                column.distinct_estimate = found.sketch.distinct().map(|d| d.value as u64);
                column.spread = found.spread().map(Arc::new);
            }
        }
        if let Some(seed) = self.misleads {
            columns.iter_mut().enumerate().for_each(|(i, column)| mislead(column, seed + i as u64));
        }
        Ok(TableInfo {
            name: name.clone(),
            version,
            schema,
            rows: batches.iter().map(|b| b.num_rows() as u64).sum(),
            bytes_plain: batches.iter().map(|b| b.get_array_memory_size() as u64).sum(),
            bytes_encoded: 1000,
            columns,
            rows_profiled: None,
            encryption: None,
            bytes_resident: None,
            is_pinned: false,
        })
    }
}

/// Replaces the statistics on which results must not depend by arbitrary values.
fn mislead(column: &mut ColumnStatistics, seed: u64) {
    let any = |salt: u64| (seed ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    column.distinct_estimate = Some(any(1) % [2, 100, u64::MAX][any(2) as usize % 3]);
    let bins = (0..any(3) % 9).map(|bin| any(bin + 4)).collect();
    let frequent = column.min.iter().chain(&column.max).map(|value| (value.clone(), any(40))).collect();
    let quantiles = (0..any(60) % 9).map(|value| value as f64).collect();
    let (low, quantile_error) = (any(50) as f64, (any(61) % 100) as f64 / 100.0);
    column.spread = Some(Arc::new(Spread { frequent, bins, low, width: 1.0, quantiles, quantile_error }));
}

/// Returns counts, and bounds for integers only, which is enough to exercise the estimates.
fn statistics(batches: &[RecordBatch], column: usize) -> ColumnStatistics {
    let null_count = batches.iter().map(|b| b.column(column).null_count() as u64).sum();
    let values = batches.iter().flat_map(|b| {
        let array = b.column(column);
        (0..array.len())
            .filter_map(|row| datafusion::common::ScalarValue::try_from_array(array, row).ok())
            .filter_map(|scalar| farpool_sql::literal::from_scalar(&scalar))
            .filter(|literal| literal.as_int().is_some())
            .collect::<Vec<_>>()
    });
    let (mut low, mut high) = (None, None);
    for value in values {
        if low.as_ref().is_none_or(|low| value.compare(low) == Some(std::cmp::Ordering::Less)) {
            low = Some(value.clone());
        }
        if high.as_ref().is_none_or(|high| value.compare(high) == Some(std::cmp::Ordering::Greater)) {
            high = Some(value);
        }
    }
    ColumnStatistics { null_count, min: low, max: high, bytes_encoded: 100, ..ColumnStatistics::default() }
}

#[async_trait]
impl Pool for Fake {
    fn url(&self) -> String {
        if self.remote { "farpool://fake:9797".to_string() } else { "embedded".to_string() }
    }

    fn is_remote(&self) -> bool {
        self.remote
    }

    async fn list(&self, _only: Option<&TenantName>) -> Result<Listing> {
        let names: Vec<TableName> = self.tables.lock().keys().cloned().collect();
        let tables = names.iter().map(|name| self.info(name)).collect::<Result<_>>()?;
        let views = self.views.lock().keys().cloned().collect();
        Ok(Listing { tables, views, schemas: self.schemas.lock().iter().cloned().collect() })
    }

    async fn table(&self, name: &TableName) -> Result<TableInfo> {
        self.described.fetch_add(1, Ordering::Relaxed);
        self.info(name)
    }

    async fn relation(&self, name: &TableName) -> Result<Relation> {
        let view = self.views.lock().get(name).cloned();
        match view {
            Some(view) => Ok(Relation::View(view)),
            None => self.table(name).await.map(Relation::Table),
        }
    }

    async fn statistics(&self, name: &TableName, wanted: Option<&[usize]>) -> Result<TableStatistics> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let table = self.info(name)?;
        let (columns, moments) = match self.gathered.lock().get(name) {
            Some(profile) => profile.arrange(profile.states().into_iter().map(Into::into).collect()),
            None => (vec![ColumnStates::default(); table.columns.len()], None),
        };
        let all = TableStatistics { table, columns, moments };
        Ok(wanted.map_or(all.clone(), |wanted| all.of(wanted)))
    }

    async fn prepare(&self, program: &Program, schema: &SchemaRef) -> Result<Handle> {
        if self.find(&program.table)?.1 != *schema {
            return Err(Error::stale("the table has other columns"));
        }
        Ok(Handle::new(self.answer(program)?, ()))
    }

    async fn execute_prepared(
        &self,
        handle: &Handle,
        conditions: Option<&Expr>,
        streams_wanted: usize,
    ) -> Result<Execution> {
        self.execute(&handle.narrowed(conditions), streams_wanted).await
    }

    async fn execute(&self, program: &Program, streams_wanted: usize) -> Result<Execution> {
        let prepared = self.answer(program)?;
        let info = self.info(&program.table)?;
        self.ran.lock().push(farpool_planner::explain::one_line(&prepared.effective, &info.schema));
        let batches = run(&prepared, self.find(&program.table)?, &info.schema).await?;
        let mut parts = vec![Vec::new(); if self.remote { 1 } else { streams_wanted }];
        let count = parts.len();
        for (i, batch) in batches.into_iter().enumerate() {
            parts[i % count].push(Ok(batch));
        }
        let receipt = ReceiptHandle::new();
        receipt.set(Receipt {
            rows_scanned: info.rows,
            operators: prepared.answers.clone(),
            ..Receipt::default()
        });
        let open = |part| -> BatchStream {
            self.streams_open.fetch_add(1, Ordering::SeqCst);
            let guard = Open(Arc::clone(&self.streams_open));
            futures::stream::iter(part)
                .inspect(move |_: &Result<RecordBatch>| {
                    let _ = &guard;
                })
                .boxed()
        };
        let streams = parts.into_iter().map(open).collect();
        Ok(Execution { prepared: Arc::new(prepared), streams, receipt })
    }

    async fn load(
        &self,
        name: &TableName,
        options: LoadOptions,
        schema: SchemaRef,
        _rows_hint: Option<u64>,
        batches: BatchStream,
    ) -> Result<TableInfo> {
        let schema = schema::canonical_schema(&schema)?;
        let mut loaded = Vec::new();
        for batch in batches.try_collect::<Vec<_>>().await? {
            let columns = batch.columns().iter().zip(schema.fields());
            let columns = columns.map(|(c, f)| arrow_cast::cast(c, f.data_type()).unwrap()).collect();
            loaded.push(RecordBatch::try_new(Arc::clone(&schema), columns).unwrap());
        }
        {
            let mut tables = self.tables.lock();
            let version = Version(1 + tables.values().map(|(v, ..)| v.0).max().unwrap_or(0));
            let before = match (options.mode, tables.remove(name)) {
                (LoadMode::Append, Some((_, _, batches))) => batches,
                _ => Vec::new(),
            };
            let batches: Vec<RecordBatch> = before.into_iter().chain(loaded).collect();
            if self.gathers {
                let mut profile = Profile::new(&schema)?;
                batches.iter().try_for_each(|batch| profile.update(batch.columns()))?;
                self.gathered.lock().insert(name.clone(), profile);
            }
            tables.insert(name.clone(), (version, schema, batches));
        }
        self.info(name)
    }

    async fn change_rows(&self, _handle: &Handle, _rows: u64) -> Result<TableInfo> {
        Err(Error::invalid("a fake's rows stay as they are"))
    }

    async fn alter_table(&self, _name: &TableName, _changes: &[TableChange]) -> Result<TableInfo> {
        Err(Error::invalid("a fake's tables stay as they are"))
    }

    async fn drop_table(&self, name: &TableName) -> Result<()> {
        self.tables.lock().remove(name);
        Ok(())
    }

    async fn drop_table_of(&self, _only: &TenantName, name: &TableName) -> Result<()> {
        self.drop_table(name).await
    }

    async fn create_view(&self, view: &View, _replace: bool) -> Result<()> {
        self.views.lock().insert(view.name().clone(), view.clone());
        Ok(())
    }

    async fn drop_view(&self, name: &TableName, _only: Option<&TenantName>) -> Result<()> {
        self.views.lock().remove(name);
        Ok(())
    }

    async fn create_schema(&self, schema: &SchemaName) -> Result<()> {
        self.schemas.lock().insert(schema.clone());
        Ok(())
    }

    async fn drop_schema(&self, schema: &SchemaName, _cascade: bool) -> Result<()> {
        self.schemas.lock().remove(schema);
        Ok(())
    }

    async fn queries(&self) -> Result<Vec<QueryInfo>> {
        Ok(Vec::new())
    }

    async fn cancel_query(&self, id: u64) -> Result<()> {
        Err(Error::not_found(format!("there is no query {id}")))
    }

    async fn status(&self) -> Result<Status> {
        Ok(Status::default())
    }
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn run(
    prepared: &Prepared,
    (_, schema, batches): (Version, SchemaRef, Vec<RecordBatch>),
    table: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let failed = |e: datafusion::error::DataFusionError| farpool_sql::error::unwrap(e);
    let program = &prepared.effective;
    let context = SessionContext::new();
    farpool_sql::aggregates::register(&context);
    context.add_analyzer_rule(Arc::new(farpool_sql::checked::CheckedArithmetic));
    crate::statistics::register(&context);
    let memory = datafusion::datasource::MemTable::try_new(schema, vec![batches]).map_err(failed)?;
    let mut frame = context.read_table(Arc::new(memory)).map_err(failed)?;
    let expr = |e: &Expr| logical(e, table);
    if let Some(filter) = &program.filter {
        frame = frame.filter(expr(filter)).map_err(failed)?;
    }
    frame = output(frame, program, &expr, &context).map_err(failed)?;
    if !program.order.is_empty() {
        let column = |place: usize| Logical::Column(Column::from(frame.schema().qualified_field(place)));
        let keys = program.order.iter().map(|k| column(k.column).sort(!k.descending, k.nulls_first));
        let keys = keys.collect();
        frame = frame.sort(keys).map_err(failed)?;
    }
    if let Some(limit) = program.limit {
        frame = frame.limit(0, Some(usize::try_from(limit).unwrap())).map_err(failed)?;
    }
    let batches = frame.collect().await.map_err(failed)?;
    let typed = |batch: RecordBatch| {
        let columns = batch.columns().iter().zip(prepared.schema.fields());
        let columns = columns.map(|(c, f)| arrow_cast::cast(c, f.data_type()).unwrap()).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&prepared.schema), columns, &options).unwrap()
    };
    Ok(batches.into_iter().map(typed).collect())
}

fn output(
    frame: DataFrame,
    program: &Program,
    expr: &dyn Fn(&Expr) -> Logical,
    context: &SessionContext,
) -> datafusion::error::Result<DataFrame> {
    match &program.output {
        Output::Rows(rows) => frame.select(
            rows.iter().enumerate().map(|(i, r)| expr(&r.expr).alias(format!("c{i}"))).collect::<Vec<_>>(),
        ),
        Output::Aggregate { keys, aggregates } => {
            let keys = keys.iter().enumerate().map(|(i, k)| expr(&k.expr).alias(format!("k{i}")));
            let aggregates = aggregates.iter().enumerate().map(|(i, a)| {
                let argument = a.arguments.first().map_or(lit(1), expr);
                let state = |told: String| {
                    let arguments = a.arguments.iter().map(expr).chain([lit(told)]).collect();
                    context.udaf(a.function.name()).unwrap().call(arguments)
                };
                let call = match a.function {
                    AggregateFunction::State(StateFunction::Sketch(parameters)) => {
                        state(parameters.to_string())
                    }
                    AggregateFunction::State(StateFunction::Moments(nulls)) => {
                        state(nulls.name().to_string())
                    }
                    AggregateFunction::Count => count(argument),
                    other => context.udaf(other.name()).unwrap().call(vec![argument]),
                };
                let call = match &a.filter {
                    Some(filter) => call.filter(expr(filter)).build().unwrap(),
                    None => call,
                };
                call.alias(format!("a{i}"))
            });
            frame.aggregate(keys.collect(), aggregates.collect())
        }
    }
}

/// Converts an expression of the model to DataFusion's: the inverse of `convert.rs`.
fn logical(expr: &Expr, table: &SchemaRef) -> Logical {
    let to = |e: &Expr| logical(e, table);
    match expr {
        Expr::Column(i) => Logical::Column(Column::new_unqualified(table.field(*i).name())),
        Expr::Literal(literal) => Logical::Literal(to_scalar(literal).unwrap(), None),
        Expr::Compare(op, l, r) => binary_expr(to(l), compare_op(*op), to(r)),
        Expr::And(parts) => parts.iter().map(to).reduce(Logical::and).unwrap(),
        Expr::Or(parts) => parts.iter().map(to).reduce(Logical::or).unwrap(),
        Expr::Not(e) => Logical::Not(Box::new(to(e))),
        Expr::IsNull(e) => to(e).is_null(),
        Expr::InSet(e, set) => {
            let data_type = e.data_type(table).unwrap();
            let key = |key: i64| Literal::new(Value::Int(key.into()), data_type.clone()).unwrap();
            logical(&Expr::InList(e.clone(), set.iter().map(key).collect()), table)
        }
        // A hash filter (like a Bloom filter) may pass any row, so that passing all of them is correct.
        Expr::InFilter(..) => lit(true),
        Expr::InList(e, list) => {
            let list = list.iter().map(|l| Logical::Literal(to_scalar(l).unwrap(), None)).collect();
            Logical::InList(InList { expr: Box::new(to(e)), list, negated: false })
        }
        Expr::Like { value, pattern, case_insensitive } => Logical::Like(Like {
            negated: false,
            expr: Box::new(to(value)),
            pattern: Box::new(lit(pattern.clone())),
            escape_char: None,
            case_insensitive: *case_insensitive,
        }),
        Expr::Regex { value, pattern } => {
            let op = match pattern.is_case_insensitive() {
                true => Operator::RegexIMatch,
                false => Operator::RegexMatch,
            };
            binary_expr(to(value), op, lit(pattern.as_str()))
        }
        Expr::Arithmetic(op, l, r) => {
            let op = match op {
                ArithmeticOp::Add => Operator::Plus,
                ArithmeticOp::Subtract => Operator::Minus,
                ArithmeticOp::Multiply => Operator::Multiply,
                ArithmeticOp::Divide => Operator::Divide,
                ArithmeticOp::Modulo => Operator::Modulo,
            };
            binary_expr(to(l), op, to(r))
        }
        Expr::Negate(e) => Logical::Negative(Box::new(to(e))),
        Expr::Cast(e, data_type) => cast(to(e), data_type.clone()),
        // The engine's function gives integers of 32 bits.
        Expr::Extract(part, e) => cast(
            datafusion::functions::datetime::expr_fn::date_part(lit(part.name()), to(e)),
            arrow_schema::DataType::Int64,
        ),
        Expr::Case { branches, otherwise } => {
            let mut builder = when(to(&branches[0].0), to(&branches[0].1));
            for (condition, value) in &branches[1..] {
                builder = builder.when(to(condition), to(value));
            }
            match otherwise {
                Some(otherwise) => builder.otherwise(to(otherwise)).unwrap(),
                None => builder.end().unwrap(),
            }
        }
        Expr::Opaque { reason, .. } => panic!("the pool was asked to run {reason}"),
    }
}

fn compare_op(op: CompareOp) -> Operator {
    match op {
        CompareOp::Eq => Operator::Eq,
        CompareOp::NotEq => Operator::NotEq,
        CompareOp::Lt => Operator::Lt,
        CompareOp::LtEq => Operator::LtEq,
        CompareOp::Gt => Operator::Gt,
        CompareOp::GtEq => Operator::GtEq,
    }
}
