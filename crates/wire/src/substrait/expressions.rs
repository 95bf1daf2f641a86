//! Decodes the expressions of a plan. Substrait expressions refer to the columns of their input relation; here each
//! reference is replaced by the referenced expression ([`Slot`]), so that the result refers to the columns of the
//! table.
//!
//! Invariant: nesting and bytes are counted before anything is decoded deeper or copied. Thus a plan whose projections
//! each double the previous one, or that refers to a long constant repeatedly, is rejected instead of growing without
//! limit. A pattern is compiled once, and the size of all patterns of a plan is limited. Example: `b = a + a`, `c = b +
//! b` and so on, 60 times, is a short plan whose last column has 2^60 nodes.

use super::functions::{self, Function};
use super::proto::{self, ArgType, ReferenceType, RexType, RootType, SegmentType};
use super::read;
use super::types::{self, TypeNames};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use farpool_model::compose::{Allowance, Budget, Slot, check_depth};
use farpool_model::{CompareOp, Error, Expr, KeyFilter, KeySet, Literal, Pattern, Result, Value, limits};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// The functions and types that a plan declares, by their anchors (ids within the plan).
#[derive(Default)]
pub(super) struct Extensions {
    /// Name and extension of each function, by its anchor.
    functions: HashMap<u32, (String, Arc<str>)>,
    types: TypeNames,
}

/// Reads the expressions of one side of a plan.
pub(super) struct Reader<'a> {
    plan: &'a PlanExpressions<'a>,
    /// Number of columns of the side's table.
    table_width: usize,
    /// Schema of the side's rows, over which its expressions are: the columns of the table, and what its joins add.
    schema: SchemaRef,
}

/// The expressions of a plan, in all sides of its joins together, and their limits.
pub(super) struct PlanExpressions<'a> {
    extensions: &'a Extensions,
    /// Limits the total size of the decoded expressions.
    allowance: Allowance,
    /// The patterns compiled so far (or why one is not supported), and the bytes left for further ones.
    patterns: RefCell<HashMap<(String, bool), Result<Pattern, String>>>,
    pattern_bytes_left: Cell<usize>,
    /// Total bytes that the plan takes so far. The next field is the function that is called with each larger total.
    bytes_held: Cell<usize>,
    holds: &'a dyn Fn(usize) -> Result<()>,
}

/// Number of forms in which a plan is in memory at the same time: decoded, and compiled.
const FORMS: usize = 2;

/// Bytes charged per byte of an invalid regular expression, because parsing it may have allocated as many.
const PARSED_BYTES: usize = 2048;

impl Extensions {
    pub(super) fn of(plan: &proto::Plan) -> Result<Self> {
        let counts = [plan.extensions.len(), plan.extension_urns.len(), plan.extension_uris.len()];
        if counts.into_iter().any(|count| count > limits::PLAN_DECLARATIONS_MAX) {
            let most = limits::PLAN_DECLARATIONS_MAX;
            return Err(Error::over_limit(format!("a plan may declare {most} functions")));
        }
        let by_anchor = |urns: &[proto::Urn]| -> Result<HashMap<u32, Arc<str>>> {
            urns.iter().map(|urn| Ok((urn.anchor, short(&urn.urn)?.into()))).collect()
        };
        let (urns, uris) = (by_anchor(&plan.extension_urns)?, by_anchor(&plan.extension_uris)?);
        let mut extensions = Extensions::default();
        for bytes in &plan.extensions {
            let declaration: proto::SimpleExtensionDeclaration = read(bytes)?;
            match declaration.mapping_type {
                Some(proto::MappingType::Function(f)) => {
                    let urn = urns.get(&f.urn_reference).or_else(|| uris.get(&f.uri_reference));
                    let urn = urn.cloned().unwrap_or_default();
                    extensions.functions.insert(f.anchor, (functions::simple_name(short(&f.name)?), urn));
                }
                Some(proto::MappingType::Type(t)) => {
                    short(&t.name)?;
                    extensions.types.insert(t.anchor, t.name);
                }
                // Type variations are identified by number alone, so that their declarations are not needed.
                Some(proto::MappingType::TypeVariation(_)) | None => {}
            }
        }
        Ok(extensions)
    }

    pub(super) fn types(&self) -> &TypeNames {
        &self.types
    }

    /// Returns the name of the function with this anchor; the inner `Err` is the reason why it is not supported.
    pub(super) fn function(&self, anchor: u32) -> Result<Result<&str, String>> {
        let Some((name, urn)) = self.functions.get(&anchor) else {
            return Err(Error::invalid(format!("the plan uses function {anchor} but does not declare it")));
        };
        if !functions::is_known_extension(urn) {
            return Ok(Err(format!("function {name} of {urn}")));
        }
        Ok(Ok(name))
    }
}

/// Checks the length of a name. Long ones are refused, because error messages quote a name wherever it is used.
fn short(name: &str) -> Result<&str> {
    if name.len() <= limits::NAME_BYTES_MAX {
        return Ok(name);
    }
    Err(Error::over_limit(format!(
        "the name of a function, a type or an extension may have {} bytes, one has {}",
        limits::NAME_BYTES_MAX,
        name.len()
    )))
}

/// Counts the size of expressions before they are created, and fails if the limit is exceeded.
impl Budget for Reader<'_> {
    fn charge(&self, bytes: usize) -> Result<()> {
        self.plan.allowance.charge(bytes)?;
        self.plan.hold(bytes)
    }
}

impl<'a> PlanExpressions<'a> {
    /// Prepares for the expressions of a plan whose messages take `bytes_held` bytes; `holds` is called with each larger
    /// total.
    pub(super) fn new(
        extensions: &'a Extensions,
        bytes_held: usize,
        holds: &'a dyn Fn(usize) -> Result<()>,
    ) -> Self {
        PlanExpressions {
            extensions,
            allowance: Allowance::default(),
            patterns: RefCell::default(),
            pattern_bytes_left: Cell::new(limits::PATTERNS_BYTES_MAX),
            bytes_held: Cell::new(bytes_held),
            holds,
        }
    }

    /// Adds bytes that every form of the plan will take to the total, and reports the total.
    fn hold(&self, bytes: usize) -> Result<()> {
        self.bytes_held.set(self.bytes_held.get() + FORMS * bytes);
        (self.holds)(self.bytes_held.get())
    }
}

impl<'a> Reader<'a> {
    /// Creates a reader for the expressions of `plan` over a table with these columns.
    pub(super) fn new(plan: &'a PlanExpressions<'a>, schema: SchemaRef) -> Self {
        Reader { plan, table_width: schema.fields().len(), schema }
    }

    /// Returns a reader for expressions over other rows than those of the table.
    pub(super) fn over(&self, schema: SchemaRef) -> Self {
        Reader { plan: self.plan, table_width: self.table_width, schema }
    }

    pub(super) fn extensions(&self) -> &'a Extensions {
        self.plan.extensions
    }

    /// Returns the schema of the rows that expressions are over.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of columns of the table, which come first in the rows.
    pub(super) fn table_width(&self) -> usize {
        self.table_width
    }

    /// Decodes an expression of a relation whose input has the columns `columns`.
    pub(super) fn expression(&self, bytes: &Bytes, columns: &[Slot]) -> Result<Expr> {
        self.at(bytes, columns, 0)
    }

    /// Returns the column's index if the expression is only a reference to a column; otherwise `None`.
    pub(super) fn reference(&self, bytes: &Bytes) -> Result<Option<usize>> {
        match read::<proto::Expression>(bytes)?.rex_type {
            Some(RexType::Selection(reference)) => Ok(field(&reference)),
            _ => Ok(None),
        }
    }

    fn at(&self, bytes: &Bytes, columns: &[Slot], depth: usize) -> Result<Expr> {
        check_depth(depth)?;
        self.charge(limits::EXPR_NODE_BYTES)?;
        let Some(rex) = read::<proto::Expression>(bytes)?.rex_type else {
            return Ok(opaque("an expression of a kind that is not known here"));
        };
        let depth = depth + 1;
        let expr = match rex {
            RexType::Literal(literal) => match types::read_literal(&literal, self.extensions().types())? {
                Some(literal) => Expr::Literal(literal),
                None => opaque("a constant of a type that the pool does not hold"),
            },
            RexType::Selection(reference) => return self.column(&reference, columns, depth - 1),
            RexType::ScalarFunction(call) => self.call(&call, columns, depth)?,
            RexType::IfThen(case) => self.case(&case, columns, depth)?,
            RexType::SingularOrList(list) => self.in_list(&list, columns, depth)?,
            RexType::Cast(cast) => self.cast(&cast, columns, depth)?,
            RexType::WindowFunction(_) => opaque("a window function"),
            RexType::SwitchExpression(_) => opaque("a switch expression"),
            RexType::MultiOrList(_) => opaque("IN over several columns"),
            RexType::Enum(_) => opaque("an enumeration"),
            RexType::Subquery(_) => opaque("a subquery"),
            RexType::Nested(_) => opaque("a nested value"),
            RexType::DynamicParameter(_) => opaque("a parameter without a value"),
            RexType::Lambda(_) | RexType::LambdaInvocation(_) => opaque("a lambda"),
        };
        self.charge(expr.own_bytes() - limits::EXPR_NODE_BYTES)?;
        Ok(expr)
    }

    fn column(&self, reference: &proto::FieldReference, columns: &[Slot], depth: usize) -> Result<Expr> {
        let Some(index) = field(reference) else {
            return Ok(opaque("a reference into a nested value or an outer query"));
        };
        let Some(slot) = columns.get(index) else {
            return Err(Error::invalid(format!(
                "the plan refers to column {index} of a relation that has {}",
                columns.len()
            )));
        };
        slot.copied(depth, self)
    }

    fn call(&self, call: &proto::ScalarFunction, columns: &[Slot], depth: usize) -> Result<Expr> {
        let arguments = self.arguments(&call.arguments, &call.args, columns, depth)?;
        let opaque = |reason, (Ok(inputs) | Err(inputs))| Ok(Expr::opaque(reason, inputs));
        let name = match self.extensions().function(call.function_reference)? {
            Ok(name) => name,
            Err(reason) => return opaque(reason, arguments),
        };
        let Some(function) = functions::scalar(name) else {
            return opaque(format!("function {name}"), arguments);
        };
        let options = call.options.iter().map(read).collect::<Result<Vec<proto::FunctionOption>>>()?;
        if let Some(option) = functions::refused_option(&options) {
            return opaque(format!("function {name} with {option}"), arguments);
        }
        if function == Function::Extract {
            let (Ok(values) | Err(values)) = arguments;
            return self.extract(call, values);
        }
        let Ok(arguments) = arguments else {
            return opaque(format!("function {name} with an argument that is not a value"), arguments);
        };
        let function = match function {
            Function::Like { case_insensitive } => Function::Like {
                case_insensitive: case_insensitive || functions::wants_case_insensitive(&options),
            },
            Function::Regex { case_insensitive } => Function::Regex {
                case_insensitive: case_insensitive || functions::wants_case_insensitive(&options),
            },
            other => other,
        };
        let count = arguments.len();
        self.apply(function, arguments)?.or_else(|arguments| {
            opaque(format!("function {name} of {count} arguments of these kinds"), Err(arguments))
        })
    }

    /// Decodes the arguments of a function. If some arguments are no values, the inner `Err` has those that are.
    pub(super) fn arguments(
        &self,
        arguments: &[Bytes],
        old_style: &[Bytes],
        columns: &[Slot],
        depth: usize,
    ) -> Result<Result<Vec<Expr>, Vec<Expr>>> {
        let mut values = Vec::with_capacity(arguments.len().min(limits::COLUMNS_MAX));
        let mut all_values = true;
        for argument in arguments {
            match read::<proto::FunctionArgument>(argument)?.arg_type {
                Some(ArgType::Value(value)) => values.push(self.at(&value, columns, depth)?),
                _ => all_values = false,
            }
        }
        for value in old_style {
            values.push(self.at(value, columns, depth)?);
        }
        Ok(if all_values { Ok(values) } else { Err(values) })
    }

    /// Returns the expression of a function call. If the function does not support these arguments, the inner `Err`
    /// gives them back.
    fn apply(&self, function: Function, mut arguments: Vec<Expr>) -> Result<Result<Expr, Vec<Expr>>> {
        let one = |arguments: Vec<Expr>| arguments.try_into().map(|[e]: [Expr; 1]| e);
        let two = |arguments: Vec<Expr>| arguments.try_into().map(|[l, r]: [Expr; 2]| (l, r));
        Ok(match function {
            Function::And => Ok(Expr::And(arguments)),
            Function::Or => Ok(Expr::Or(arguments)),
            Function::Compare(op) => two(arguments).map(|(l, r)| self.compare(op, l, r)),
            Function::Arithmetic(op) => two(arguments).map(|(l, r)| Expr::arithmetic(op, l, r)),
            Function::Not => one(arguments).map(Expr::not),
            Function::IsNull => one(arguments).map(|e| Expr::IsNull(Box::new(e))),
            Function::IsNotNull => one(arguments).map(|e| Expr::not(Expr::IsNull(Box::new(e)))),
            Function::Negate => one(arguments).map(|e| Expr::Negate(Box::new(e))),
            Function::Between => match <[Expr; 3]>::try_from(arguments) {
                Ok([value, low, high]) => Ok(self.between(value, low, high)?),
                Err(arguments) => Err(arguments),
            },
            Function::Like { .. } | Function::StartsWith | Function::EndsWith | Function::Contains => {
                match pattern_of(function, &arguments) {
                    Some((pattern, case_insensitive)) => {
                        let value = Box::new(arguments.swap_remove(0));
                        Ok(Expr::Like { value, pattern, case_insensitive })
                    }
                    None => Err(arguments),
                }
            }
            Function::InSet => match keys_of(&arguments) {
                Some(keys) if arguments.len() == 2 => {
                    let keys = KeySet::from_bytes(keys)?;
                    Ok(Expr::InSet(Box::new(arguments.swap_remove(0)), keys))
                }
                _ => Err(arguments),
            },
            Function::InFilter => match keys_of(&arguments) {
                Some(keys) if arguments.len() > 1 => {
                    let keys = KeyFilter::from_bytes(keys)?;
                    arguments.pop();
                    Ok(Expr::InFilter(arguments, keys))
                }
                _ => Err(arguments),
            },
            Function::Regex { case_insensitive } => match arguments.get(1).and_then(text) {
                Some(pattern) if arguments.len() == 2 => match self.pattern(pattern, case_insensitive)? {
                    Ok(pattern) => Ok(Expr::Regex { value: Box::new(arguments.swap_remove(0)), pattern }),
                    Err(reason) => Ok(Expr::opaque(reason, arguments)),
                },
                _ => Err(arguments),
            },
            // This function has arguments of another kind, too.
            Function::Extract => Err(arguments),
            Function::Opaque => match arguments.first().and_then(text).map(str::to_string) {
                Some(reason) => Ok(Expr::opaque(reason, arguments.split_off(1))),
                None => Err(arguments),
            },
        })
    }

    /// Returns the expression of a call of `extract` whose arguments that are values are `values`.
    fn extract(&self, call: &proto::ScalarFunction, values: Vec<Expr>) -> Result<Expr> {
        let mut names = Vec::new();
        for argument in &call.arguments {
            if let Some(ArgType::Enum(name)) = read::<proto::FunctionArgument>(argument)?.arg_type {
                names.push(name);
            }
        }
        match (functions::date_part(&names), <[Expr; 1]>::try_from(values)) {
            (Some(part), Ok([time])) => Ok(Expr::Extract(part, Box::new(time))),
            (None, Ok(time)) => {
                Ok(Expr::opaque(format!("function extract of {}", names.join(" ")), time.into()))
            }
            (_, Err(values)) => Ok(Expr::opaque("function extract of other than one value", values)),
        }
    }

    /// Returns the compiled pattern; the inner `Err` is the reason why it is not supported.
    fn pattern(&self, text: &str, case_insensitive: bool) -> Result<Result<Pattern, String>> {
        let key = (text.to_string(), case_insensitive);
        if let Some(known) = self.plan.patterns.borrow().get(&key) {
            return Ok(known.clone());
        }
        let compiled = self.compile(text, case_insensitive)?;
        self.plan.patterns.borrow_mut().insert(key, compiled.clone());
        Ok(compiled)
    }

    fn compile(&self, text: &str, case_insensitive: bool) -> Result<Result<Pattern, String>> {
        let left = self.plan.pattern_bytes_left.get();
        let too_many = || "the regular expressions of the plan are too large together".to_string();
        if left == 0 {
            return Ok(Err(too_many()));
        }
        let to_parse = text.len().min(limits::PATTERN_BYTES_MAX) * PARSED_BYTES;
        (self.plan.holds)(self.plan.bytes_held.get() + to_parse)?;
        let compiled = Pattern::new(text, case_insensitive);
        let bytes = match &compiled {
            Ok(pattern) => pattern.bytes(),
            Err(_) => limits::PATTERN_CACHE_BYTES_MAX + to_parse,
        };
        self.plan.pattern_bytes_left.set(left.saturating_sub(bytes));
        match compiled {
            Ok(pattern) if bytes <= left => self.plan.hold(bytes).map(|()| Ok(pattern)),
            Ok(_) => Ok(Err(too_many())),
            Err(error) => Ok(Err(error.message)),
        }
    }

    fn between(&self, value: Expr, low: Expr, high: Expr) -> Result<Expr> {
        // BETWEEN becomes two comparisons, which both need the value, so that it is copied.
        self.charge(value.bytes() + 2 * limits::EXPR_NODE_BYTES)?;
        let low = self.compare(CompareOp::GtEq, value.clone(), low);
        let high = self.compare(CompareOp::LtEq, value, high);
        Ok(Expr::And(vec![low, high]))
    }

    fn compare(&self, op: CompareOp, left: Expr, right: Expr) -> Expr {
        let left = self.in_zone_of(left, &right);
        let right = self.in_zone_of(right, &left);
        Expr::compare(op, left, right)
    }

    fn in_list(&self, list: &proto::SingularOrList, columns: &[Slot], depth: usize) -> Result<Expr> {
        if list.options.len() > limits::IN_LIST_MAX {
            return Err(Error::over_limit(format!(
                "an IN list may have {} values, this one has {}",
                limits::IN_LIST_MAX,
                list.options.len()
            )));
        }
        let value = self.at(&list.value, columns, depth)?;
        let options = list.options.iter().map(|option| self.at(option, columns, depth));
        let options = options.map(|o| Ok(self.in_zone_of(o?, &value))).collect::<Result<Vec<Expr>>>()?;
        let as_literal = |option: &Expr| match option {
            Expr::Literal(literal) => Some(literal.clone()),
            _ => None,
        };
        if let Some(literals) = options.iter().map(as_literal).collect::<Option<Vec<Literal>>>() {
            return Ok(Expr::InList(Box::new(value), literals));
        }
        // A list that does not consist of constants only becomes the OR of comparisons that IN stands for.
        self.charge(options.len().saturating_mul(value.bytes() + limits::EXPR_NODE_BYTES))?;
        let equal = |option| Expr::compare(CompareOp::Eq, value.clone(), option);
        Ok(Expr::Or(options.into_iter().map(equal).collect()))
    }

    fn cast(&self, cast: &proto::Cast, columns: &[Slot], depth: usize) -> Result<Expr> {
        let input = self.at(&cast.input, columns, depth)?;
        if cast.failure_behavior == proto::FAILURE_RETURN_NULL {
            return Ok(Expr::opaque("a cast that gives NULL where it fails", vec![input]));
        }
        let to = cast.r#type.as_ref().and_then(|to| types::read_type(to, self.extensions().types()));
        let Some(to) = to else {
            return Ok(Expr::opaque("a cast to a type that the pool does not hold", vec![input]));
        };
        Ok(Expr::Cast(Box::new(input), to))
    }

    fn case(&self, case: &proto::IfThen, columns: &[Slot], depth: usize) -> Result<Expr> {
        let mut branches = Vec::new();
        let mut base: Option<Expr> = None;
        for (place, bytes) in case.ifs.iter().enumerate() {
            let clause: proto::IfClause = read(bytes)?;
            let Some(when) = &clause.r#if else {
                return Err(Error::invalid("a CASE without a condition"));
            };
            let when = self.at(when, columns, depth)?;
            match (&clause.then, &base) {
                // The form `CASE value WHEN …`, as DataFusion encodes it: the value comes first, as a clause without
                // THEN.
                (None, _) if place == 0 => base = Some(when),
                (None, _) => return Err(Error::invalid("a CASE without a THEN")),
                (Some(then), None) => branches.push((when, self.at(then, columns, depth)?)),
                (Some(then), Some(base)) => {
                    self.charge(base.bytes() + limits::EXPR_NODE_BYTES)?;
                    let when = self.compare(CompareOp::Eq, base.clone(), when);
                    branches.push((when, self.at(then, columns, depth)?));
                }
            }
        }
        let otherwise = case.r#else.as_ref().map(|e| self.at(e, columns, depth)).transpose()?;
        Ok(Expr::Case { branches, otherwise: otherwise.map(Box::new) })
    }

    /// Gives a constant timestamp the time zone of the expression that it is compared with. The instant stays the same;
    /// Substrait does not keep time zones.
    fn in_zone_of(&self, expr: Expr, other: &Expr) -> Expr {
        let Expr::Literal(literal) = &expr else { return expr };
        let DataType::Timestamp(unit, Some(_)) = literal.data_type() else { return expr };
        match other.data_type(&self.schema) {
            Ok(to @ DataType::Timestamp(..))
                if types::agree(&to, &DataType::Timestamp(*unit, Some("".into()))) =>
            {
                Literal::new(literal.value().clone(), to).map_or(expr, Expr::Literal)
            }
            _ => expr,
        }
    }
}

/// Returns the index if the reference is to a column of the input; `None` for any other reference.
fn field(reference: &proto::FieldReference) -> Option<usize> {
    // Producers may omit the root of a reference if only one is possible.
    if !matches!(reference.root_type, Some(RootType::RootReference(_)) | None) {
        return None;
    }
    let Some(ReferenceType::DirectReference(segment)) = &reference.reference_type else { return None };
    match &segment.reference_type {
        Some(SegmentType::StructField(proto::StructItem { field, child: None })) => {
            usize::try_from(*field).ok()
        }
        _ => None,
    }
}

/// Returns an opaque (unsupported) expression whose inputs are not known.
fn opaque(reason: &str) -> Expr {
    Expr::opaque(reason, Vec::new())
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(literal) => match literal.value() {
            Value::Text(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the bytes of the set of keys in the arguments of `in_set`; `None` if there are none.
fn keys_of(arguments: &[Expr]) -> Option<&[u8]> {
    let Some(Expr::Literal(keys)) = arguments.last() else { return None };
    match keys.value() {
        Value::Bytes(keys) => Some(keys),
        _ => None,
    }
}

/// Returns the LIKE pattern of a call of a matching function, and whether it ignores case. Returns `None` unless the
/// arguments are a value and constants.
fn pattern_of(function: Function, arguments: &[Expr]) -> Option<(String, bool)> {
    let part = || match arguments {
        [_, part] => text(part).map(escaped),
        _ => None,
    };
    let pattern = match function {
        Function::Like { .. } => match arguments {
            [_, pattern] => with_backslash(text(pattern)?, None)?,
            [_, pattern, escape] => with_backslash(text(pattern)?, Some(escape))?,
            _ => return None,
        },
        Function::StartsWith => format!("{}%", part()?),
        Function::EndsWith => format!("%{}", part()?),
        Function::Contains => format!("%{}%", part()?),
        _ => return None,
    };
    Some((pattern, matches!(function, Function::Like { case_insensitive: true })))
}

/// Returns a LIKE pattern that matches exactly the string `text`.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Rewrites a LIKE pattern with another escape character, or with none, to one whose escape character is the backslash,
/// as in the model. Returns `None` if the pattern is malformed.
fn with_backslash(pattern: &str, escape: Option<&Expr>) -> Option<String> {
    let escape = match escape {
        None => return Some(pattern.to_string()),
        Some(Expr::Literal(literal)) if literal.is_null() => return Some(pattern.to_string()),
        Some(escape) => text(escape)?,
    };
    let mut characters = escape.chars();
    let (escape, None) = (characters.next(), characters.next()) else { return None };
    if escape == Some('\\') {
        return Some(pattern.to_string());
    }
    let mut ours = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if Some(c) == escape {
            ours.extend(['\\', rest.next()?]);
        } else if c == '\\' {
            ours.push_str("\\\\");
        } else {
            ours.push(c);
        }
    }
    Some(ours)
}
