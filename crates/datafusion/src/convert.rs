//! Converts DataFusion's logical expressions, after type coercion, to expressions of farpool's model, which a pool (the
//! store that holds the tables) can evaluate.
//!
//! Invariant: a converted expression has the same value on every row and the same type as in DataFusion, and fails only
//! where DataFusion fails. Any other expression becomes [`Expr::Opaque`], with the reason, and stays in the engine.
//! Subexpressions that may fail are converted only where DataFusion, too, evaluates them on every row; whether they may
//! fail is derived from the bounds of the table's columns.

use crate::prefix;
use arrow_schema::DataType;
use datafusion::common::DFSchema;
use datafusion::functions::datetime::date_part::DatePartFunc;
use datafusion::functions::regex::regexplike::RegexpLikeFunc;
use datafusion::logical_expr::expr::{Between, Case, InList, Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, ExprSchemable, Operator};
use farpool_model::compose::{Allowance, Slot};
use farpool_model::{CompareOp, DatePart, Expr, Facts, Literal, Pattern, TableInfo, Value, schema};
use farpool_sql::checked::{Operation, arithmetic_op};
use farpool_sql::{checked, literal};

/// The context of a conversion: resolves the columns of an expression.
pub(crate) struct Scope<'a> {
    /// The rows that the expression is evaluated over, described like a table: those of a table, or those behind the
    /// lookups of a program. Their schema is canonical: only types that pools have.
    pub table: &'a TableInfo,
    /// The schema against which the expression's columns are resolved.
    pub input: &'a DFSchema,
    /// For each column of `input`, its expression over the table.
    pub columns: &'a [Slot],
    /// Limits the size of the expressions that are created.
    pub allowance: &'a Allowance,
}

/// Whether DataFusion evaluates an expression on every row that reaches it.
#[derive(Clone, Copy, PartialEq)]
enum Evaluated {
    Always,
    /// On some rows only: the expression is a part of a condition or a branch, and another part may decide the result.
    Perhaps,
}

impl Scope<'_> {
    /// Converts a condition. Only the conjuncts that cannot be pushed down become opaque.
    pub(crate) fn condition(&self, expr: &Logical) -> Expr {
        match expr {
            Logical::Alias(alias) => self.condition(&alias.expr),
            Logical::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
                Expr::And(chain(expr, Operator::And).into_iter().map(|e| self.condition(e)).collect())
            }
            Logical::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
                Expr::Or(chain(expr, Operator::Or).into_iter().map(|e| self.condition(e)).collect())
            }
            Logical::Not(inner) => Expr::not(self.condition(inner)),
            _ => self.checked(expr, Evaluated::Perhaps),
        }
    }

    /// Converts a value; the whole value becomes opaque if a part of it cannot be pushed down.
    pub(crate) fn value(&self, expr: &Logical) -> Expr {
        self.checked(expr, Evaluated::Always)
    }

    /// Converts a value that is evaluated only on rows which pass another condition.
    pub(crate) fn value_where(&self, expr: &Logical) -> Expr {
        self.checked(expr, Evaluated::Perhaps)
    }

    fn checked(&self, expr: &Logical, evaluated: Evaluated) -> Expr {
        let converted = self.any(expr, evaluated);
        if let Some(reason) = converted.opaque_reason() {
            return opaque(reason);
        }
        match (converted.data_type(&self.table.schema), expr.get_type(self.input)) {
            (Ok(here), Ok(there)) if here == there => converted,
            // Rows that go along with a program have the pool's types there, and the engine's again in the result.
            (Ok(here), Ok(there))
                if is_column(expr) && schema::canonical_type(&there).as_ref() == Some(&here) =>
            {
                converted
            }
            (Ok(here), Ok(there)) => opaque(format!("types differ: {there} would become {here}")),
            (Err(error), _) => opaque(error.message),
            (_, Err(error)) => opaque(error.strip_backtrace()),
        }
    }

    fn any(&self, expr: &Logical, evaluated: Evaluated) -> Expr {
        let part = |e: &Logical| self.any(e, Evaluated::Perhaps);
        let same = |e: &Logical| self.any(e, evaluated);
        match expr {
            Logical::Alias(alias) => same(&alias.expr),
            Logical::Column(column) => match self.input.maybe_index_of_column(column) {
                Some(index) => self.columns[index]
                    .copied(0, self.allowance)
                    .unwrap_or_else(|error| opaque(error.message)),
                None => opaque(format!("column {column} is not of this table")),
            },
            Logical::Literal(scalar, _) => match literal::from_scalar(scalar) {
                Some(literal) => Expr::Literal(literal),
                None => opaque(format!("a constant of type {}", scalar.data_type())),
            },
            Logical::BinaryExpr(binary) => self.binary(expr, binary, evaluated),
            Logical::Not(inner) => Expr::not(same(inner)),
            Logical::IsNull(inner) => is_null(same(inner)),
            Logical::IsNotNull(inner) => Expr::not(is_null(same(inner))),
            Logical::IsTrue(inner) => is_true(part(inner)),
            Logical::IsNotTrue(inner) => Expr::not(is_true(part(inner))),
            Logical::IsFalse(inner) => is_true(Expr::not(part(inner))),
            Logical::IsNotFalse(inner) => Expr::not(is_true(Expr::not(part(inner)))),
            Logical::IsUnknown(inner) => is_null(same(inner)),
            Logical::IsNotUnknown(inner) => Expr::not(is_null(same(inner))),
            Logical::Negative(inner) => Expr::Negate(Box::new(same(inner))),
            Logical::Between(between) => self.between(between),
            Logical::InList(list) => self.in_list(list, evaluated),
            Logical::Like(like) => self.like(like, evaluated),
            Logical::ScalarFunction(call) if call.func.inner().is::<RegexpLikeFunc>() => {
                self.regexp_like(call, evaluated)
            }
            Logical::ScalarFunction(call) if call.func.inner().is::<DatePartFunc>() => {
                self.date_part(call, evaluated)
            }
            Logical::ScalarFunction(call) => match checked::operation(call) {
                Some(operation) => self.checked_operation(expr, operation, &call.args, evaluated),
                None => opaque(unsupported(expr)),
            },
            Logical::Case(case) => self.case(case),
            Logical::Cast(cast) => self.cast(&cast.expr, cast.field.data_type(), evaluated),
            other => opaque(unsupported(other)),
        }
    }

    fn binary(&self, expr: &Logical, binary: &BinaryExpr, evaluated: Evaluated) -> Expr {
        let part = |e: &Logical| self.any(e, Evaluated::Perhaps);
        if let Operator::And | Operator::Or = binary.op {
            let parts = chain(expr, binary.op).into_iter().map(part).collect();
            return if binary.op == Operator::And { Expr::And(parts) } else { Expr::Or(parts) };
        }
        if let Operator::IsDistinctFrom | Operator::IsNotDistinctFrom = binary.op {
            let same = not_distinct(part(&binary.left), part(&binary.right));
            return if binary.op == Operator::IsDistinctFrom { Expr::not(same) } else { same };
        }
        if let Operator::Eq | Operator::NotEq = binary.op
            && let Logical::Literal(scalar, _) = &*binary.right
            && let Some(begins) =
                self.begins(&binary.left, literal::from_scalar(scalar).as_slice(), evaluated)
        {
            return if binary.op == Operator::Eq { begins } else { Expr::not(begins) };
        }
        if let Some((case_insensitive, negated)) = regex_op(binary.op) {
            let found = self.regex(&binary.left, &binary.right, "", case_insensitive, evaluated);
            return if negated { Expr::not(found) } else { found };
        }
        let left = self.any(&binary.left, evaluated);
        let right = self.any(&binary.right, evaluated);
        if let Some(op) = compare_op(binary.op) {
            return Expr::compare(op, left, right);
        }
        let Some(op) = arithmetic_op(binary.op) else {
            return opaque(format!("the operator {} has no counterpart in the pool", binary.op));
        };
        self.unless_it_fails(Expr::arithmetic(op, left, right), evaluated, || expr.to_string())
    }

    fn checked_operation(
        &self,
        expr: &Logical,
        operation: Operation,
        operands: &[Logical],
        evaluated: Evaluated,
    ) -> Expr {
        let same = |e: &Logical| self.any(e, evaluated);
        let made = match (operation, operands) {
            (Operation::Binary(op), [left, right]) => Expr::arithmetic(op, same(left), same(right)),
            (Operation::Negative, [value]) => Expr::Negate(Box::new(same(value))),
            _ => return opaque(unsupported(expr)),
        };
        self.unless_it_fails(made, evaluated, || expr.schema_name().to_string())
    }

    /// Returns `made`. If it may fail on rows for which the engine would not evaluate it, returns an opaque expression
    /// instead.
    fn unless_it_fails(&self, made: Expr, evaluated: Evaluated, name: impl Fn() -> String) -> Expr {
        // An expression with type errors is not judged here, because a later check reports it.
        if evaluated == Evaluated::Perhaps
            && Facts::within(&made, self.table).is_ok_and(|facts| facts.may_fail)
        {
            return opaque(format!("{} may fail on rows that another condition removes", name()));
        }
        made
    }

    fn between(&self, between: &Between) -> Expr {
        let part = |e: &Logical| self.any(e, Evaluated::Perhaps);
        let value = part(&between.expr);
        let inside = Expr::And(vec![
            Expr::compare(CompareOp::GtEq, value.clone(), part(&between.low)),
            Expr::compare(CompareOp::LtEq, value, part(&between.high)),
        ]);
        if between.negated { Expr::not(inside) } else { inside }
    }

    /// Returns the pattern conditions (LIKE) that are equivalent to "`expr` is one of `constants`", if `expr` is a
    /// prefix of a string (`substr`, `left`). Returns `None` if it is not.
    fn begins(&self, expr: &Logical, constants: &[Literal], evaluated: Evaluated) -> Option<Expr> {
        let (string, chars) = prefix::beginning(expr)?;
        prefix::is_one_of(&self.any(string, evaluated), chars, constants)
    }

    fn in_list(&self, list: &InList, evaluated: Evaluated) -> Expr {
        let value = self.any(&list.expr, evaluated);
        let constants = list.list.iter().map(|item| match item {
            Logical::Literal(scalar, _) => literal::from_scalar(scalar),
            _ => None,
        });
        let Some(constants) = constants.collect::<Option<Vec<Literal>>>() else {
            return opaque("an IN list of other than constants");
        };
        // Look-ups in hash sets and comparisons may treat 0.0 and -0.0, or NaNs, differently.
        let delicate = |l: &Literal| matches!(l.value(), Value::Float(v) if *v == 0.0 || v.is_nan());
        if constants.iter().any(delicate) {
            return opaque("an IN list with a floating-point zero or NaN");
        }
        let inside = match self.begins(&list.expr, &constants, evaluated) {
            Some(begins) => begins,
            None => Expr::InList(Box::new(value), constants),
        };
        if list.negated { Expr::not(inside) } else { inside }
    }

    fn like(&self, like: &Like, evaluated: Evaluated) -> Expr {
        if like.escape_char.is_some_and(|c| c != '\\') {
            return opaque("LIKE with an escape character of its own");
        }
        let pattern = match &*like.pattern {
            Logical::Literal(scalar, _) => literal::from_scalar(scalar),
            _ => None,
        };
        let Some(Value::Text(pattern)) = pattern.map(|p| p.value().clone()) else {
            return opaque("LIKE with a pattern that is not a constant");
        };
        let value = Box::new(self.any(&like.expr, evaluated));
        let matches = Expr::Like { value, pattern, case_insensitive: like.case_insensitive };
        if like.negated { Expr::not(matches) } else { matches }
    }

    /// Converts a match of a regular expression; `flags` are prepended to the pattern.
    fn regex(
        &self,
        value: &Logical,
        pattern: &Logical,
        flags: &str,
        case_insensitive: bool,
        evaluated: Evaluated,
    ) -> Expr {
        let Some(pattern) = constant_text(pattern) else {
            return opaque("a regular expression that is not a constant");
        };
        match Pattern::new(&format!("{flags}{pattern}"), case_insensitive) {
            Ok(pattern) => Expr::Regex { value: Box::new(self.any(value, evaluated)), pattern },
            Err(error) => opaque(error.message),
        }
    }

    fn regexp_like(&self, call: &ScalarFunction, evaluated: Evaluated) -> Expr {
        match &call.args[..] {
            [value, pattern] => self.regex(value, pattern, "", false, evaluated),
            [value, pattern, flags] => match constant_text(flags) {
                // DataFusion prepends the flags to the pattern in the same form.
                Some(flags) if !flags.is_empty() && flags.chars().all(|c| "imsUx".contains(c)) => {
                    self.regex(value, pattern, &format!("(?{flags})"), false, evaluated)
                }
                _ => opaque("flags of a regular expression that the pool does not know"),
            },
            _ => opaque("regexp_like of other than two or three arguments"),
        }
    }

    fn date_part(&self, call: &ScalarFunction, evaluated: Evaluated) -> Expr {
        let [part, time] = &call.args[..] else { return opaque("date_part of other than two arguments") };
        let Some(part) = constant_text(part).and_then(|name| DatePart::named(&name)) else {
            return opaque("a part of a time that the pool does not know");
        };
        let extract = Expr::Extract(part, Box::new(self.any(time, evaluated)));
        // The engine's function gives integers of 32 bits, which hold every part.
        Expr::Cast(Box::new(extract), DataType::Int32)
    }

    fn case(&self, case: &Case) -> Expr {
        let part = |e: &Logical| self.any(e, Evaluated::Perhaps);
        let operand = case.expr.as_deref().map(part);
        let branches = case.when_then_expr.iter().map(|(when, then)| {
            let when = match &operand {
                Some(operand) => Expr::compare(CompareOp::Eq, operand.clone(), part(when)),
                None => part(when),
            };
            (when, part(then))
        });
        let branches = branches.collect();
        Expr::Case { branches, otherwise: case.else_expr.as_deref().map(|e| Box::new(part(e))) }
    }

    fn cast(&self, inner: &Logical, to: &DataType, evaluated: Evaluated) -> Expr {
        let value = self.any(inner, evaluated);
        let Ok(from) = value.data_type(&self.table.schema) else { return value };
        if from == *to {
            return value;
        }
        if schema::canonical_type(to).as_ref() != Some(to) || !castable(&from, to) {
            return opaque(format!("a cast from {from} to {to}"));
        }
        let name = || format!("a cast from {from} to {to}");
        self.unless_it_fails(Expr::Cast(Box::new(value), to.clone()), evaluated, name)
    }
}

fn is_column(expr: &Logical) -> bool {
    match expr {
        Logical::Column(_) => true,
        Logical::Alias(alias) => is_column(&alias.expr),
        _ => false,
    }
}

/// Creates an opaque expression: one that the pool has no operator for, so that the engine evaluates it.
pub(crate) fn opaque(reason: impl Into<String>) -> Expr {
    // The list of columns stays empty: this crate itself adds the columns that the engine needs to the program.
    Expr::opaque(reason, Vec::new())
}

fn is_null(inner: Expr) -> Expr {
    Expr::IsNull(Box::new(inner))
}

fn is_true(inner: Expr) -> Expr {
    Expr::And(vec![Expr::not(is_null(inner.clone())), inner])
}

fn not_distinct(left: Expr, right: Expr) -> Expr {
    let (left_null, right_null) = (is_null(left.clone()), is_null(right.clone()));
    Expr::Or(vec![
        Expr::And(vec![left_null.clone(), right_null.clone()]),
        Expr::And(vec![
            Expr::not(left_null),
            Expr::not(right_null),
            Expr::compare(CompareOp::Eq, left, right),
        ]),
    ])
}

/// Returns the operands of a chain of one operator, left to right, without recursion: chains may be long.
fn chain(expr: &Logical, op: Operator) -> Vec<&Logical> {
    let (mut operands, mut stack) = (Vec::new(), vec![expr]);
    while let Some(next) = stack.pop() {
        match next {
            Logical::BinaryExpr(binary) if binary.op == op => {
                stack.push(&binary.right);
                stack.push(&binary.left);
            }
            other => operands.push(other),
        }
    }
    operands
}

/// Returns the value of a constant string.
fn constant_text(expr: &Logical) -> Option<String> {
    let Logical::Literal(scalar, _) = expr else { return None };
    match literal::from_scalar(scalar)?.value() {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns whether the regular expression operator ignores case, and whether it is negated; `None` for any other
/// operator.
fn regex_op(op: Operator) -> Option<(bool, bool)> {
    Some(match op {
        Operator::RegexMatch => (false, false),
        Operator::RegexIMatch => (true, false),
        Operator::RegexNotMatch => (false, true),
        Operator::RegexNotIMatch => (true, true),
        _ => return None,
    })
}

fn compare_op(op: Operator) -> Option<CompareOp> {
    Some(match op {
        Operator::Eq => CompareOp::Eq,
        Operator::NotEq => CompareOp::NotEq,
        Operator::Lt => CompareOp::Lt,
        Operator::LtEq => CompareOp::LtEq,
        Operator::Gt => CompareOp::Gt,
        Operator::GtEq => CompareOp::GtEq,
        _ => return None,
    })
}

/// Returns whether the pool may evaluate the cast: only between types for which DataFusion uses Arrow's cast kernel
/// without additions, as the pool does. Casts from strings are not included, because the two parse some strings
/// differently.
fn castable(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let number = |t: &DataType| t.is_integer() || matches!(t, Float32 | Float64 | Decimal128(..));
    match (from, to) {
        (f, t) if number(f) && number(t) => true,
        (Boolean, t) => t.is_integer() || *t == Utf8View,
        (f, Utf8View) => f.is_integer() || matches!(f, Date32),
        (Date32, Timestamp(_, None)) | (Timestamp(_, None), Date32) => true,
        (Timestamp(_, f), Timestamp(_, t)) => f == t,
        _ => false,
    }
}

fn unsupported(expr: &Logical) -> String {
    match expr {
        Logical::ScalarFunction(call) => format!("the function {} has no operator in the pool", call.name()),
        Logical::SimilarTo(_) => "SIMILAR TO has no operator in the pool".to_string(),
        Logical::TryCast(_) => "TRY_CAST has no operator in the pool".to_string(),
        Logical::ScalarSubquery(_) | Logical::InSubquery(_) | Logical::Exists(_) => {
            "a subquery is computed first".to_string()
        }
        Logical::GroupingSet(_) => "grouping sets have no operator in the pool".to_string(),
        Logical::Placeholder(_) => "a parameter without a value".to_string(),
        other => format!("{} has no operator in the pool", other.variant_name()),
    }
}
