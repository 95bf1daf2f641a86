//! Bytes of memory per entry (table 1 of the paper): as the servers report them, and as the system sees the processes
//! grow.

use super::client::Client;
use super::definition::Definition;
use super::generator::Generator;
use super::keys::Data;
use super::points::Fixture;
use super::results::{Bytes, MemoryResult};
use super::server::{Durability, GENERATORS, SERVERS, Server, Side};
use crate::{machine, text};
use anyhow::{Context, Result};

/// Measures farpool and Redis for each number of keyspaces, each in a new process. memcached is left out, because it
/// does not report its memory in `INFO`.
pub fn measure(definition: &Definition, sides: &[Side]) -> Result<Vec<MemoryResult>> {
    let memory = &definition.memory;
    let mut generator = Generator::start(GENERATORS)?;
    let mut results = Vec::new();
    for spaces in &memory.spaces {
        text::progress(&format!("memory: {spaces} spaces "));
        let mut bytes = Vec::new();
        for side in sides.iter().filter(|side| **side != Side::Memcached) {
            bytes.push(of_side(definition, *side, *spaces, &mut generator).with_context(|| side.name())?);
        }
        let payload_bytes = payload(memory.keys, memory.value_bytes, *spaces)?;
        results.push(MemoryResult { spaces: *spaces, keys: memory.keys, payload_bytes, sides: bytes });
    }
    Ok(results)
}

/// Fills a new server, and compares its memory before and after.
fn of_side(definition: &Definition, side: Side, spaces: u64, generator: &mut Generator) -> Result<Bytes> {
    let memory = &definition.memory;
    let mut fixture = Fixture::new(Server::start(side, SERVERS, 1, Durability::None)?);
    let mut client = Client::connect(fixture.server.address)?;
    if side == Side::Farpool && spaces > 1 {
        // A key `s0:…` belongs to the keyspace `s0`, if there is one.
        (0..spaces)
            .try_for_each(|space| client.ask(&["FP.SPACE", "CREATE", &format!("s{space}")]).map(drop))?;
    }
    let process = fixture.server.id().to_string();
    let resident = || machine::resident_bytes_of(&process).context("the process does not say its memory");
    let before = (client.info("memory", "used_memory")?, resident()?);
    fixture.fill_new(generator, memory.keys, memory.value_bytes, spaces)?;
    let after = (client.info("memory", "used_memory")?, resident()?);
    let of_entry = |before: u64, after: u64| after.saturating_sub(before) as f64 / memory.keys as f64;
    Ok(Bytes {
        name: side.name().to_string(),
        entry_bytes: of_entry(before.0, after.0),
        resident_bytes: of_entry(before.1, after.1),
    })
}

/// Returns the mean bytes of a key and its value.
fn payload(keys: u64, value_bytes: usize, spaces: u64) -> Result<f64> {
    let (data, mut all) = (Data::new(value_bytes, spaces)?, Vec::new());
    (0..keys).for_each(|number| data.key(number, &mut all));
    Ok(all.len() as f64 / keys as f64 + data.value_bytes() as f64)
}
