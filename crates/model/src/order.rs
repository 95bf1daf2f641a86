//! The sort order of programs that return only the first rows (ORDER BY with LIMIT).
//!
//! Semantics: those of Arrow's sort kernels, which DataFusion's sorts use, too. Strings and binaries compare by their
//! bytes, false comes before true, and floats are in the total order of IEEE 754 (so that -0.0 comes before 0.0, and a
//! NaN without sign after everything). Of rows that are equal in all sort keys, any may be left out.

use crate::{Error, Result, limits};
use std::cmp::Ordering;

/// One sort key: a result column, its direction, and where NULLs come. Earlier keys take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SortKey {
    /// The index of the column in the program's *result*.
    pub column: usize,
    /// Whether the greatest value comes first.
    pub descending: bool,
    /// Whether NULLs come before all values, or after them; `descending` does not reverse this.
    pub nulls_first: bool,
}

impl SortKey {
    /// Compares two values of the column in the order of this sort key. `is_null` says for each whether it is NULL;
    /// `values` compares the values in ascending order, and is called only if neither is NULL.
    pub fn compare(&self, is_null: (bool, bool), values: impl FnOnce() -> Ordering) -> Ordering {
        let nulls = if self.nulls_first { Ordering::Less } else { Ordering::Greater };
        match is_null {
            (true, true) => Ordering::Equal,
            (true, false) => nulls,
            (false, true) => nulls.reverse(),
            (false, false) if self.descending => values().reverse(),
            (false, false) => values(),
        }
    }

    /// Returns the sort key as written in SQL, for a column of this name.
    pub fn display(&self, name: &str) -> String {
        let direction = if self.descending { " DESC" } else { "" };
        let nulls = match (self.nulls_first, self.descending) {
            // The default placement of NULLs in DataFusion and PostgreSQL, which need not be written.
            (false, false) | (true, true) => "",
            (true, false) => " NULLS FIRST",
            (false, true) => " NULLS LAST",
        };
        format!("{name}{direction}{nulls}")
    }
}

/// Checks the sort order of a program with this limit and a result of `width` columns.
pub(crate) fn check(order: &[SortKey], limit: Option<u64>, width: usize) -> Result<()> {
    if order.is_empty() {
        return Ok(());
    }
    if limit.is_none() {
        return Err(Error::invalid("a program that sorts needs a limit: the node keeps the first rows only"));
    }
    match order.iter().find(|key| key.column >= width) {
        Some(key) => {
            Err(Error::invalid(format!("the order names column {} of a result that has {width}", key.column)))
        }
        None if order.len() > limits::SORT_KEYS_MAX => {
            Err(Error::over_limit(format!("an order may have {} keys", limits::SORT_KEYS_MAX)))
        }
        None => Ok(()),
    }
}
