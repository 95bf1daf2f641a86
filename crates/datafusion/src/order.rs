//! Converts a sort with a limit (ORDER BY … LIMIT) above a plan fragment that a program can express to the sort order
//! of that program.
//!
//! The sort itself stays above the program, and sorts the few rows that the program returns. If there are projections
//! between the two, the sort keys are rewritten through them.
//!
//! Invariant: for every row that the sort would keep, the program returns this row or one that ties with it.

use crate::fragment::{Ends, Fragment};
use arrow_schema::Field;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, TableReference};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{self as logical, Expr as Logical, LogicalPlan};
use farpool_model::{SortKey, cast};
use std::sync::Arc;

/// A plan fragment with a sort order and a limit, which a program can express.
pub(crate) struct SortedPiece<'a> {
    pub fragment: Fragment,
    /// The plan of the fragment, below the sort and any projections.
    pub base: &'a LogicalPlan,
    /// Number of plan nodes from the sort down to `base`: the sort and any projections.
    pub depth: usize,
    /// The columns of the program: those of the fragment, then columns that are used only for sorting.
    pub schema: DFSchemaRef,
}

impl<'a> SortedPiece<'a> {
    /// Returns the fragment below `sort`, with the sort's order and limit.
    pub(crate) fn read(sort: &'a logical::Sort) -> Result<Self, Ends> {
        let fetch = cast::u64_from(sort.fetch.ok_or(Ends::Silently)?);
        let mut exprs: Vec<Logical> = sort.expr.iter().map(|key| key.expr.clone()).collect();
        let (mut base, mut depth) = (&*sort.input, 1);
        let mut fragment = loop {
            match (Fragment::read(base), base) {
                (Ok(fragment), _) => break fragment,
                (Err(_), LogicalPlan::Projection(projection)) => {
                    let below = |place: usize| Some(projection.expr[place].clone().unalias());
                    exprs = through(exprs, &projection.schema, below).ok_or(Ends::Silently)?;
                    base = &projection.input;
                }
                (Err(_), LogicalPlan::SubqueryAlias(alias)) => {
                    let inner = alias.input.schema();
                    let below =
                        |place: usize| Some(Logical::Column(Column::from(inner.qualified_field(place))));
                    exprs = through(exprs, &alias.schema, below).ok_or(Ends::Silently)?;
                    base = &alias.input;
                }
                (Err(ends), _) => return Err(ends),
            }
            depth += 1;
        };
        let places = fragment.sort_columns(&exprs, base.schema())?;
        let key = |(key, column): (&logical::SortExpr, usize)| SortKey {
            column,
            descending: !key.asc,
            nulls_first: key.nulls_first,
        };
        fragment.order(sort.expr.iter().zip(places).map(key).collect(), fetch)?;
        let schema = extended(base.schema(), &fragment).map_err(|_| Ends::Silently)?;
        Ok(SortedPiece { fragment, base, depth, schema })
    }

    /// Returns the plan of the sort and the projections, with the fragment replaced by `pushed`, the node of the
    /// program.
    pub(crate) fn rebuilt(&self, sort: LogicalPlan, pushed: LogicalPlan) -> DataFusionResult<LogicalPlan> {
        let wanted = self.base.schema();
        let base = if pushed.schema().fields().len() > wanted.fields().len() {
            let columns = wanted.columns().into_iter().map(Logical::Column).collect();
            LogicalPlan::Projection(logical::Projection::try_new(columns, Arc::new(pushed))?)
        } else {
            pushed
        };
        replaced(sort, self.depth, &base)
    }
}

/// Rewrites expressions over the output of a node to expressions over its input; `below` returns the expression over
/// the input for each column of the output.
pub(crate) fn through(
    exprs: Vec<Logical>,
    schema: &DFSchema,
    below: impl Fn(usize) -> Option<Logical>,
) -> Option<Vec<Logical>> {
    let of_column = |expr: Logical| {
        let found = match &expr {
            Logical::Column(column) => schema.maybe_index_of_column(column).and_then(&below),
            _ => None,
        };
        Ok(found.map_or_else(|| Transformed::no(expr), Transformed::yes))
    };
    exprs.into_iter().map(|expr| Some(expr.transform_up(of_column).ok()?.data)).collect()
}

/// Returns `schema` with the columns appended that are used only for sorting.
fn extended(schema: &DFSchemaRef, fragment: &Fragment) -> DataFusionResult<DFSchemaRef> {
    let added = fragment.types_from(schema.fields().len());
    if added.is_empty() {
        return Ok(Arc::clone(schema));
    }
    let mut fields: Vec<(Option<TableReference>, Arc<Field>)> =
        schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field))).collect();
    let of_type = |(i, data_type)| (None, Arc::new(Field::new(format!("sorted by {i}"), data_type, true)));
    fields.extend(added.into_iter().enumerate().map(of_type));
    Ok(Arc::new(DFSchema::new_with_metadata(fields, schema.metadata().clone())?))
}

fn replaced(plan: LogicalPlan, depth: usize, with: &LogicalPlan) -> DataFusionResult<LogicalPlan> {
    if depth == 0 {
        return Ok(with.clone());
    }
    let inner = |child: LogicalPlan| Ok(Transformed::yes(replaced(child, depth - 1, with)?));
    Ok(plan.map_children(inner)?.data)
}
