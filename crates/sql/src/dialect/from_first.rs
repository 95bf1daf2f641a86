//! Rewrites `FROM t` without SELECT to `SELECT * FROM t`. DataFusion 55.2 plans it as a query without columns.

use datafusion::sql::sqlparser::ast::{Select, SelectFlavor, SelectItem, WildcardAdditionalOptions};

pub(super) fn apply(select: &mut Select) {
    if select.flavor == SelectFlavor::FromFirstNoSelect {
        select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        select.flavor = SelectFlavor::Standard;
    }
}
