//! Decodes Substrait plans to programs: reads the relations over one table from the table outwards, and lets the model
//! crate compose them into one program. A join goes on with its left side, over the table that is scanned; its right side
//! becomes a program of its own, whose result is looked up.
//!
//! Invariant: depth, and the number of joins and of relations in all sides together, are counted before a side is
//! decoded. So the recursion is bounded, and no program is made that is too deep to be dropped.

use super::aggregates::{grouping_expressions, measure};
use super::encode::{TABLE_VERSION_TYPE, unknown_groups};
use super::expressions::{Extensions, PlanExpressions, Reader};
use super::proto::{self, PlanRelType, ReadType, RelType, RexType};
use super::{given, joins, order, read, size, types};
use arrow_schema::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use farpool_model::compose::{Budget, Refusal, Slot, Stack, check_width, not_done};
use farpool_model::{Error, Expr, GivenRows, Program, Result, SchemaName, TableName, Value, Version, limits};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// Decodes a plan to a program. `schema_of` returns the canonical schema of a table; it is called first for the table that
/// the program scans, then for those of its lookups.
///
/// # Errors
/// `Corrupt` if the bytes cannot be decoded; `OverLimit` if the plan is too large, too deep or has too many nodes;
/// `Invalid` if it has an unsupported relation, or does not fit the tables; and errors of `schema_of`.
pub fn decode_program(plan: &[u8], schema_of: &dyn Fn(&TableName) -> Result<SchemaRef>) -> Result<Program> {
    decode_program_within(plan, schema_of, &|_| Ok(()))
}

/// Decodes a program like [`decode_program`], within limited memory: before memory is allocated, `holds` is called with
/// the total bytes that decoding and compiling the plan takes so far. It returns an error if that is too much. The
/// total is an upper bound, and may decrease again.
///
/// # Errors
/// Errors of [`decode_program`] and of `holds`.
pub fn decode_program_within(
    plan: &[u8],
    schema_of: &dyn Fn(&TableName) -> Result<SchemaRef>,
    holds: &dyn Fn(usize) -> Result<()>,
) -> Result<Program> {
    if plan.len() > limits::PLAN_BYTES_MAX {
        return Err(Error::over_limit(format!(
            "a plan may have {} bytes, this one has {}",
            limits::PLAN_BYTES_MAX,
            plan.len()
        )));
    }
    let bytes_to_read = size::bytes_to_read(plan);
    holds(bytes_to_read)?;
    let plan: proto::Plan = read(&Bytes::copy_from_slice(plan))?;
    refuse_enhancement(plan.advanced_extensions.as_ref())?;
    let extensions = Extensions::of(&plan)?;
    let [relation] = plan.relations.as_slice() else {
        return Err(Error::invalid(format!("a plan has one relation, this one {}", plan.relations.len())));
    };
    let (input, names) = match read::<proto::PlanRel>(relation)?.rel_type {
        Some(PlanRelType::Root(root)) => (root.input, Some(root.names)),
        Some(PlanRelType::Rel(input)) => (input, None),
        None => return Err(Error::invalid("the plan has no relation")),
    };
    let expressions = PlanExpressions::new(&extensions, bytes_to_read, holds);
    let plan = PlanSides { expressions, schema_of, relations: Cell::new(0), joins: Cell::new(0) };
    let Scan { stack, table, version, .. } = Scan::decode(&plan, &input, 0)?;
    stack.program(table, version, names)
}

/// The tables and expressions of a plan, and how many relations and joins of it were found so far, in all sides.
struct PlanSides<'a> {
    expressions: PlanExpressions<'a>,
    schema_of: &'a dyn Fn(&TableName) -> Result<SchemaRef>,
    relations: Cell<usize>,
    joins: Cell<usize>,
}

impl PlanSides<'_> {
    /// Decodes a relation, whose inputs stay encoded.
    ///
    /// # Errors
    /// `OverLimit` if the plan has too many relations; `Invalid` if the relation is of a kind that is not known.
    fn relation(&self, bytes: &Bytes) -> Result<RelType> {
        let (most, count) = (limits::PLAN_RELATIONS_MAX, self.relations.get() + 1);
        if count > most {
            return Err(Error::over_limit(format!("a plan may have {most} relations")));
        }
        self.relations.set(count);
        relation_of(bytes)
    }

    /// Counts a join whose right side is at the depth `depth`.
    ///
    /// # Errors
    /// `OverLimit` if the plan has too many joins, or they are nested too deeply on their right sides.
    fn join(&self, depth: usize) -> Result<()> {
        self.joins.set(self.joins.get() + 1);
        if self.joins.get() <= limits::LOOKUPS_MAX && depth <= limits::LOOKUP_DEPTH_MAX {
            return Ok(());
        }
        Err(Error::over_limit(format!(
            "a plan may have {} joins, nested {} deep on their right sides",
            limits::LOOKUPS_MAX,
            limits::LOOKUP_DEPTH_MAX
        )))
    }
}

fn relation_of(bytes: &Bytes) -> Result<RelType> {
    let relation = read::<proto::Rel>(bytes)?.rel_type;
    relation.ok_or_else(|| Error::invalid("the plan has a relation of a kind that is not known here"))
}

/// Returns the encoded input of a supported relation; `None` for the relation that reads the table.
fn input_of(relation: &RelType) -> Result<Option<Bytes>> {
    let what = match relation {
        RelType::Read(_) => return Ok(None),
        RelType::Filter(filter) => return Ok(Some(filter.input.clone())),
        RelType::Project(project) => return Ok(Some(project.input.clone())),
        RelType::Aggregate(aggregate) => return Ok(Some(aggregate.input.clone())),
        RelType::Fetch(fetch) => return Ok(Some(fetch.input.clone())),
        RelType::Sort(sort) => return Ok(Some(sort.input.clone())),
        RelType::Join(join) => return Ok(Some(join.left.clone())),
        RelType::HashJoin(_) | RelType::MergeJoin(_) | RelType::NestedLoopJoin(_) => {
            "a join that says how it is carried out"
        }
        RelType::Cross(_) => "a cross product",
        RelType::Set(_) => "a set operation",
        RelType::Window(_) => "window functions",
        RelType::Exchange(_) => "an exchange",
        RelType::Expand(_) => "an expansion to grouping sets",
        RelType::Write(_) | RelType::Update(_) | RelType::Ddl(_) => "a change of data",
        RelType::Reference(_) => "a reference to another relation",
        RelType::ExtensionSingle(_) | RelType::ExtensionMulti(_) | RelType::ExtensionLeaf(_) => {
            "a relation of an extension"
        }
    };
    Err(not_done(what))
}

/// Rejects enhancements: they may change the meaning of a plan, so that one that is not known cannot be ignored.
fn refuse_enhancement(extension: Option<&proto::AdvancedExtension>) -> Result<()> {
    match extension.and_then(|e| e.enhancement.as_ref()) {
        Some(any) => Err(not_done(format!("the enhancement {:?}", any.type_url))),
        None => Ok(()),
    }
}

fn table_of(read_rel: &proto::ReadRel) -> Result<(TableName, Option<Version>)> {
    let table = match &read_rel.read_type {
        Some(ReadType::NamedTable(table)) => table,
        Some(ReadType::VirtualTable(_)) => return Err(not_done("a scan of a table of values")),
        Some(ReadType::LocalFiles(_)) => return Err(not_done("reading files")),
        Some(ReadType::ExtensionTable(_) | ReadType::IcebergTable(_)) => {
            return Err(not_done("a table of another kind than a named one"));
        }
        None => return Err(Error::invalid("the plan does not say which table it reads")),
    };
    // The catalog in front of the schema is the engine's name for this pool, which the pool does not know.
    let name = match &table.names[..] {
        [] => return Err(Error::invalid("the table has no name")),
        [name] => TableName::new(name.as_str())?,
        [.., schema, name] => TableName::in_schema(&SchemaName::new(schema.as_str())?, name)?,
    };
    let enhancement = table.advanced_extension.as_ref().and_then(|e| e.enhancement.as_ref());
    let version = match enhancement {
        None => None,
        Some(any) if any.type_url == TABLE_VERSION_TYPE => {
            Some(Version(read::<proto::TableVersion>(&any.value)?.version))
        }
        Some(_) => {
            refuse_enhancement(table.advanced_extension.as_ref())?;
            None
        }
    };
    Ok((name, version))
}

/// The program that results from the relations of one side of a plan decoded so far, from the table outwards.
struct Scan<'a> {
    plan: &'a PlanSides<'a>,
    /// Number of joins on whose right side this one is.
    depth: usize,
    table: TableName,
    version: Option<Version>,
    table_schema: SchemaRef,
    given: Option<Arc<GivenRows>>,
    reader: Reader<'a>,
    stack: Stack,
}

impl<'a> Scan<'a> {
    /// Decodes the relation `input`, at the depth `depth`.
    fn decode(plan: &'a PlanSides<'a>, input: &Bytes, depth: usize) -> Result<Self> {
        // Collects the relations from the root down to the table; they are applied in reverse order below.
        let mut relations = vec![plan.relation(input)?];
        while let Some(input) = input_of(&relations[relations.len() - 1])? {
            relations.push(plan.relation(&input)?);
        }
        let Some(RelType::Read(read_rel)) = relations.pop() else {
            return Err(Error::invalid("the plan does not read a table"));
        };
        let mut scan = Scan::read(plan, &read_rel, depth)?;
        for relation in relations.into_iter().rev() {
            scan.apply(relation)?;
        }
        Ok(scan)
    }

    fn read(plan: &'a PlanSides<'a>, relation: &proto::ReadRel, depth: usize) -> Result<Self> {
        let (table, version, table_schema, given) = match &relation.read_type {
            // The table that is scanned tells which version is read, and that others may be read with it.
            Some(ReadType::VirtualTable(rows)) if depth > 0 => {
                let reader = Reader::new(&plan.expressions, Arc::new(Schema::empty()));
                let (schema, rows) = given::read_rows(&reader, relation.base_schema.as_ref(), rows)?;
                (GivenRows::name()?, None, schema, Some(Arc::new(rows)))
            }
            _ => {
                let (table, version) = table_of(relation)?;
                let table_schema = (plan.schema_of)(&table)?;
                (table, version, table_schema, None)
            }
        };
        let reader = Reader::new(&plan.expressions, table_schema.clone());
        refuse_enhancement(relation.advanced_extension.as_ref())?;
        if depth > 0 {
            // One table counts as part of the plan; those of many joins may have many columns together.
            reader.charge(table_schema.fields().len() * limits::EXPR_NODE_BYTES)?;
        }
        let base = relation.base_schema.as_ref().filter(|_| given.is_none());
        let stack = Stack::scan(base_columns(&reader, base)?);
        let mut scan = Scan { plan, depth, table, version, table_schema, given, reader, stack };
        // The filter refers to all columns of the table, so that it is applied before the column mask.
        if let Some(filter) = &relation.filter {
            scan.stack.filter(|columns| scan.reader.expression(filter, columns))?;
        }
        if let Some(select) = relation.projection.as_ref().and_then(|mask| mask.select.as_ref()) {
            let places = select.struct_items.iter().map(|item| item.field).collect::<Vec<_>>();
            scan.emit(&places)?;
        }
        scan.finish(relation.common.as_ref())?;
        Ok(scan)
    }

    fn apply(&mut self, relation: RelType) -> Result<()> {
        let (common, extension) = match relation {
            RelType::Filter(filter) => {
                self.filter(&filter.condition)?;
                (filter.common, filter.advanced_extension)
            }
            RelType::Project(project) => {
                let mapped = self.project(&project)?;
                let common =
                    project.common.map(|c| if mapped { proto::RelCommon { emit: None, ..c } } else { c });
                (common, project.advanced_extension)
            }
            RelType::Aggregate(aggregate) => {
                self.aggregate(&aggregate)?;
                (aggregate.common, aggregate.advanced_extension)
            }
            RelType::Fetch(fetch) => {
                self.fetch(&fetch)?;
                (fetch.common, fetch.advanced_extension)
            }
            RelType::Sort(sort) => {
                self.stack.sort(|input| order::keys(&self.reader, &sort, input))?;
                (sort.common, sort.advanced_extension)
            }
            RelType::Join(join) => {
                self.join(&join)?;
                (join.common, None)
            }
            _ => return Err(Error::invalid("a table is read at the bottom of a plan only")),
        };
        refuse_enhancement(extension.as_ref())?;
        self.finish(common.as_ref())
    }

    /// Adds a join, whose right side becomes a program of its own.
    fn join(&mut self, join: &proto::JoinRel) -> Result<()> {
        self.plan.join(self.depth + 1)?;
        let Scan { stack, table, version, table_schema, given, reader, .. } =
            Scan::decode(self.plan, &join.right, self.depth + 1)?;
        let program = stack.program(table, version, None)?;
        // Each program that this one is a lookup of has a copy of it.
        let bytes: usize = program.expressions().into_iter().chain(&program.having).map(Expr::bytes).sum();
        self.reader.charge((self.depth + 1) * bytes)?;
        let result = program.result_schema(reader.schema())?;
        let side = joins::Side { program, table_schema, given, result };
        let behind = joins::add(&self.reader, &mut self.stack, join, side)?;
        self.reader = self.reader.over(behind);
        Ok(())
    }

    /// Adds a filter of rows; or of groups, over whose columns it then is.
    fn filter(&mut self, condition: &Bytes) -> Result<()> {
        if self.stack.has_opaque_groups() {
            return self.stack.filter(|_| Ok(unknown_groups()));
        }
        let groups = self.stack.groups_schema(self.reader.schema(), &self.reader)?;
        let of_groups = groups.map(|groups| self.reader.over(Arc::new(groups)));
        let reader = of_groups.as_ref().unwrap_or(&self.reader);
        self.stack.filter(|columns| reader.expression(condition, columns))
    }

    /// Appends the columns of a projection. Returns whether it has also applied the output mapping.
    fn project(&mut self, project: &proto::ProjectRel) -> Result<bool> {
        if self.stack.columns().is_some() {
            self.stack.append(|columns| computed(&self.reader, project, columns))?;
            return Ok(false);
        }
        // Above an aggregation, columns may only be repeated or left out; new ones cannot be computed.
        let mut places: Vec<i32> = (0..self.stack.width() as i32).collect();
        for expression in &project.expressions {
            check_width(places.len() + 1)?;
            let place = self.reader.reference(expression)?.and_then(|place| i32::try_from(place).ok());
            places.push(place.ok_or_else(|| Refusal::ComputesWithAggregates.into_error())?);
        }
        let mapping = project.common.as_ref().and_then(|common| common.emit.as_ref());
        let chosen = match mapping {
            None => places,
            Some(emit) => {
                let at = |place: &i32| usize::try_from(*place).ok().and_then(|p| places.get(p)).copied();
                emit.output_mapping
                    .iter()
                    .map(|place| at(place).ok_or_else(|| no_column(*place, places.len())))
                    .collect::<Result<Vec<i32>>>()?
            }
        };
        self.emit(&chosen).map(|()| true)
    }

    fn aggregate(&mut self, relation: &proto::AggregateRel) -> Result<()> {
        let reader = &self.reader;
        self.stack.aggregate(|columns| {
            check_width(relation.measures.len())?;
            let keys = grouping_expressions(relation)?;
            check_width(keys.len() + relation.measures.len())?;
            let key = |bytes: &Bytes| {
                let name = reader.reference(bytes)?.and_then(|place| columns.get(place));
                let name = name.map_or("key", |slot| slot.name());
                Ok(Slot::new(name, reader.expression(bytes, columns)?))
            };
            let keys = keys.iter().map(key).collect::<Result<Vec<_>>>()?;
            let measures = relation.measures.iter().map(|bytes| measure(reader, &read(bytes)?, columns));
            Ok((keys, measures.collect::<Result<Vec<_>>>()?))
        })
    }

    fn fetch(&mut self, fetch: &proto::FetchRel) -> Result<()> {
        let constant = |expression: &Option<Bytes>, plain: Option<i64>| match expression {
            Some(bytes) => count_of(&self.reader, bytes),
            None => Ok(plain),
        };
        if constant(&fetch.offset_expr, fetch.offset)?.unwrap_or(0) != 0 {
            return Err(not_done("an offset"));
        }
        // A count of -1 stands for no limit in older plans.
        let count = match constant(&fetch.count_expr, fetch.count)? {
            None | Some(-1) => return Ok(()),
            Some(count) => u64::try_from(count)
                .map_err(|_| Error::invalid(format!("a limit of {count} rows makes no sense")))?,
        };
        self.stack.fetch(count);
        Ok(())
    }

    /// Applies the part that all relations have in common: the selection of output columns, and their names.
    fn finish(&mut self, common: Option<&proto::RelCommon>) -> Result<()> {
        let Some(common) = common else { return Ok(()) };
        refuse_enhancement(common.advanced_extension.as_ref())?;
        if let Some(emit) = &common.emit {
            self.emit(&emit.output_mapping)?;
        }
        let names = common.hint.as_ref().map(|hint| &hint.output_names[..]).unwrap_or_default();
        // Long names are passed over, because columns of later relations are named like these.
        let is_short = |name: &String| name.len() <= limits::NAME_BYTES_MAX;
        if names.len() == self.stack.width() && names.iter().all(is_short) {
            self.stack.rename(names.to_vec());
        }
        Ok(())
    }

    /// Keeps the columns at the indices `places`, in this order.
    fn emit(&mut self, places: &[i32]) -> Result<()> {
        check_width(places.len())?;
        let width = self.stack.width();
        let place = |place: &i32| {
            let found = usize::try_from(*place).ok().filter(|place| *place < width);
            found.ok_or_else(|| no_column(*place, width))
        };
        let places = places.iter().map(place).collect::<Result<Vec<usize>>>()?;
        self.stack.select(&places, &self.reader)
    }
}

/// Computes the columns that a projection adds to the columns of its input (`columns`).
fn computed(reader: &Reader, project: &proto::ProjectRel, columns: &[Slot]) -> Result<Vec<Slot>> {
    let mut made = Vec::with_capacity(project.expressions.len().min(limits::COLUMNS_MAX));
    for expression in &project.expressions {
        check_width(columns.len() + made.len() + 1)?;
        let expr = reader.expression(expression, columns)?;
        let name = reader.reference(expression)?.and_then(|place| columns.get(place));
        let name = name.map_or_else(|| format!("column_{}", made.len()), |slot| slot.name().to_string());
        made.push(Slot::new(name, expr));
    }
    Ok(made)
}

fn no_column(place: i32, width: usize) -> Error {
    Error::invalid(format!("the plan refers to column {place} of a relation that has {width}"))
}

/// Returns the table's columns in the order of the schema that the plan declares; columns are matched by name.
fn base_columns(reader: &Reader, base: Option<&proto::NamedStruct>) -> Result<Vec<Slot>> {
    let schema = reader.schema();
    let column = |index: usize| Slot::new(schema.field(index).name(), Expr::Column(index));
    let Some(base) = base.filter(|base| !base.names.is_empty()) else {
        return Ok((0..schema.fields().len()).map(column).collect());
    };
    let types = base.r#struct.as_ref().map(|s| s.types.as_slice()).unwrap_or_default();
    if types.len() != base.names.len() {
        return Err(Error::invalid(format!(
            "the schema in the plan has {} types and {} names: nested columns are not held here",
            types.len(),
            base.names.len()
        )));
    }
    check_width(types.len())?;
    let by_name: HashMap<&str, usize> =
        schema.fields().iter().enumerate().map(|(index, field)| (field.name().as_str(), index)).collect();
    let mut columns = Vec::with_capacity(types.len());
    for (name, bytes) in base.names.iter().zip(types) {
        let index = *by_name.get(name.as_str()).ok_or_else(|| {
            Error::not_found(format!("the table has no column {name:?}"))
                .advise("read the schema of the table again")
        })?;
        let declared = types::read_type(&read(bytes)?, reader.extensions().types());
        check_declared(schema, index, declared.as_ref())?;
        columns.push(column(index));
    }
    Ok(columns)
}

fn check_declared(schema: &Schema, index: usize, declared: Option<&DataType>) -> Result<()> {
    let field = schema.field(index);
    match declared {
        Some(declared) if !types::agree(declared, field.data_type()) => Err(Error::invalid(format!(
            "column {:?} has type {}, the plan takes it for {declared}",
            field.name(),
            field.data_type()
        ))
        .advise("read the schema of the table again")),
        _ => Ok(()),
    }
}

/// Decodes a limit or an offset, which must be constant. Returns `None` for NULL, which means no limit.
fn count_of(reader: &Reader, bytes: &Bytes) -> Result<Option<i64>> {
    let literal = match read::<proto::Expression>(bytes)?.rex_type {
        Some(RexType::Literal(literal)) => types::read_literal(&literal, reader.extensions().types())?,
        _ => None,
    };
    match literal.as_ref().map(|literal| literal.value()) {
        Some(Value::Null) => Ok(None),
        Some(Value::Int(count)) => i64::try_from(*count)
            .map(Some)
            .map_err(|_| Error::invalid(format!("a limit of {count} rows makes no sense"))),
        _ => Err(not_done("a limit or an offset that is not a constant")),
    }
}
