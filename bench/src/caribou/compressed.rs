//! SQL scans of compressed values for a substring, compared with the codec alone: decompressing the same values,
//! without a node or a search.

use super::client::Client;
use super::definition::Definition;
use super::protocol::command;
use super::results::CompressedResult;
use super::scans::{CLASSES, Sql, THREADS, gb_s, median_ms, rows_of};
use super::server::Server;
use crate::random::Random;
use crate::{text, threads};
use anyhow::{Context, Result, bail};
use farpool_kv::{Compression, Packer};
use std::time::{Duration, Instant};

/// Number of values that are set before the dictionary is awaited. Reason: the node builds the compression dictionary
/// of a keyspace from a sample of its values, and these are more than enough for it.
const FIRST: u64 = 1000;

/// Number of commands that are sent before their replies are read.
const COMMANDS: u64 = 512;

/// Time limit for the node to build a dictionary.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the value with a number: a web session with a shopping cart in JSON, cut to `bytes` bytes, with the mark of
/// its class (`@07@`).
fn value(number: u64, bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["blue", "small", "cotton", "shirt", "steel", "bottle", "large", "lamp"];
    let mut random = Random(number + 1);
    let class = number % CLASSES;
    let mut text = format!("{{\"session\":\"{:016x}\",\"class\":\"@{class:02}@\",\"cart\":[", random.next());
    while text.len() < bytes {
        let [first, second] = [random.next(), random.next()].map(|at| WORDS[(at % 8) as usize]);
        let (sku, price) = (random.next() % 1_000_000, random.next() % 20_000);
        text += &format!("{{\"sku\":\"{sku:06}\",\"title\":\"{first} {second}\",\"price_cents\":{price}}},");
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// Measures scans of values of each size with each codec.
pub fn measure(definition: &Definition, server: &Server, sql: &Sql) -> Result<Vec<CompressedResult>> {
    let mut results = Vec::new();
    for value_bytes in &definition.compressed.value_bytes {
        for codec in &definition.compressed.codecs {
            text::progress(&format!("scans of {value_bytes} B by {codec} "));
            results.push(one(definition, (server, sql), codec, *value_bytes)?);
        }
    }
    Ok(results)
}

/// Fills a keyspace with compressed values, measures a scan of it, and drops it.
fn one(
    definition: &Definition,
    (server, sql): (&Server, &Sql),
    codec: &str,
    value_bytes: usize,
) -> Result<CompressedResult> {
    let rows = rows_of(definition.compressed.mib, value_bytes);
    let mut client = Client::connect(server.address)?;
    client.ask(&["FP.SPACE", "CREATE", "packed", "COMPRESSION", codec])?;
    fill(&mut client, 0..FIRST.min(rows), value_bytes)?;
    let compression = Compression::named(codec.as_bytes());
    if compression.is_some_and(|one| one != Compression::Deflate) {
        let start = Instant::now();
        while info(&mut client, "dictionary_bytes")? == 0 {
            if start.elapsed() > PATIENCE {
                bail!("no dictionary for {codec} after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    fill(&mut client, FIRST.min(rows)..rows, value_bytes)?;
    let bytes_per_entry = info(&mut client, "bytes")? as f64 / rows as f64;
    let statement = "SELECT COUNT(*) FROM packed WHERE value LIKE '%@07@%'";
    let ms = median_ms(definition, sql, statement, false, rows / CLASSES)?;
    let gb_s = (rows as usize * value_bytes) as f64 / 1e9 / (ms / 1e3);
    server.clear()?;
    client.ask(&["FP.SPACE", "DROP", "packed"])?;
    let alone =
        compression.map(|compression| alone(definition, compression, rows, value_bytes)).transpose()?;
    Ok(CompressedResult { codec: codec.to_string(), value_bytes, bytes_per_entry, gb_s, codec_gb_s: alone })
}

/// Sets the values with these numbers.
fn fill(client: &mut Client, rows: std::ops::Range<u64>, value_bytes: usize) -> Result<()> {
    let mut next = rows.start;
    while next < rows.end {
        let (mut bytes, end) = (Vec::new(), rows.end.min(next + COMMANDS));
        for number in next..end {
            let key = format!("packed:{number:08}");
            command(&[b"SET", key.as_bytes(), &value(number, value_bytes)], &mut bytes);
        }
        client.pipeline(&bytes, end - next)?;
        next = end;
    }
    Ok(())
}

/// Returns a number that the node reports about the keyspace `packed`.
fn info(client: &mut Client, field: &str) -> Result<u64> {
    let told = client.ask(&["FP.SPACE", "INFO", "packed"])?.context("nothing is told of the space")?;
    let value = told.lines().skip_while(|line| *line != field).nth(1);
    Ok(value.with_context(|| format!("a space without {field}"))?.parse()?)
}

/// Returns the GB/s of plain bytes at which the codec alone decompresses the same values on [`THREADS`] threads. Its
/// dictionary is made of a sample of these values.
fn alone(definition: &Definition, compression: Compression, rows: u64, value_bytes: usize) -> Result<f64> {
    let sample: Vec<u8> = (0..FIRST).flat_map(|number| value(number, value_bytes.min(512))).collect();
    let packer = Packer::new(compression, &sample);
    let (mut packed, mut ends) = (Vec::new(), Vec::new());
    for number in 0..rows {
        if packer.pack(&value(number, value_bytes), value_bytes, &mut packed) {
            ends.push(packed.len());
        }
    }
    let unpack = |thread: usize| -> Result<()> {
        let own = ends.len() * thread / THREADS..ends.len() * (thread + 1) / THREADS;
        let mut plain = vec![0; value_bytes];
        let mut start = own.start.checked_sub(1).map_or(0, |before| ends[before]);
        for end in &ends[own] {
            packer.unpack(&packed[start..*end], &mut plain).context("a codec alone")?;
            std::hint::black_box(&plain);
            start = *end;
        }
        Ok(())
    };
    gb_s(definition.scan.runs, ends.len() * value_bytes, || threads::on_each(THREADS, unpack).map(drop))
}
