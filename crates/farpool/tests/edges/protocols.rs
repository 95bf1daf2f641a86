//! Protocols are separate modules of the node: each translates bytes to calls of `Caller`, and no other code of the
//! node names them.

use super::source::{has_word, source_files};
use std::path::Path;

/// The protocols, each a folder of `crates/node/src` and a module.
const PROTOCOLS: &[&str] = &["native", "resp"];

/// Returns the lines outside of a protocol's module that name the protocol.
pub fn violations(root: &Path) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for file in source_files(root, "crates/node/src")? {
        wrong.extend(outside_uses(&file.path, file.code()));
    }
    Ok(wrong)
}

fn outside_uses<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let own = path.strip_prefix("crates/node/src/").and_then(|path| path.split(['/', '.']).next());
    let mut wrong = Vec::new();
    for (index, line) in lines.enumerate() {
        let named = PROTOCOLS.iter().filter(|protocol| Some(**protocol) != own);
        for protocol in named.filter(|protocol| has_word(line, &format!("crate::{protocol}"))) {
            let number = index + 1;
            wrong.push(format!("{path}:{number}: {protocol} is a protocol: move what both need out of it"));
        }
    }
    wrong
}

#[test]
fn uses_of_a_protocol_are_reported() {
    let lines = || ["use crate::native::Lane;", "use crate::resp;", "use crate::respite;"].into_iter();
    assert_eq!(outside_uses("crates/node/src/caller.rs", lines()).len(), 2);
    let other = outside_uses("crates/node/src/native/mod.rs", lines());
    assert!(other.len() == 1 && other[0].contains("mod.rs:2: resp is"), "{other:?}");
}
