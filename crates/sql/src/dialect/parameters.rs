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
use datafusion::sql::sqlparser::ast::{Expr, TableFactor, Value, ValueWithSpan, VisitorMut};
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
