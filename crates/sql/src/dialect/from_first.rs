//! Rewrites `FROM t` alone to `SELECT * FROM t`. DataFusion reads it as a query without columns.

use datafusion::sql::sqlparser::ast::{Select, SelectFlavor, SelectItem, WildcardAdditionalOptions};

pub(super) fn apply(select: &mut Select) {
    if select.flavor == SelectFlavor::FromFirstNoSelect {
        select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        select.flavor = SelectFlavor::Standard;
    }
}
