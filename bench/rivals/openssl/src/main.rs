//! OpenSSL as a rival of the suite `iopath`, by the protocol that `bench/rivals/driver.py` describes: one JSON request a
//! line in, one answer a line out. Beside `start`, it knows `digest`, which encrypts and decrypts data that are known to
//! both sides, and `time`.

#[path = "../../../src/iopath/rounds.rs"]
mod rounds;

mod evp;

use evp::Evp;
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

fn answer(request: &Value) -> Result<Value, String> {
    let text = |name: &str| request[name].as_str().ok_or(format!("there is no {name}"));
    let number = |name: &str| {
        request[name].as_u64().map(|number| number as usize).ok_or(format!("there is no {name}"))
    };
    match text("do")? {
        "start" => Ok(json!({ "version": evp::version() })),
        "digest" => {
            let mut cipher = Evp::new(text("mode")?, number("bits")?)?;
            let digest = rounds::exchange(&mut cipher, number("bytes")?);
            let digest = digest.ok_or("what was encrypted is not decrypted")?;
            Ok(json!({ "digest": format!("{digest:016x}") }))
        }
        "time" => {
            let (mode, bits) = (text("mode")?, number("bits")?);
            Evp::new(mode, bits)?;
            let timed = if request["encrypts"] == true { Timed::Encryption } else { Timed::Decryption };
            let sizes = (number("bytes")?, number("repeats")?, number("threads")?);
            let make = || Evp::new(mode, bits).expect("one was made before");
            Ok(json!({ "ns": rounds::time(make, timed, sizes) }))
        }
        other => Err(format!("{other:?} is not known")),
    }
}
