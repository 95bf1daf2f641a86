//! Cipher and DEFLATE libraries as rivals of the suite `iopath`, with the protocol of `bench/rivals/driver.py`: one
//! JSON request per input line, one answer per output line. In addition to `start` it has `digest`, which encrypts and
//! decrypts data known to both sides, and `time`; for DEFLATE `pack` and `unpack`, which exchange blocks as files, and
//! `time_packing`.

#[path = "../../../src/iopath/packing.rs"]
mod packing;
#[path = "../../../src/iopath/rounds.rs"]
mod rounds;

mod deflate;
mod evp;

use deflate::{Libdeflate, Zlib, ZlibNg};
use evp::Evp;
use packing::{Packs, Stored};
use rounds::Timed;
use serde_json::{Value, json};
use std::io::{BufRead, Write};

fn main() {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let Ok(line) = line else { return };
        let answer = serde_json::from_str(&line).map_err(|error| error.to_string()).and_then(|it| answer(&it));
        let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

fn text<'a>(request: &'a Value, name: &str) -> Result<&'a str, String> {
    request[name].as_str().ok_or(format!("there is no {name}"))
}

fn number(request: &Value, name: &str) -> Result<usize, String> {
    request[name].as_u64().map(|number| number as usize).ok_or(format!("there is no {name}"))
}

fn answer(request: &Value) -> Result<Value, String> {
    let (text, number) = (|name: &str| text(request, name), |name: &str| number(request, name));
    let timed = if request["encrypts"] == true { Timed::Encryption } else { Timed::Decryption };
    match text("do")? {
        "start" => {
            let zlibs = format!("zlib {}, zlib-ng {}", Zlib::version(), ZlibNg::version());
            Ok(json!({ "version": format!("{}, {zlibs}, libdeflate {LIBDEFLATE}", evp::version()) }))
        }
        "digest" => {
            let mut cipher = Evp::new(text("mode")?, number("bits")?)?;
            let digest = rounds::exchange(&mut cipher, number("bytes")?);
            let digest = digest.ok_or("what was encrypted is not decrypted")?;
            Ok(json!({ "digest": format!("{digest:016x}") }))
        }
        "time" => {
            let (mode, bits) = (text("mode")?, number("bits")?);
            Evp::new(mode, bits)?;
            let sizes = (number("bytes")?, number("repeats")?, number("threads")?);
            let make = || Evp::new(mode, bits).expect("one was made before");
            Ok(json!({ "ns": rounds::time(make, timed, sizes) }))
        }
        "pack" | "unpack" | "time_packing" => {
            let level = number("level")? as i32;
            match text("library")? {
                "zlib" => with(|| Zlib::new(level), timed, request),
                "zlib-ng" => with(|| ZlibNg::new(level), timed, request),
                "libdeflate" => with(|| Libdeflate::new(level), timed, request),
                other => Err(format!("{other:?} is not known")),
            }
        }
        other => Err(format!("{other:?} is not known")),
    }
}

/// The version that `Cargo.toml` pins: the library does not report it.
const LIBDEFLATE: &str = "1.26";

/// Carries out a request with a library, on the file that the request names.
fn with<P: Packs>(
    make: impl Fn() -> Result<P, String> + Sync,
    timed: Timed,
    request: &Value,
) -> Result<Value, String> {
    let failed = |error: std::io::Error| error.to_string();
    let (mut packs, data) = (make()?, std::fs::read(text(request, "file")?).map_err(failed)?);
    let block_bytes = number(request, "block_bytes")?;
    match text(request, "do")? {
        "pack" => {
            let mut stored = Stored::new(data.len(), block_bytes);
            stored.pack(&mut packs, &data);
            std::fs::write(text(request, "to")?, stored.to_file()).map_err(failed)?;
            Ok(json!({ "bytes": stored.bytes() }))
        }
        "unpack" => {
            let mut stored = Stored::from_file(&data, block_bytes).ok_or("these are not blocks")?;
            let mut plain = vec![0; number(request, "bytes")?];
            stored.unpack(&mut packs, &mut plain);
            Ok(json!({ "digest": format!("{:016x}", rounds::digest(&plain, None)) }))
        }
        _ => {
            let sizes = (number(request, "bytes")?, number(request, "repeats")?, number(request, "threads")?);
            let make = || make().expect("one was made before");
            Ok(json!({ "ns": packing::time(make, timed, &data, sizes, block_bytes) }))
        }
    }
}
