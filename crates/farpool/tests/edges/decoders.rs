//! Every decoder of bytes must have a fuzz target.

use super::source::{SourceFile, has_word, source_files};
use std::path::Path;

/// The crates that decode bytes from peers and users. Files of tables are decoded by other libraries; files of a data
/// directory are read by name, and are covered by `log_reader`, `segment_reader` and `data_directory`.
const DECODE: &[&str] = &["catalog", "codec", "columns", "files", "model", "postgres", "statistics", "wire"];

/// The files with decoders in crates whose other functions take bytes as values and decode none.
const DECODING_FILES: &[&str] = &[
    "crates/cipher/src/ring.rs",
    "crates/cipher/src/wrapped.rs",
    "crates/kv/src/predicate/mod.rs",
    "crates/kv/src/journal.rs",
    "crates/kv/src/packing/mod.rs",
    "crates/kv/src/resp/parse.rs",
];

/// Public functions that decode bytes (file and name), and the fuzz target in `fuzz/targets` that calls each of them
/// directly or indirectly.
const DECODERS: &[(&str, &str, &str)] = &[
    ("crates/cipher/src/ring.rs", "from_bytes", "key_ring_decoder"),
    ("crates/cipher/src/wrapped.rs", "from_bytes", "key_ring_decoder"),
    ("crates/codec/src/decompress.rs", "decompress", "block_decoder"),
    ("crates/columns/src/bytes.rs", "from_head", "data_directory"),
    ("crates/columns/src/bytes.rs", "from_image", "chunk_decoder"),
    ("crates/columns/src/fsst_text.rs", "from_parts", "parcel_decoder"),
    ("crates/columns/src/outline.rs", "of_head", "chunk_decoder"),
    ("crates/columns/src/outline.rs", "read", "chunk_decoder"),
    ("crates/columns/src/parcel/read.rs", "read", "parcel_decoder"),
    ("crates/columns/src/residence.rs", "absent", "chunk_decoder"),
    ("crates/columns/src/residence.rs", "outlined", "chunk_decoder"),
    ("crates/columns/src/type_code.rs", "type_from_bytes", "data_directory"),
    ("crates/kv/src/predicate/mod.rs", "parse", "predicate_parser"),
    ("crates/kv/src/journal.rs", "apply", "key_records"),
    ("crates/kv/src/packing/mod.rs", "unpack", "packed_values"),
    ("crates/kv/src/resp/parse.rs", "parse", "resp_decoder"),
    ("crates/postgres/src/values/input.rs", "array_of_one", "postgres_messages"),
    ("crates/model/src/key_filter.rs", "from_bytes", "plan_decoder"),
    ("crates/model/src/key_set.rs", "from_bytes", "plan_decoder"),
    ("crates/catalog/src/durable/decode.rs", "decode", "data_directory"),
    ("crates/catalog/src/durable/received.rs", "apply_record", "received_records"),
    ("crates/catalog/src/durable/replay.rs", "apply", "data_directory"),
    ("crates/catalog/src/durable/replay.rs", "begin", "data_directory"),
    ("crates/catalog/src/durable/sources.rs", "chunk", "data_directory"),
    ("crates/statistics/src/datasketches.rs", "from_datasketches", "datasketches_decoder"),
    ("crates/statistics/src/histogram.rs", "from_bytes", "histogram_decoder"),
    ("crates/statistics/src/moments/mod.rs", "from_bytes", "moments_decoder"),
    // Reads the registers of a value in the format of Redis, to which it adds an element.
    ("crates/statistics/src/redis_hll/mod.rs", "add", "hll_decoder"),
    ("crates/statistics/src/sketch/codec.rs", "from_bytes", "sketch_decoder"),
    // Calls the decoders of all states: sketches and moments.
    ("crates/statistics/src/states.rs", "read", "sketch_decoder"),
    ("crates/wire/src/batch/read.rs", "bytes_to_decode", "load_rows"),
    ("crates/wire/src/batch/read.rs", "decode_batch", "native_messages"),
    ("crates/wire/src/batch/schema.rs", "decode_schema", "native_messages"),
    ("crates/wire/src/flight/reader.rs", "open", "flight_messages"),
    ("crates/wire/src/flight/reader.rs", "read", "flight_messages"),
    ("crates/wire/src/flight/ticket.rs", "decode", "flight_messages"),
    ("crates/wire/src/preface.rs", "check_preface", "native_messages"),
    ("crates/wire/src/request.rs", "decode", "native_messages"),
    ("crates/wire/src/response.rs", "decode", "native_messages"),
    ("crates/wire/src/sealed/mod.rs", "read", "sealed_messages"),
    ("crates/wire/src/sealed/open.rs", "check", "sealed_messages"),
    ("crates/wire/src/substrait/decode.rs", "decode_program", "plan_decoder"),
    ("crates/wire/src/substrait/decode.rs", "decode_program_within", "plan_decoder"),
];

/// Decoders without a fuzz target: they read certificate and key files, which the operator names and rustls decodes.
const UNFUZZED: &[(&str, &str)] = &[
    ("crates/wire/src/socket/tls/config.rs", "chain"),
    ("crates/wire/src/socket/tls/config.rs", "key"),
    ("crates/wire/src/socket/tls/config.rs", "trusting"),
];

/// Returns the violations, one line each.
pub fn violations(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for folder in DECODE {
        for file in source_files(root, &format!("crates/{folder}/src"))? {
            found.extend(decoders(&file).into_iter().map(|name| (file.path.clone(), name)));
        }
    }
    for file in source_files(root, "crates")?.iter().filter(|file| DECODING_FILES.contains(&&*file.path)) {
        found.extend(decoders(file).into_iter().map(|name| (file.path.clone(), name)));
    }
    let listed = DECODERS.iter().map(|(file, name, _)| (*file, *name)).chain(UNFUZZED.iter().copied());
    let listed: Vec<(&str, &str)> = listed.collect();
    let is_listed = |(path, name): &&(String, String)| listed.iter().any(|(p, n)| p == path && n == name);
    let unlisted = found.iter().filter(|decoder| !is_listed(decoder));
    let mut wrong: Vec<String> =
        unlisted.map(|(path, name)| format!("{path}: {name} decodes bytes and has no fuzz target")).collect();
    let is_found = |(path, name): &&(&str, &str)| found.iter().any(|(p, n)| p == path && n == name);
    let gone = listed.iter().filter(|decoder| !is_found(decoder));
    wrong.extend(gone.map(|(path, name)| format!("{path} has no decoder {name}, which is listed")));
    wrong.extend(target_violations(root)?);
    Ok(wrong)
}

/// Returns the public functions of a file that take bytes and may fail.
fn decoders(file: &SourceFile) -> Vec<String> {
    let code = file.code_without_tests().collect::<Vec<_>>().join(" ");
    let functions = code.split("pub fn ").skip(1).filter_map(|after| {
        let (signature, _) = after.split_once('{')?;
        let (arguments, result) = signature.rsplit_once("-> ")?;
        // A parameter with bytes that are decoded in place is named `buffer`; other mutable bytes are output.
        let takes_bytes = ["&[u8]", "buffer: &mut [u8]", "&Bytes", "&Message"]
            .iter()
            .any(|bytes| arguments.contains(bytes));
        let may_fail = result.starts_with("Result<");
        let name = arguments.split(['(', '<']).next()?;
        (takes_bytes && may_fail).then(|| name.to_string())
    });
    functions.collect()
}

/// Returns targets that are listed but do not exist, and targets that do not run as a test.
fn target_violations(root: &Path) -> Result<Vec<String>, String> {
    let read = |path: &str| {
        let file = root.join(path);
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let (manifest, tests) = (read("fuzz/targets/Cargo.toml")?, read("fuzz/src/tests.rs")?);
    let targets = source_files(root, "fuzz/targets")?;
    let stem = |file: &SourceFile| {
        Path::new(&file.path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
    };
    let targets: Vec<String> = targets.iter().map(stem).collect();
    let mut wrong: Vec<String> = DECODERS
        .iter()
        .filter(|(_, _, target)| !targets.iter().any(|there| there == target))
        .map(|(_, name, target)| format!("{name} is fuzzed by {target}, which is not in fuzz/targets"))
        .collect();
    for target in &targets {
        let is_run = tests.lines().any(|line| line.contains("run") && has_word(line, target));
        if !manifest.contains(&format!("name = \"{target}\"")) || !is_run {
            wrong.push(format!("the fuzz target {target} is not in its manifest, or is not run as a test"));
        }
    }
    Ok(wrong)
}
