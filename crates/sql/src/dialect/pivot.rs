//! Rewrites PIVOT and UNPIVOT of a table in FROM, which DataFusion 55.2 does not plan, to queries. PIVOT becomes an
//! aggregate over the rows with each value, grouped by all columns that PIVOT does not name. UNPIVOT becomes lists of
//! columns that are unnested.

use super::walk::Look;
use super::{refusal, sql};
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, Ident, NullInclusion, PivotValueSource, TableAlias, TableFactor, Value,
    ValueWithSpan,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

pub(super) fn apply(table: &mut TableFactor) -> Result<()> {
    let (text, alias) = match table {
        TableFactor::Pivot {
            table,
            aggregate_functions,
            value_column,
            value_source,
            default_on_null,
            alias,
        } => {
            let (PivotValueSource::List(values), [of]) = (value_source, value_column.as_slice()) else {
                return Err(refusal(
                    "PIVOT without a list of values of one column is not done",
                    "list the values",
                ));
            };
            if default_on_null.is_some() {
                return Err(refusal("DEFAULT ON NULL in PIVOT is not done", "use coalesce on its columns"));
            }
            (pivoted(table, aggregate_functions, of, values), alias)
        }
        TableFactor::Unpivot {
            table,
            value: Expr::Identifier(value),
            name,
            columns,
            null_inclusion,
            alias,
        } => {
            let keeps_nulls = matches!(null_inclusion, Some(NullInclusion::IncludeNulls));
            (unpivoted(table, value, name, columns, keeps_nulls)?, alias)
        }
        TableFactor::Unpivot { .. } => {
            return Err(refusal("UNPIVOT into several columns is not done", "join several UNPIVOT"));
        }
        _ => return Ok(()),
    };
    let alias: Option<TableAlias> = alias.take();
    *table = TableFactor::Derived { lateral: false, subquery: sql::query(&text)?, alias, sample: None };
    Ok(())
}

fn pivoted(table: &TableFactor, aggregates: &[ExprWithAlias], of: &Expr, values: &[ExprWithAlias]) -> String {
    let mut named = BTreeSet::new();
    aggregates
        .iter()
        .map(|aggregate| &aggregate.expr)
        .chain([of])
        .for_each(|expr| columns_of(expr, &mut named));
    let mut columns = Vec::new();
    for value in values {
        let name = value.alias.as_ref().map_or_else(|| plain(&value.expr), |alias| alias.value.clone());
        for ExprWithAlias { expr, alias } in aggregates {
            let name = match alias {
                Some(alias) => format!("{name}_{}", alias.value),
                None if aggregates.len() > 1 => format!("{name}_{expr}"),
                None => name.clone(),
            };
            let name = Ident::with_quote('"', name);
            columns.push(format!("{expr} FILTER (WHERE {of} = {}) AS {name}", value.expr));
        }
    }
    let named: Vec<String> = named.into_iter().collect();
    format!("SELECT * EXCLUDE ({}), {} FROM {table} GROUP BY ALL", named.join(", "), columns.join(", "))
}

/// Collects the columns that `expr` refers to, without table qualifiers.
fn columns_of(expr: &Expr, names: &mut BTreeSet<String>) {
    let visited = expr.each_expr(&mut |expr| {
        match expr {
            Expr::Identifier(name) => names.insert(name.to_string()),
            Expr::CompoundIdentifier(path) => path.last().is_some_and(|name| names.insert(name.to_string())),
            _ => false,
        };
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(visited.is_continue(), "the visitor never breaks");
}

fn unpivoted(
    table: &TableFactor,
    value: &Ident,
    name: &Ident,
    columns: &[ExprWithAlias],
    keeps_nulls: bool,
) -> Result<String> {
    let label = |column: &ExprWithAlias| match (&column.alias, &column.expr) {
        (Some(alias), _) => Ok(alias.value.clone()),
        (None, Expr::Identifier(name)) => Ok(name.value.clone()),
        (None, _) => Err(refusal("UNPIVOT of what is no column is not done", "compute it in a subquery")),
    };
    let labels = columns.iter().map(label).collect::<Result<Vec<_>>>()?;
    let labels: Vec<String> = labels.iter().map(|label| format!("'{}'", label.replace('\'', "''"))).collect();
    let columns: Vec<String> = columns.iter().map(|column| column.expr.to_string()).collect();
    let (labels, columns) = (labels.join(", "), columns.join(", "));
    let rows = format!(
        "SELECT * EXCLUDE ({columns}), unnest([{labels}]) AS {name}, unnest([{columns}]) AS {value} FROM {table}"
    );
    Ok(match keeps_nulls {
        true => rows,
        false => format!("SELECT * FROM ({rows}) AS unpivoted WHERE {value} IS NOT NULL"),
    })
}

/// Returns the column name for a pivoted value.
fn plain(expr: &Expr) -> String {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => text.clone(),
        other => other.to_string(),
    }
}
