//! Limits on external input must be defined in one module.

use super::source::{has_word, source_files};
use std::path::Path;

/// The folder of the module that defines all limits.
const HOME: &str = "crates/model/src/limits/";

/// The path of this file, in which the constant [`NO_LIMITS`] is not itself a violation.
const HERE: &str = "crates/farpool/tests/edges/limits.rs";

/// Crates that process input from peers, files and users, whose limits must be in [`HOME`]. Maxima in other crates only
/// tune algorithms.
const OUTER: &[&str] = &[
    "catalog",
    "cipher",
    "datafusion",
    "disk",
    "farpool",
    "files",
    "keystore",
    "kv",
    "memory",
    "model",
    "node",
    "sql",
    "transfer",
    "wire",
];

/// Constants of these crates (crate, name, purpose) that are named like a maximum but are not limits on input.
const NO_LIMITS: &[(&str, &str, &str)] = &[
    ("crates/datafusion/src/dynamic/keys.rs", "KEYS_MAX", "decides whether keys of a join are worth sending"),
    (
        "crates/datafusion/src/dynamic/keys.rs",
        "KEY_BYTES_MAX",
        "decides whether keys of a join are worth sending",
    ),
    (
        "crates/datafusion/src/lookup.rs",
        "LOOKED_UP_AGAIN_MAX",
        "decides which joins are worth carrying out twice",
    ),
    ("crates/sql/src/names.rs", "NAMES_SHOWN_MAX", "the length of a message"),
    ("crates/farpool/src/report/html/heat.rs", "VALUES_MAX", "the look of a page"),
    ("crates/node/src/resp/slow.rs", "TOKEN_BYTES_MAX", "which arguments are looked at for tokens"),
    ("crates/farpool/src/cloud/reading.rs", "REQUESTS_MAX", "how many requests a client sends at a time"),
    ("crates/farpool/src/cloud/writing.rs", "PARTS_MAX", "how many parts a client sends at a time"),
    ("crates/farpool/src/ordered.rs", "THREADS_MAX", "how many threads parse a file"),
    ("crates/files/src/csv/cut.rs", "PIECE_BYTES_MAX", "when a file is read by one thread"),
    ("crates/files/src/lanes.rs", "PIECE_BYTES_MAX", "how many bytes a request asks for"),
    ("crates/files/src/remote.rs", "BLOCK_BYTES_MAX", "how many bytes a request asks for"),
    ("crates/catalog/src/load.rs", "WORKERS_DEFAULT_MAX", "how many threads encode"),
    ("crates/catalog/src/load.rs", "SEGMENTS_WAITING_MAX", "how far encoding is ahead of the disk"),
    ("crates/catalog/src/load.rs", "UNWRITTEN_MAX", "how far encoding is ahead of the disk"),
    ("crates/catalog/src/durable/decode.rs", "VERSION_MAX", "where counting on would overflow"),
    ("crates/catalog/src/suggestions.rs", "NAMES_MAX", "the length of a message"),
    ("crates/transfer/src/remote/connection.rs", "STREAMS_MAX", "when a client opens another connection"),
    ("crates/cipher/src/hpke.rs", "INFO_BYTES_MAX", "what we write ourselves fits locked memory"),
    ("crates/wire/src/batch/compact.rs", "INLINE_BYTES_MAX", "a number of Arrow's format"),
    ("crates/wire/src/lib.rs", "VERSION_MAX", "a number of the protocol"),
    ("crates/wire/src/message.rs", "COPIED_BYTES_MAX", "whether bytes are copied"),
    ("crates/wire/src/response.rs", "ERROR_CHARS_MAX", "what we send of an error fits one frame"),
    ("crates/wire/src/table.rs", "BOUND_BYTES_MAX", "which bounds of columns we send"),
];

/// Returns the violations, one line each.
pub fn violations(root: &Path) -> Result<Vec<String>, String> {
    let (mut wrong, mut found) = (Vec::new(), Vec::new());
    for folder in OUTER {
        for file in source_files(root, &format!("crates/{folder}/src"))? {
            let names = file.code_without_tests().filter_map(maximum).map(str::to_string);
            found
                .extend(names.filter(|_| !file.path.starts_with(HOME)).map(|name| (file.path.clone(), name)));
        }
    }
    for (path, name) in &found {
        if !NO_LIMITS.iter().any(|(file, no_limit, _)| file == path && no_limit == name) {
            wrong.push(format!(
                "{path} defines {name}: limits stand in {HOME}, what is none is listed in {HERE}"
            ));
        }
    }
    for (file, name, _) in NO_LIMITS {
        if !found.iter().any(|(path, constant)| file == path && name == constant) {
            wrong.push(format!("{file} does not define {name}, which is listed as no limit"));
        }
    }
    Ok(wrong)
}

/// Returns the name of the constant that a line defines, if it is named as a maximum.
fn maximum(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("const ")?;
    let (name, _) = after.split_once(':')?;
    let is_item = before.split_whitespace().all(|word| word.starts_with("pub"));
    (is_item && has_word(&name.replace('_', " "), "MAX")).then_some(name)
}
