//! Scans of compressed values for a substring, compared with the codec alone over the same bytes.

use super::client::Client;
use super::definition::Definition;
use super::protocol::command;
use super::results::CompressedResult;
use super::scans::{CLASSES, Sql, THREADS, rows_of, times};
use super::server::Server;
use crate::random::Random;
use crate::stats::median;
use crate::text;
use anyhow::{Context, Result, bail};
use farpool_kv::{Compression, Packer};
use std::time::{Duration, Instant};

/// Number of values after which the node builds the dictionary of a space, and some more.
const FIRST: u64 = 1000;

/// Number of commands that wait for their replies.
const COMMANDS: u64 = 512;

/// Time limit for the node to build a dictionary.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a typical value of an application: a session with a cart, in JSON, with a mark of its class.
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

/// Measures scans of values of all sizes and codecs.
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
    let ms = times(definition, sql, statement, false, rows / CLASSES)?;
    let gb_s = (rows as usize * value_bytes) as f64 / 1e9 / (ms / 1e3);
    server.clear()?;
    client.ask(&["FP.SPACE", "DROP", "packed"])?;
    let alone =
        compression.map(|compression| alone(definition, compression, rows, value_bytes)).transpose()?;
    Ok(CompressedResult { codec: codec.to_string(), value_bytes, bytes_per_entry, gb_s, codec_gb_s: alone })
}

fn fill(client: &mut Client, rows: std::ops::Range<u64>, value_bytes: usize) -> Result<()> {
    let mut next = rows.start;
    while next < rows.end {
        let (mut bytes, end) = (Vec::new(), rows.end.min(next + COMMANDS));
        for number in next..end {
            let key = format!("packed:{number:08}");
            command(&[b"SET", key.as_bytes(), &value(number, value_bytes)], &mut bytes);
        }
        client.send(&bytes)?;
        (next..end).try_for_each(|_| client.reply().map(drop))?;
        next = end;
    }
    Ok(())
}

/// Returns a number that the node reports about the space.
fn info(client: &mut Client, field: &str) -> Result<u64> {
    let told = client.ask(&["FP.SPACE", "INFO", "packed"])?.context("nothing is told of the space")?;
    let value = told.lines().skip_while(|line| *line != field).nth(1);
    Ok(value.with_context(|| format!("a space without {field}"))?.parse()?)
}

/// Returns the GB/s of plain bytes at which the codec alone decompresses the same values, compressed with a sample of
/// them, on as many threads.
fn alone(definition: &Definition, compression: Compression, rows: u64, value_bytes: usize) -> Result<f64> {
    let sample: Vec<u8> = (0..FIRST).flat_map(|number| value(number, value_bytes.min(512))).collect();
    let packer = Packer::new(compression, &sample);
    let (mut packed, mut ends) = (Vec::new(), Vec::new());
    for number in 0..rows {
        if packer.pack(&value(number, value_bytes), value_bytes, &mut packed) {
            ends.push(packed.len());
        }
    }
    let halves = [0..ends.len() / THREADS, ends.len() / THREADS..ends.len()];
    let unpack = |half: std::ops::Range<usize>| -> farpool_model::Result<()> {
        let mut plain = vec![0; value_bytes];
        let mut start = half.start.checked_sub(1).map_or(0, |before| ends[before]);
        for end in &ends[half] {
            packer.unpack(&packed[start..*end], &mut plain)?;
            std::hint::black_box(&plain);
            start = *end;
        }
        Ok(())
    };
    let mut times = Vec::new();
    for _ in 0..definition.scan.runs {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let running = halves.clone().map(|half| scope.spawn(|| unpack(half)));
            running.map(|half| half.join()).into_iter().try_for_each(|done| {
                done.map_err(|_| anyhow::anyhow!("a codec panicked"))?.context("a codec alone")
            })
        })?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok((ends.len() * value_bytes) as f64 / 1e9 / median(&times))
}
