//! Encodes programs as Substrait plans: Read → Join → Filter → Project, or Aggregate → Filter → Sort → Fetch; a relation that
//! the program does not need is left out. The right side of a join is a lookup's program, encoded in the same way.

use super::functions::{self, ARITHMETIC, ARITHMETIC_DECIMAL, Function};
use super::proto::{self, ArgType, MappingType, RelType, RexType};
use super::types::{self, TYPES_URN, ZONED_ANCHOR, ZONED_TYPE};
use super::{given, joins, order};
use arrow_schema::{DataType, Schema, SchemaRef};
use bytes::Bytes;
use farpool_model::ArithmeticOp::{Add, Divide, Multiply, Subtract};
use farpool_model::{
    Accumulation, Aggregate, CompareOp, Error, Expr, Facts, GivenRows, Literal, Lookup, LookupKey, NamedExpr,
    Output, Program, Result, StateFunction, TableName, Value, Version, limits, lookup,
};
use prost::Message;
use std::sync::Arc;

/// The version of Substrait in encoded plans.
const SUBSTRAIT_VERSION: (u32, u32, u32) = (0, 85, 0);

/// Encodes a program over a table with the canonical schema `table_schema`.
///
/// # Errors
/// `OverLimit` if the plan is too large or too deep; `Invalid` if a type is not canonical, or naming what is wrong with a
/// lookup or its program.
pub fn encode_program(program: &Program, table_schema: &Schema) -> Result<Vec<u8>> {
    // This bounds the recursion, too.
    for (table, schema) in program.lookup_tables()? {
        check_schema(program, table_schema, table, schema)?;
    }
    let schema = Arc::new(table_schema.clone());
    let mut encoder = Encoder { schema, functions: Vec::new(), has_zones: false };
    let (input, names) = encoder.program(program, None)?;
    let plan = encoder.plan(proto::RelRoot { input, names }).encode_to_vec();
    if plan.len() > limits::PLAN_BYTES_MAX {
        return Err(Error::over_limit(format!(
            "a plan may have {} bytes, this one has {}",
            limits::PLAN_BYTES_MAX,
            plan.len()
        )));
    }
    Ok(plan)
}

/// Checks that a lookup takes the table that is scanned for the same columns: a plan names a table without its columns.
fn check_schema(program: &Program, scanned: &Schema, table: &TableName, schema: &Schema) -> Result<()> {
    if *table != program.table || schema == scanned {
        return Ok(());
    }
    Err(Error::invalid(format!("a lookup takes {:?} for other columns than the scan", table.as_str()))
        .advise("read the schema of the table again"))
}

struct Encoder {
    /// Schema of the rows that expressions are over.
    schema: SchemaRef,
    /// Extension and name of each function that the plan uses. A function's anchor (its id within the plan) is its
    /// index plus 1.
    functions: Vec<(&'static str, &'static str)>,
    /// Whether the plan uses farpool's own type of timestamps with a time zone, which must then be declared.
    has_zones: bool,
}

impl Encoder {
    /// Encodes a program over the table of which `self.schema` has the columns; `self.schema` is then that of the rows
    /// behind the lookups. Returns the relation, and the names of its columns. Of the side of a join (`side`), which has no
    /// root that names them, the names stand in the relation as a hint.
    fn program(&mut self, program: &Program, side: Option<&Lookup>) -> Result<(Bytes, Vec<String>)> {
        let is_side = side.is_some();
        let mut input = self.read(program, side.and_then(|side| side.given.as_deref()))?;
        for lookup in &program.lookups {
            input = self.join(lookup, input)?;
        }
        if let Some(filter) = &program.filter {
            let condition = self.expression(filter, 0)?;
            input = filtered(input, condition);
        }
        let (mut input, names) = match &program.output {
            Output::Rows(columns) => self.project(input, columns, is_side)?,
            Output::Aggregate { keys, aggregates } => self.aggregate(input, keys, aggregates, is_side)?,
        };
        if let Some(having) = &program.having {
            let condition = self.having(having, &program.output)?;
            input = filtered(input, condition);
        }
        if !program.order.is_empty() {
            input = relation(RelType::Sort(order::write(&program.order, input)));
        }
        // A limit beyond the range of Substrait's signed numbers is left out; but a program with a sort order must have
        // a limit.
        let most = (!program.order.is_empty()).then_some(i64::MAX);
        if let Some(count) = program.limit.and_then(|limit| i64::try_from(limit).ok().or(most)) {
            let count = Literal::new(Value::Int(count.into()), DataType::Int64)?;
            input = relation(RelType::Fetch(proto::FetchRel {
                input,
                count_expr: Some(expression(RexType::Literal(types::write_literal(&count)?))),
                ..Default::default()
            }));
        }
        Ok((input, names))
    }

    /// Encodes a condition on the groups of `output`. If these have a part that is opaque, so that their types are not known, all
    /// of it is opaque.
    fn having(&mut self, having: &Expr, output: &Output) -> Result<Bytes> {
        if output.expressions().into_iter().any(|expr| expr.opaque_reason().is_some()) {
            return self.expression(&unknown_groups(), 0);
        }
        let groups = Arc::new(output.schema(&self.schema)?);
        let rows = std::mem::replace(&mut self.schema, groups);
        let condition = self.expression(having, 0);
        self.schema = rows;
        condition
    }

    /// Encodes the join of the rows so far, which `left` gives, with the result of a lookup's program.
    fn join(&mut self, lookup: &Lookup, left: Bytes) -> Result<Bytes> {
        let row = std::mem::replace(&mut self.schema, lookup.table_schema.clone());
        let (right, _) = self.program(&lookup.program, Some(lookup))?;
        let result = lookup.program.result_schema(&self.schema)?;
        let behind = Arc::new(lookup.row_schema(&row, &result)?);
        self.schema = Arc::new(lookup::pair_schema(&row, &result));
        let expression = self.join_condition(lookup, row.fields().len())?;
        self.schema = behind;
        Ok(relation(RelType::Join(joins::write(lookup, left, right, expression)?)))
    }

    /// Encodes the condition of a join: all keys are equal, and the residual condition is true. The row so far has
    /// `width` columns.
    fn join_condition(&mut self, lookup: &Lookup, width: usize) -> Result<Bytes> {
        let equal = |key: &LookupKey| {
            let sides = vec![argument(column(key.row)), argument(column(width + key.result))];
            self.scalar_function(Function::Compare(CompareOp::Eq), sides, Vec::new(), Some(DataType::Boolean))
        };
        let mut conditions: Vec<Bytes> = lookup.keys.iter().map(equal).collect();
        match &lookup.residual {
            None => {}
            Some(Expr::And(parts)) => {
                for part in parts {
                    conditions.push(self.expression(part, 1)?);
                }
            }
            Some(residual) => conditions.push(self.expression(residual, 1)?),
        }
        if let [condition] = conditions.as_slice() {
            return Ok(condition.clone());
        }
        let arguments = conditions.into_iter().map(argument).collect();
        Ok(self.scalar_function(Function::And, arguments, Vec::new(), Some(DataType::Boolean)))
    }

    /// Encodes the table of a program, or the rows that are `given` in its place.
    fn read(&mut self, program: &Program, given: Option<&GivenRows>) -> Result<Bytes> {
        let schema = self.schema.clone();
        let mut types = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let nullability = if field.is_nullable() { proto::NULLABLE } else { proto::REQUIRED };
            let written = self.data_type(field.data_type(), nullability).ok_or_else(|| {
                let message = format!("column {:?} has type {}", field.name(), field.data_type());
                Error::invalid(format!("{message}, which is not canonical"))
            })?;
            types.push(written.encode_to_vec().into());
        }
        let base_schema = proto::NamedStruct {
            names: schema.fields().iter().map(|field| field.name().clone()).collect(),
            r#struct: Some(proto::Struct {
                types,
                type_variation_reference: 0,
                nullability: proto::REQUIRED,
            }),
        };
        let named = || proto::NamedTable {
            names: match program.table.is_public() {
                true => vec![program.table.table().to_string()],
                false => vec![program.table.schema().to_string(), program.table.table().to_string()],
            },
            advanced_extension: program.version.map(version_extension),
        };
        let read_type = match given {
            None => proto::ReadType::NamedTable(named()),
            Some(rows) => {
                let rows = given::write(rows, &schema, |literal| self.literal(literal))?;
                proto::ReadType::VirtualTable(rows.encode_to_vec().into())
            }
        };
        Ok(relation(RelType::Read(proto::ReadRel {
            base_schema: Some(base_schema),
            read_type: Some(read_type),
            ..Default::default()
        })))
    }

    fn project(
        &mut self,
        input: Bytes,
        columns: &[NamedExpr],
        is_side: bool,
    ) -> Result<(Bytes, Vec<String>)> {
        let names: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
        let expressions = columns.iter().map(|c| self.expression(&c.expr, 0)).collect::<Result<Vec<_>>>()?;
        // A projection in Substrait appends columns to those of its input; the output mapping keeps only the appended
        // ones.
        let first = self.schema.fields().len() as i32;
        let emit = proto::Emit { output_mapping: (first..first + columns.len() as i32).collect() };
        let hint = is_side.then(|| proto::Hint { output_names: names.clone() });
        let common = proto::RelCommon { emit: Some(emit), hint, advanced_extension: None };
        let project =
            proto::ProjectRel { common: Some(common), input, expressions, advanced_extension: None };
        Ok((relation(RelType::Project(project)), names))
    }

    fn aggregate(
        &mut self,
        input: Bytes,
        keys: &[NamedExpr],
        aggregates: &[Aggregate],
        is_side: bool,
    ) -> Result<(Bytes, Vec<String>)> {
        let names = keys.iter().map(|k| &k.name).chain(aggregates.iter().map(|a| &a.name));
        let names: Vec<String> = names.cloned().collect();
        let hint = is_side.then(|| proto::Hint { output_names: names.clone() });
        let grouping = proto::Grouping {
            grouping_expressions: Vec::new(),
            expression_references: (0..keys.len() as u32).collect(),
        };
        let aggregate = proto::AggregateRel {
            common: hint.map(|hint| proto::RelCommon { hint: Some(hint), ..Default::default() }),
            input,
            groupings: if keys.is_empty() { Vec::new() } else { vec![grouping.encode_to_vec().into()] },
            grouping_expressions: keys
                .iter()
                .map(|key| self.expression(&key.expr, 0))
                .collect::<Result<_>>()?,
            measures: aggregates.iter().map(|a| self.measure(a)).collect::<Result<_>>()?,
            ..Default::default()
        };
        Ok((relation(RelType::Aggregate(aggregate)), names))
    }

    fn measure(&mut self, aggregate: &Aggregate) -> Result<Bytes> {
        let (name, urn) = (aggregate.function.name(), functions::extension_of(aggregate));
        let arguments = aggregate.arguments.iter().map(|argument| self.argument(argument, 0));
        let arguments = arguments.collect::<Result<_>>()?;
        let function = proto::AggregateFunction {
            function_reference: self.function(name, urn),
            arguments,
            options: options(aggregate.function.accumulation()),
            phase: proto::PHASE_INITIAL_TO_RESULT,
            invocation: proto::INVOCATION_ALL,
            output_type: types::write_type(&aggregate.data_type, proto::NULLABLE),
            ..Default::default()
        };
        let filter = aggregate.filter.as_ref().map(|filter| self.expression(filter, 0)).transpose()?;
        Ok(proto::Measure { measure: Some(function), filter }.encode_to_vec().into())
    }

    fn expression(&mut self, expr: &Expr, depth: usize) -> Result<Bytes> {
        if depth > limits::EXPR_DEPTH_MAX {
            return Err(Error::over_limit(format!(
                "an expression may be nested {} levels deep",
                limits::EXPR_DEPTH_MAX
            )));
        }
        let depth = depth + 1;
        Ok(match expr {
            Expr::Column(index) => column(*index),
            Expr::Literal(literal) => self.literal(literal)?,
            Expr::Compare(op, l, r) => self.call(Function::Compare(*op), &[l, r], expr, depth)?,
            Expr::And(parts) => self.call(Function::And, &parts.iter().collect::<Vec<_>>(), expr, depth)?,
            Expr::Or(parts) => self.call(Function::Or, &parts.iter().collect::<Vec<_>>(), expr, depth)?,
            Expr::Not(e) => self.call(Function::Not, &[e], expr, depth)?,
            Expr::IsNull(e) => self.call(Function::IsNull, &[e], expr, depth)?,
            Expr::Arithmetic(op, l, r) => self.call(Function::Arithmetic(*op), &[l, r], expr, depth)?,
            Expr::Negate(e) => self.call(Function::Negate, &[e], expr, depth)?,
            Expr::Like { value, pattern, case_insensitive } => {
                let function = Function::Like { case_insensitive: false };
                self.search(function, value, pattern, *case_insensitive, depth)?
            }
            Expr::Regex { value, pattern } => {
                let function = Function::Regex { case_insensitive: false };
                self.search(function, value, pattern.as_str(), pattern.is_case_insensitive(), depth)?
            }
            Expr::InList(value, list) => {
                let value = self.expression(value, depth)?;
                let options = list.iter().map(|literal| self.literal(literal)).collect::<Result<_>>()?;
                expression(RexType::SingularOrList(proto::SingularOrList { value, options }))
            }
            Expr::InSet(value, set) => {
                let keys = Literal::new(Value::Bytes(set.to_bytes()), DataType::BinaryView)?;
                let arguments = vec![self.argument(value, depth)?, argument(self.literal(&keys)?)];
                self.scalar_function(Function::InSet, arguments, Vec::new(), Some(DataType::Boolean))
            }
            Expr::InFilter(values, filter) => {
                let keys = Literal::new(Value::Bytes(filter.to_bytes()), DataType::BinaryView)?;
                let values = values.iter().map(|value| self.argument(value, depth));
                let mut arguments = values.collect::<Result<Vec<_>>>()?;
                arguments.push(argument(self.literal(&keys)?));
                self.scalar_function(Function::InFilter, arguments, Vec::new(), Some(DataType::Boolean))
            }
            Expr::Cast(value, to) => {
                let input = self.expression(value, depth)?;
                let r#type = self
                    .data_type(to, proto::NULLABLE)
                    .ok_or_else(|| Error::invalid(format!("cast to {to}, which is not canonical")))?;
                expression(RexType::Cast(proto::Cast {
                    r#type: Some(r#type),
                    input,
                    failure_behavior: proto::FAILURE_THROW_EXCEPTION,
                }))
            }
            Expr::Extract(part, value) => {
                let mut arguments: Vec<Bytes> = functions::component(*part).map(enumerated).collect();
                arguments.push(self.argument(value, depth)?);
                self.scalar_function(Function::Extract, arguments, Vec::new(), Some(DataType::Int64))
            }
            Expr::Case { branches, otherwise } => self.case(branches, otherwise.as_deref(), depth)?,
            Expr::Opaque { reason, inputs } => {
                let reason = Literal::new(Value::Text(reason.clone()), DataType::Utf8View)?;
                let mut arguments = vec![argument(self.literal(&reason)?)];
                for input in inputs {
                    arguments.push(self.argument(input, depth)?);
                }
                self.scalar_function(Function::Opaque, arguments, Vec::new(), None)
            }
        })
    }

    fn call(&mut self, function: Function, parts: &[&Expr], whole: &Expr, depth: usize) -> Result<Bytes> {
        let arguments = parts.iter().map(|part| self.argument(part, depth)).collect::<Result<_>>()?;
        // Only arithmetic has a type other than boolean. An expression that is not well typed is sent without a type.
        let data_type = match function {
            Function::Arithmetic(_) | Function::Negate => whole.data_type(&self.schema).ok(),
            _ => Some(DataType::Boolean),
        };
        let options = self.overflow(function, parts, whole, data_type.as_ref());
        Ok(self.scalar_function(function, arguments, options, data_type))
    }

    /// For a function that may overflow, returns the option that overflow is an error. A node that does not know the
    /// option then leaves the function to the client.
    fn overflow(
        &self,
        function: Function,
        parts: &[&Expr],
        whole: &Expr,
        data_type: Option<&DataType>,
    ) -> Vec<Bytes> {
        let is_decimal = matches!(data_type, Some(DataType::Decimal128(..)));
        let may_overflow = match function {
            Function::Arithmetic(Add | Subtract | Multiply) | Function::Negate => true,
            Function::Arithmetic(Divide) => is_decimal,
            // The other functions do not return numbers, except for the remainder, which cannot overflow.
            _ => false,
        };
        if !may_overflow {
            return Vec::new();
        }
        let of_parts = parts.iter().map(|part| Facts::of(part, &*self.schema)).collect::<Result<Vec<_>>>();
        let may_fail = of_parts
            .and_then(|facts| Facts::node_may_fail(whole, &*self.schema, &facts.iter().collect::<Vec<_>>()));
        match may_fail {
            Ok(false) => Vec::new(),
            // An expression that is not well typed is sent as if it might overflow.
            Ok(true) | Err(_) => vec![option(functions::OVERFLOW, functions::ERROR)],
        }
    }

    fn search(
        &mut self,
        function: Function,
        value: &Expr,
        pattern: &str,
        case_insensitive: bool,
        depth: usize,
    ) -> Result<Bytes> {
        let pattern = Literal::new(Value::Text(pattern.to_string()), DataType::Utf8View)?;
        let arguments = vec![self.argument(value, depth)?, argument(self.literal(&pattern)?)];
        let sensitivity = || option("case_sensitivity", "CASE_INSENSITIVE");
        let options = if case_insensitive { vec![sensitivity()] } else { Vec::new() };
        Ok(self.scalar_function(function, arguments, options, Some(DataType::Boolean)))
    }

    fn case(&mut self, branches: &[(Expr, Expr)], otherwise: Option<&Expr>, depth: usize) -> Result<Bytes> {
        let mut ifs = Vec::with_capacity(branches.len());
        for (when, then) in branches {
            let clause = proto::IfClause {
                r#if: Some(self.expression(when, depth)?),
                then: Some(self.expression(then, depth)?),
            };
            ifs.push(clause.encode_to_vec().into());
        }
        let r#else = otherwise.map(|e| self.expression(e, depth)).transpose()?;
        Ok(expression(RexType::IfThen(proto::IfThen { ifs, r#else })))
    }

    fn argument(&mut self, expr: &Expr, depth: usize) -> Result<Bytes> {
        Ok(argument(self.expression(expr, depth)?))
    }

    fn scalar_function(
        &mut self,
        function: Function,
        arguments: Vec<Bytes>,
        options: Vec<Bytes>,
        data_type: Option<DataType>,
    ) -> Bytes {
        let (name, mut urn) = functions::scalar_name(function);
        if urn == ARITHMETIC && matches!(data_type, Some(DataType::Decimal128(..))) {
            urn = ARITHMETIC_DECIMAL;
        }
        let function_reference = self.function(name, urn);
        let output_type = data_type.and_then(|data_type| types::write_type(&data_type, proto::NULLABLE));
        expression(RexType::ScalarFunction(proto::ScalarFunction {
            function_reference,
            args: Vec::new(),
            output_type,
            arguments,
            options,
        }))
    }

    fn literal(&mut self, literal: &Literal) -> Result<Bytes> {
        self.has_zones |= types::is_zoned(literal.data_type());
        Ok(expression(RexType::Literal(types::write_literal(literal)?)))
    }

    fn data_type(&mut self, data_type: &DataType, nullability: i32) -> Option<proto::Type> {
        self.has_zones |= types::is_zoned(data_type);
        types::write_type(data_type, nullability)
    }

    /// Returns the anchor of a function; declares the function in the plan if it is new.
    fn function(&mut self, name: &'static str, urn: &'static str) -> u32 {
        let used = self.functions.iter().position(|function| *function == (urn, name));
        let place = used.unwrap_or_else(|| {
            self.functions.push((urn, name));
            self.functions.len() - 1
        });
        place as u32 + 1
    }

    fn plan(self, root: proto::RelRoot) -> proto::Plan {
        let mut urns: Vec<&str> = if self.has_zones { vec![TYPES_URN] } else { Vec::new() };
        self.functions.iter().for_each(|(urn, _)| {
            if !urns.contains(urn) {
                urns.push(urn);
            }
        });
        let declared = |urn: &str, anchor: u32, name: &str| proto::Declared {
            uri_reference: 0,
            anchor,
            name: name.to_string(),
            urn_reference: urns.iter().position(|u| *u == urn).map_or(0, |place| place as u32 + 1),
        };
        let zoned = self.has_zones.then(|| declared(TYPES_URN, ZONED_ANCHOR, ZONED_TYPE));
        let mut mappings: Vec<MappingType> = zoned.into_iter().map(MappingType::Type).collect();
        mappings.extend(
            (1..)
                .zip(&self.functions)
                .map(|(anchor, (urn, name))| MappingType::Function(declared(urn, anchor, name))),
        );
        let declaration = |mapping| {
            proto::SimpleExtensionDeclaration { mapping_type: Some(mapping) }.encode_to_vec().into()
        };
        let root = proto::PlanRel { rel_type: Some(proto::PlanRelType::Root(root)) };
        let (major_number, minor_number, patch_number) = SUBSTRAIT_VERSION;
        proto::Plan {
            version: Some(proto::Version {
                major_number,
                minor_number,
                patch_number,
                producer: "farpool".into(),
            }),
            extensions: mappings.into_iter().map(declaration).collect(),
            extension_urns: (1..)
                .zip(&urns)
                .map(|(anchor, urn)| proto::Urn { anchor, urn: urn.to_string() })
                .collect(),
            relations: vec![root.encode_to_vec().into()],
            ..Default::default()
        }
    }
}

/// Type URL of the message with the table version, which a plan contains.
pub(super) const TABLE_VERSION_TYPE: &str = "type.googleapis.com/farpool.TableVersion";

/// Returns the parameters of a state (sketch, moments) as options of its function; none for other functions.
fn options(accumulation: Accumulation) -> Vec<Bytes> {
    let (name, value) = match accumulation {
        Accumulation::State(StateFunction::Sketch(parameters)) => {
            (functions::PARAMETERS, parameters.to_string())
        }
        Accumulation::State(StateFunction::Moments(nulls)) => (functions::NULLS, nulls.name().to_string()),
        Accumulation::Count | Accumulation::Sum | Accumulation::Mean | Accumulation::Fold(_) => {
            return Vec::new();
        }
    };
    vec![option(name, &value)]
}

fn option(name: &str, value: &str) -> Bytes {
    let option = proto::FunctionOption { name: name.to_string(), preference: vec![value.to_string()] };
    option.encode_to_vec().into()
}

fn version_extension(version: Version) -> proto::AdvancedExtension {
    let value = proto::TableVersion { version: version.0 }.encode_to_vec().into();
    let enhancement = proto::Any { type_url: TABLE_VERSION_TYPE.into(), value };
    proto::AdvancedExtension { enhancement: Some(enhancement) }
}

/// The condition on groups whose types are not known.
pub(super) fn unknown_groups() -> Expr {
    Expr::opaque("a condition on groups that are not known here", Vec::new())
}

fn filtered(input: Bytes, condition: Bytes) -> Bytes {
    relation(RelType::Filter(proto::FilterRel { common: None, input, condition, advanced_extension: None }))
}

fn relation(relation: RelType) -> Bytes {
    proto::Rel { rel_type: Some(relation) }.encode_to_vec().into()
}

fn expression(expression: RexType) -> Bytes {
    proto::Expression { rex_type: Some(expression) }.encode_to_vec().into()
}

fn enumerated(value: &str) -> Bytes {
    proto::FunctionArgument { arg_type: Some(ArgType::Enum(value.to_string())) }.encode_to_vec().into()
}

fn argument(value: Bytes) -> Bytes {
    proto::FunctionArgument { arg_type: Some(ArgType::Value(value)) }.encode_to_vec().into()
}

pub(super) fn column(index: usize) -> Bytes {
    let field = proto::StructItem { field: index as i32, child: None };
    let segment = proto::ReferenceSegment { reference_type: Some(proto::SegmentType::StructField(field)) };
    expression(RexType::Selection(proto::FieldReference {
        reference_type: Some(proto::ReferenceType::DirectReference(segment)),
        root_type: Some(proto::RootType::RootReference(Bytes::new())),
    }))
}
