//! Numbers the parameters `?`, as in JDBC and Python's DB-API: the first one becomes `$1`, the second `$2`, in the
//! order of the text. Parameters among the arguments of functions in FROM are replaced by their values before planning,
//! because DataFusion 55.2 evaluates these functions during planning.

use super::walk::Walk;
use super::{call, refusal, visit};
use crate::parameters::Parameters;
use arrow_schema::DataType;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType as SqlType, Expr, TableFactor, Value, ValueWithSpan, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

/// Gives numbers to those parameters of a statement that have none.
pub(super) fn number(statement: &mut Statement) -> Result<()> {
    // Visits parameters first and sorts them by position, because a visitor does not follow the order of the text:
    // LIMIT comes before WHERE.
    let mut places = Places::default();
    visit(statement, &mut places)?;
    if places.0.is_empty() {
        return Ok(());
    }
    let starts = places.0.into_iter().zip(1..).map(|(start, number)| (start, format!("${number}")));
    visit(statement, &mut Numbers(starts.collect()))
}

/// Positions of parameters without a number.
#[derive(Default)]
struct Places(BTreeSet<Location>);

impl VisitorMut for Places {
    type Break = DataFusionError;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<DataFusionError> {
        if matches!(&value.value, Value::Placeholder(name) if name == "?") {
            self.0.insert(value.span.start);
        }
        ControlFlow::Continue(())
    }
}

struct Numbers(BTreeMap<Location, String>);

impl VisitorMut for Numbers {
    type Break = DataFusionError;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<DataFusionError> {
        let Value::Placeholder(name) = &mut value.value else { return ControlFlow::Continue(()) };
        match (name.as_str(), self.0.get(&value.span.start)) {
            ("?", Some(number)) => name.clone_from(number),
            _ => {
                let what = format!("the statement has parameters of two kinds: ? and {name}");
                return ControlFlow::Break(refusal(&what, "write all of them as ?, or all as $1, $2, …"));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Replaces parameters among the arguments of functions in FROM by their values. Returns the names of these parameters.
pub fn fill_in_arguments(statement: &mut Statement, parameters: &Parameters) -> Result<BTreeSet<String>> {
    let mut arguments = Arguments { parameters, filled_in: BTreeSet::new() };
    if *parameters != Parameters::None {
        visit(statement, &mut arguments)?;
    }
    Ok(arguments.filled_in)
}

/// Replaces `x = ANY($1)` by `x IN (…)` with the elements of the parameter's value, which a pool can look up. Returns the
/// names of these parameters. A parameter whose value is no list, or has elements that are not written as constants, stays.
pub fn fill_in_lists(statement: &mut Statement, parameters: &Parameters) -> Result<BTreeSet<String>> {
    let mut lists = Lists { parameters, filled_in: BTreeSet::new() };
    visit(statement, &mut lists)?;
    Ok(lists.filled_in)
}

/// Returns the types to which parameters are cast in a statement, by the names of the parameters. Of several casts of one
/// parameter, the first counts.
pub fn types_of_casts(statement: &Statement) -> Result<HashMap<String, SqlType>> {
    let mut casts = Casts::default();
    // The visitor changes nothing.
    visit(&mut statement.clone(), &mut casts)?;
    Ok(casts.0)
}

/// Returns the name of a parameter, which may be in brackets; `None` for another expression.
pub(super) fn parameter(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => parameter(inner),
        Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => Some(name),
        _ => None,
    }
}

#[derive(Default)]
struct Casts(HashMap<String, SqlType>);

impl VisitorMut for Casts {
    type Break = DataFusionError;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if let Expr::Cast { expr: value, data_type, .. } = expr
            && let Some(name) = parameter(value)
        {
            self.0.entry(name.to_string()).or_insert_with(|| data_type.clone());
        }
        ControlFlow::Continue(())
    }
}

struct Lists<'a> {
    parameters: &'a Parameters,
    filled_in: BTreeSet<String>,
}

impl VisitorMut for Lists<'_> {
    type Break = DataFusionError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if let Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } = expr
            && let Some(name) = parameter(right)
        {
            if let Some(elements) = self.parameters.constants(name) {
                self.filled_in.insert(name.to_string());
                let list = elements.into_iter().map(Expr::value).collect();
                *expr = super::rows::in_list(left, list, false);
            } else if *self.parameters != Parameters::None {
                let (op, list) = (BinaryOperator::Eq, (**right).clone());
                *expr = super::rows::of_list(left, &op, &list).unwrap_or_else(|| expr.clone());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Casts each parameter to the type of its value, and returns the names of these parameters. Without the cast,
/// DataFusion gives a parameter next to an operator the type of the other operand: in `day + ?` it would be a date even
/// if its value is an interval.
pub fn with_types(statement: &mut Statement, parameters: &Parameters) -> Result<BTreeSet<String>> {
    let mut types = Types { types: parameters.types(), given: BTreeSet::new() };
    visit(statement, &mut types)?;
    Ok(types.given)
}

struct Types {
    types: HashMap<String, DataType>,
    given: BTreeSet<String>,
}

impl VisitorMut for Types {
    type Break = DataFusionError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<DataFusionError> {
        if let Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) = expr
            && let Some(data_type) = self.types.get(name)
        {
            self.given.insert(name.clone());
            let data_type = Expr::value(Value::SingleQuotedString(data_type.to_string()));
            *expr = call("arrow_cast", vec![expr.clone(), data_type]);
        }
        ControlFlow::Continue(())
    }
}

struct Arguments<'a> {
    parameters: &'a Parameters,
    filled_in: BTreeSet<String>,
}

impl VisitorMut for Arguments<'_> {
    type Break = DataFusionError;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<DataFusionError> {
        let mut constants = Constants { parameters: self.parameters, filled_in: &mut self.filled_in };
        match table {
            TableFactor::Table { args: Some(arguments), .. } => arguments.args.walk(&mut constants),
            TableFactor::Function { args, .. } => args.walk(&mut constants),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Constants<'a> {
    parameters: &'a Parameters,
    filled_in: &'a mut BTreeSet<String>,
}

impl VisitorMut for Constants<'_> {
    type Break = DataFusionError;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<DataFusionError> {
        if let Value::Placeholder(name) = &value.value
            && let Some(constant) = self.parameters.constant(name)
        {
            self.filled_in.insert(name.clone());
            value.value = constant;
        }
        ControlFlow::Continue(())
    }
}
