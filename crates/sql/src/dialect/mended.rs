//! Applies the rules that need to know which names are columns. Each recognizes an error of the planner and rewrites
//! the statement, which is then planned again.

use super::{aliases, distinct_names, merged_keys, outer_names, outermost, repeated, visit};
use crate::error;
use crate::using::Found;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;

/// The rules that have been applied to a statement after its planning failed. Those about equal column names are
/// applied at most once.
#[derive(Default)]
pub(super) struct Mended {
    wildcard: bool,
    columns: bool,
    pub casts: bool,
    subqueries: bool,
    /// The error of the first planning, before any rule was applied.
    first: Option<DataFusionError>,
}

impl Mended {
    /// Tries to rewrite a statement whose planning failed with `error`. Returns whether anything was rewritten, so that
    /// planning again may succeed.
    pub(super) fn mend(
        &mut self,
        state: &SessionState,
        statement: &mut Statement,
        error: &DataFusionError,
    ) -> Result<bool> {
        let lowers = state.config_options().sql_parser.enable_ident_normalization;
        if let Some(found) = Found::of(error) {
            merged_keys::rewrite(statement, found, lowers)?;
            return Ok(true);
        }
        if let Some(missing) = aliases::Missing::of(error) {
            let mut reuse = aliases::Reuse { missing, state, lowers, done: false };
            visit(statement, &mut reuse)?;
            if reuse.done {
                return Ok(true);
            }
        }
        if !self.subqueries && distinct_names::of_subqueries(statement, error, lowers)? {
            self.subqueries = true;
            return Ok(true);
        }
        if outer_names::is_cause(error) {
            let mut rename = outer_names::Rename::default();
            visit(statement, &mut rename)?;
            return Ok(rename.done);
        }
        if !error::is_of_equal_names(error) {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.wildcard, true)
            && let Some(query) = outermost(statement)
            && repeated::beside_wildcard(query, lowers)
        {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.columns, true) {
            distinct_names::of_columns(statement, lowers)?;
            return Ok(true);
        }
        if !std::mem::replace(&mut self.casts, true) {
            distinct_names::of_casts(statement)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns the error to report. If `error` is of the same kind as the first one, returns the first one, because it
    /// refers to the statement as written.
    pub(super) fn told(self, error: DataFusionError) -> DataFusionError {
        match self.first {
            Some(first) if error::is_of_equal_names(&first) && error::is_of_equal_names(&error) => first,
            _ => error,
        }
    }

    /// Keeps the first error that a rule has handled.
    pub(super) fn keep(&mut self, error: DataFusionError) {
        if Found::of(&error).is_none() {
            self.first.get_or_insert(error);
        }
    }
}
