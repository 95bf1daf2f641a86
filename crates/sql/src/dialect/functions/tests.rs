//! Checks the table of functions against the engine's functions, and against the documentation page that lists it.

use super::{FUNCTIONS, Means, all, listed};
use datafusion::prelude::SessionContext;
use std::collections::HashSet;

#[test]
fn no_function_hides_one_of_the_engine() {
    let context = SessionContext::new();
    crate::register(&context);
    let state = context.state();
    let is_known = |name: &str| {
        state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
    };
    let both: Vec<&str> = all().map(|f| f.name).filter(|name| is_known(name)).collect();
    assert!(both.is_empty(), "the engine has {both:?}");
    let renamed = all().filter_map(|function| match function.means {
        Means::Same(name) => Some(name),
        Means::Sql(_) | Means::ByUnit(_) => None,
    });
    let unknown: Vec<&str> = renamed.filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "the engine does not have {unknown:?}");
}

#[test]
fn the_page_lists_the_functions() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sql.md")).unwrap();
    let listed = listed();
    assert!(page.contains(&listed), "docs/sql.md does not have:\n{listed}");
    let names: HashSet<&str> = all().map(|function| function.name).collect();
    assert!(names.len() >= 60 && FUNCTIONS.iter().all(|(group, _)| page.contains(group)));
}
