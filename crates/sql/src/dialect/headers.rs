//! The column names of a result as they were written in the statement. They are kept separately from the names in the
//! plan, because names of expressions in DataFusion 55.2 contain its own types and the names of files
//! (`avg(flights.csv.delay)`, `Int64(1)`) and must be distinct, whereas a result may have several columns of the same
//! name.

use super::postgres_names;
use super::walk::Look;
use arrow_schema::{Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    DescribeAlias, Expr, Function, Ident, ObjectNamePart, Query, Select, SelectItem, SetExpr,
    Statement as SqlStatement, Visit,
};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The column names of a query's result: an entry for each item of SELECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<Header>);

/// The way in which columns get their names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    /// Whether names without quotes are converted to lower case.
    pub lowers: bool,
    /// Whether a column without an alias has the name that PostgreSQL gives it.
    pub is_of_postgres: bool,
}

impl Naming {
    /// Names columns without an alias by their texts.
    pub fn by_text(lowers: bool) -> Self {
        Naming { lowers, is_of_postgres: false }
    }

    fn name(self, expr: &Expr) -> String {
        match self.is_of_postgres {
            true => postgres_names::name(expr, self.lowers),
            false => text(expr, self.lowers),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Header {
    One(String),
    /// A wildcard (`*`): any number of columns, with their names in the plan.
    Many,
}

impl Headers {
    /// Returns the headers of `statement`; no entries if it is not a query or has no list of columns.
    pub(super) fn of(statement: &SqlStatement, naming: Naming) -> Self {
        let query = match statement {
            SqlStatement::Query(query) => query,
            SqlStatement::Explain {
                describe_alias: DescribeAlias::Describe | DescribeAlias::Desc,
                statement,
                ..
            } => return Headers::of(statement, naming),
            _ => return Headers::default(),
        };
        let Some(select) = leftmost(query) else { return Headers::default() };
        let headers: Vec<Header> = select.projection.iter().map(|item| header(item, naming)).collect();
        // UNNEST of a struct yields a column for each field. Next to a wildcard, it is not known how many columns
        // belong to which.
        match headers.contains(&Header::Many) && select.projection.iter().any(unnests) {
            true => Headers::default(),
            false => Headers(headers),
        }
    }

    /// Returns the schema with these headers as column names; the schema itself if there are no headers.
    pub fn over(&self, schema: &SchemaRef) -> SchemaRef {
        let fields = schema.fields();
        let ones = self.0.iter().filter(|header| **header != Header::Many).count();
        let has_wildcards = ones < self.0.len();
        if ones == 0 || ones > fields.len() || (!has_wildcards && ones < fields.len()) {
            return Arc::clone(schema);
        }
        let mut named: Vec<Field> = fields.iter().map(|field| field.as_ref().clone()).collect();
        let name = |field: &mut Field, header: &Header| match header {
            Header::One(name) => {
                field.set_name(name.clone());
                true
            }
            Header::Many => false,
        };
        // Headers are matched from the front up to the first wildcard, and from the back down to the last wildcard;
        // columns in between keep their names.
        let _ = named.iter_mut().zip(&self.0).all(|(field, header)| name(field, header));
        if has_wildcards {
            let _ =
                named.iter_mut().rev().zip(self.0.iter().rev()).all(|(field, header)| name(field, header));
        }
        Arc::new(Schema::new_with_metadata(named, schema.metadata().clone()))
    }
}

/// Returns the SELECT that determines the query's column names: the first one of a UNION, for example. `None` if there
/// is none.
pub(super) fn leftmost(query: &Query) -> Option<&Select> {
    let mut body = &*query.body;
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(query) => body = &query.body,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Values(_)
            | SetExpr::Insert(_)
            | SetExpr::Update(_)
            | SetExpr::Delete(_)
            | SetExpr::Merge(_)
            | SetExpr::Table(_) => return None,
        }
    }
}

fn header(item: &SelectItem, naming: Naming) -> Header {
    match item {
        SelectItem::UnnamedExpr(expr) => Header::One(naming.name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Header::One(normal(alias, naming.lowers)),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            Header::Many
        }
    }
}

/// Returns the result column's name for an expression without an alias: its text, or the name of a column.
pub(super) fn text(expr: &Expr, lowers: bool) -> String {
    match expr {
        Expr::Identifier(name) => normal(name, lowers),
        Expr::CompoundIdentifier(path) => path.last().map_or_else(String::new, |name| normal(name, lowers)),
        Expr::Nested(inner) => text(inner, lowers),
        other => other.to_string(),
    }
}

/// Returns a name in the form in which it is compared: in lower case if it has no quotes and `lowers` is set.
pub(super) fn normal(name: &Ident, lowers: bool) -> String {
    match name.quote_style {
        None if lowers => name.value.to_lowercase(),
        _ => name.value.clone(),
    }
}

fn unnests(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => calls(expr, &["unnest"]),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            false
        }
    }
}

/// Returns whether a function of one of these names is called in `node`.
pub(super) fn calls(node: &impl Visit, names: &[&str]) -> bool {
    node.each_expr(&mut |expr| match expr {
        Expr::Function(function) if names.iter().any(|name| is_called(function, name)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// Returns whether the function is called by the name `wanted`, which is in lower case.
pub(super) fn is_called(function: &Function, wanted: &str) -> bool {
    matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(name)]
        if name.value.eq_ignore_ascii_case(wanted))
}

/// Gives each column of the query its header as an alias, for a query that is stored as a table, a view or a file.
pub(super) fn name_columns(query: &mut Query, naming: Naming) {
    if let Some(select) = leftmost_mut(query) {
        for item in &mut select.projection {
            name_column(item, naming);
        }
    }
}

/// Returns the same SELECT as [`leftmost`], for changing it.
pub(super) fn leftmost_mut(query: &mut Query) -> Option<&mut Select> {
    let mut body = &mut *query.body;
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(query) => body = &mut query.body,
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Values(_)
            | SetExpr::Insert(_)
            | SetExpr::Update(_)
            | SetExpr::Delete(_)
            | SetExpr::Merge(_)
            | SetExpr::Table(_) => return None,
        }
    }
}

fn name_column(item: &mut SelectItem, naming: Naming) {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => {}
        SelectItem::UnnamedExpr(expr) if !calls(expr, &["unnest"]) => {
            let alias = Ident::with_quote('"', naming.name(expr));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
        _ => {}
    }
}
