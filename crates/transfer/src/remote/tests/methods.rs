//! Tests that the client methods which the table of messages (`verbs.rs` of the wire crate) names exist, and that the
//! clients have no others.

use farpool_wire::FrameKind;
use std::collections::BTreeSet;

const POOL: &str = include_str!("../../pool.rs");
const REMOTE: [&str; 4] = [
    include_str!("../mod.rs"),
    include_str!("../load.rs"),
    include_str!("../chunks.rs"),
    include_str!("../backup.rs"),
];

/// Returns the names of the methods of the type `client` that the table of messages contains.
fn named(client: &str) -> BTreeSet<&'static str> {
    let methods = FrameKind::ALL.iter().filter_map(|kind| kind.verb()).flat_map(|verb| verb.clients);
    methods.filter_map(|method| method.strip_prefix(client)?.strip_prefix("::")).collect()
}

/// Returns the names of the asynchronous functions in the text of a source file.
fn methods(source: &str) -> BTreeSet<&str> {
    let names = source.split("async fn ").skip(1);
    names.map(|rest| rest.split(['(', '<']).next().unwrap_or_default()).collect()
}

#[test]
fn the_methods_of_a_pool_are_those_of_the_table() {
    let mut of_pool = methods(POOL);
    assert!(of_pool.remove("tables"), "it lists tables by another method");
    assert_eq!(of_pool, named("Pool"));
}

#[test]
fn a_remote_pool_has_every_method_of_the_table() {
    let there: BTreeSet<&str> = REMOTE.into_iter().flat_map(methods).collect();
    for client in ["Pool", "RemotePool", "RemoteBackup"] {
        let missing: Vec<&str> = named(client).difference(&there).copied().collect();
        assert!(missing.is_empty(), "{client}: {missing:?}");
    }
}
