//! `FROM t` alone is `SELECT * FROM t`. DataFusion reads it as a query of no columns.

use datafusion::sql::sqlparser::ast::{Select, SelectFlavor, SelectItem, WildcardAdditionalOptions};

pub(super) fn apply(select: &mut Select) {
    if select.flavor == SelectFlavor::FromFirstNoSelect {
        select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        select.flavor = SelectFlavor::Standard;
    }
}
