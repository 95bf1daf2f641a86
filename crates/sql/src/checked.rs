//! Checked arithmetic in the engine: a result that does not fit its type is an error. In DataFusion 55.2, operators on
//! integers wrap around, and operators on decimals do not check the number of digits; there is no setting for either.
//! This module is obsolete once upstream has checked operators.
//!
//! Invariant: in an analyzed plan, every `+ - * / %` and every sign on integers or decimals is a call of
//! `CheckedFunction`, unless its types and constants prove that it cannot fail. The rule runs after type coercion,
//! which determines the types of operations, and before constants are folded. Columns keep their names.

mod branches;
mod conditions;
mod function;
mod guard;
mod projections;

pub use branches::given_back;
pub use conditions::GuardedFilters;
pub use function::{Operation, operation};
pub use guard::guarded;
pub use projections::FiltersFirst;

use crate::literal;
use arrow_schema::{DataType, Field, Schema};
use branches::kept;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr as Logical, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;
use farpool_model::{ArithmeticOp, Expr, Facts, schema};
use function::{operation_of, type_of};

/// Maximum depth to which operands are examined for bounds of their values. Reason: constants and narrow columns are
/// usually direct operands. Deeper operands are bounded by their types, so that the cost of a long chain of operators
/// stays proportional to its length.
const LEVELS: usize = 8;

/// The analyzer rule that replaces arithmetic by checked calls.
#[derive(Debug)]
pub struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &'static str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(checked_plan).map(|plan| plan.data)
    }
}

fn checked_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !computes(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let input = columns_below(&plan)?;
    // The name of a column of an aggregate or window function also depends on the function's condition (FILTER) and
    // sort order.
    let names = NamePreserver::new(&plan);
    let checked = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let checked =
            expr.transform_up(|expr| checked(expr, &input)?.transform_data(|expr| kept(expr, &input)))?;
        Ok(checked.update_data(|expr| name.restore(expr)))
    })?;
    match checked.transformed {
        true => checked.map_data(LogicalPlan::recompute_schema),
        false => Ok(checked),
    }
}

/// Returns the columns that expressions of a plan node can refer to: those of its inputs; for a scan, those of its
/// table.
pub fn columns_below(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut columns = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let table = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        columns.merge(&table);
    }
    Ok(columns)
}

/// Returns whether an expression of this plan node (not of its inputs) has something that the rule may rewrite:
/// arithmetic or a sign, or a CASE or `coalesce`, whose branches it guards.
fn computes(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| {
            Ok(match expr {
                Logical::BinaryExpr(binary) => arithmetic_op(binary.op).is_some(),
                Logical::Negative(_) | Logical::Case(_) => true,
                Logical::ScalarFunction(call) => call.func.name() == "coalesce",
                _ => false,
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Replaces `expr` by a checked call if it may overflow or otherwise fail. Its operands have been replaced already.
fn checked(expr: Logical, input: &DFSchema) -> Result<Transformed<Logical>> {
    let (operation, operands) = match &expr {
        Logical::BinaryExpr(binary) => match arithmetic_op(binary.op) {
            Some(op) => (Operation::Binary(op), vec![&*binary.left, &*binary.right]),
            None => return Ok(Transformed::no(expr)),
        },
        Logical::Negative(inner) => (Operation::Negative, vec![&**inner]),
        _ => return Ok(Transformed::no(expr)),
    };
    // An operation with the constant NULL is NULL, which the engine's simplifier handles.
    if operands.iter().any(|operand| is_null(operand)) {
        return Ok(Transformed::no(expr));
    }
    let types = operands.iter().map(|operand| type_of(operand, input)).collect::<Result<Vec<_>>>()?;
    if !(types.iter().all(DataType::is_integer) || types.iter().all(DataType::is_decimal)) {
        return Ok(Transformed::no(expr));
    }
    let facts = operands.iter().map(|operand| facts(operand, input, LEVELS)).collect::<Option<Vec<_>>>();
    if facts.is_some_and(|facts| !may_fail(operation, &facts)) {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(match expr {
        Logical::BinaryExpr(BinaryExpr { left, right, .. }) => operation.call(vec![*left, *right], &types)?,
        Logical::Negative(inner) => operation.call(vec![*inner], &types)?,
        other => other,
    }))
}

fn is_null(expr: &Logical) -> bool {
    match expr {
        Logical::Literal(scalar, _) => scalar.is_null(),
        Logical::Cast(cast) => is_null(&cast.expr),
        Logical::Alias(alias) => is_null(&alias.expr),
        _ => false,
    }
}

/// Returns whether an operation may fail on operands with these known properties.
fn may_fail(operation: Operation, operands: &[Facts]) -> bool {
    let operands: Vec<&Facts> = operands.iter().collect();
    Facts::node_may_fail(&node(operation), &Schema::empty(), &operands).unwrap_or(true)
}

/// Returns an expression of the operation's kind. Its operands are placeholders, because what is known of them is
/// passed separately.
fn node(operation: Operation) -> Expr {
    let operand = || Expr::Column(0);
    match operation {
        Operation::Binary(op) => Expr::arithmetic(op, operand(), operand()),
        Operation::Negative => Expr::Negate(Box::new(operand())),
    }
}

/// Returns what is known about the values of `expr` (such as bounds); `None` if the model does not have its type.
fn facts(expr: &Logical, input: &DFSchema, levels: usize) -> Option<Facts> {
    let data_type = type_of(expr, input).ok()?;
    if schema::canonical_type(&data_type).as_ref() != Some(&data_type) {
        return None;
    }
    let of_type = || {
        let column = Schema::new(vec![Field::new("", data_type.clone(), true)]);
        Facts::of(&Expr::Column(0), &column).ok()
    };
    let Some(levels) = levels.checked_sub(1) else { return of_type() };
    let of_node = |node: Expr, operands: &[&Logical]| {
        let operands = operands.iter().map(|e| facts(e, input, levels)).collect::<Option<Vec<Facts>>>()?;
        Facts::of_node(&node, &Schema::empty(), &operands.iter().collect::<Vec<_>>()).ok()
    };
    let known = match expr {
        Logical::Alias(alias) => facts(&alias.expr, input, levels),
        Logical::Literal(scalar, _) => {
            literal::from_scalar(scalar).and_then(|l| Facts::of(&Expr::Literal(l), &Schema::empty()).ok())
        }
        Logical::Cast(cast) => {
            of_node(Expr::Cast(Box::new(Expr::Column(0)), data_type.clone()), &[&cast.expr])
        }
        Logical::BinaryExpr(binary) => arithmetic_op(binary.op)
            .and_then(|op| of_node(node(Operation::Binary(op)), &[&binary.left, &binary.right])),
        Logical::Negative(inner) => of_node(node(Operation::Negative), &[inner]),
        Logical::ScalarFunction(call) => operation(call)
            .and_then(|operation| of_node(node(operation), &call.args.iter().collect::<Vec<_>>())),
        _ => None,
    };
    known.filter(|facts| facts.data_type == data_type).or_else(of_type)
}

/// Returns the arithmetic operator of the model that corresponds to `op`; `None` if `op` is no arithmetic operator.
pub fn arithmetic_op(op: Operator) -> Option<ArithmeticOp> {
    Some(match op {
        Operator::Plus => ArithmeticOp::Add,
        Operator::Minus => ArithmeticOp::Subtract,
        Operator::Multiply => ArithmeticOp::Multiply,
        Operator::Divide => ArithmeticOp::Divide,
        Operator::Modulo => ArithmeticOp::Modulo,
        _ => return None,
    })
}
