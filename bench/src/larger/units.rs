//! Units of reading: the same columns of a table's segments, read with O_DIRECT in units of several sizes by as many
//! threads as a node reads with, and chunk by chunk, as a node reads them. The counterpart of figure 9 of the Ibex
//! paper (L. Woods et al., VLDB 2014), which has pages of 16 KiB and of 4 MiB.

use super::definition::{Scan, Units};
use crate::direct::{self, PAGE_BYTES, Pages};
use crate::rival::Rival;
use crate::suite::{Samples, Table, turns};
use crate::{stats, text};
use anyhow::{Context, Result, bail};
use farpool::model::limits;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Maximal bytes of the pieces in which a chunk is read, as in `crates/disk/src/local.rs`.
const PIECE_BYTES: u64 = 1 << 20;

/// Results of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct UnitsResult {
    pub table: String,
    /// Number of reading threads.
    pub threads: usize,
    /// Number of column chunks of the table in segments, and percentiles of their sizes there.
    pub chunks: usize,
    pub bytes_median: f64,
    pub bytes_p90: f64,
    pub scans: Vec<ScanResult>,
}

/// Results of scans of the needed column chunks, with units of all sizes.
#[derive(Clone, Debug, Serialize)]
pub struct ScanResult {
    pub name: String,
    pub units: Vec<UnitResult>,
}

/// Results of scans with units of one size.
#[derive(Clone, Debug, Serialize)]
pub struct UnitResult {
    /// Bytes of a unit; `None` if column chunks are read one by one, each from its first page to its last one.
    pub unit_bytes: Option<u64>,
    /// Bytes of needed chunks in all runs, and bytes that were read for them.
    pub bytes_needed: u64,
    pub bytes_read: u64,
    /// Needed bytes per second: the median of the runs.
    pub bytes_per_s: f64,
}

/// The location of a column chunk.
#[derive(Clone, Debug, Deserialize)]
struct ChunkPlace {
    group: usize,
    column: String,
    file: String,
    offset: u64,
    bytes: u64,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    file: usize,
    offset: u64,
    bytes: u64,
}

/// Measures over the data directory `folder`, which `side` has open; the side ends before anything is read. Returns
/// `None` with a note if the file system does not support O_DIRECT.
pub fn measure(
    definition: &Units,
    mut side: Rival,
    folder: &Path,
    notes: &mut Vec<String>,
) -> Result<Option<UnitsResult>> {
    let mut answer = side.ask(&json!({ "do": "places", "table": definition.table }))?;
    side.end()?;
    let chunks: Vec<ChunkPlace> = serde_json::from_value(answer["chunks"].take())?;
    let names: BTreeSet<&str> = chunks.iter().map(|chunk| chunk.file.as_str()).collect();
    let opened = names.iter().map(|name| direct::options().open(folder.join(name)));
    let files: Vec<File> = match opened.collect::<std::io::Result<_>>() {
        Ok(files) => files,
        Err(error) => {
            notes.push(format!("units of reading are not compared: {}: {error}", folder.display()));
            return Ok(None);
        }
    };
    let numbers: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
    let scans =
        definition.scans.iter().map(|scan| measure_scan(definition, scan, &chunks, (&files, &numbers)));
    let scans = scans.collect::<Result<_>>()?;
    text::progress("");
    let bytes: Vec<f64> = chunks.iter().map(|chunk| chunk.bytes as f64).collect();
    Ok(Some(UnitsResult {
        table: definition.table.clone(),
        threads: limits::READERS,
        chunks: chunks.len(),
        bytes_median: stats::median(&bytes),
        bytes_p90: stats::percentile(&bytes, 0.9),
        scans,
    }))
}

fn measure_scan(
    definition: &Units,
    scan: &Scan,
    chunks: &[ChunkPlace],
    (files, numbers): (&[File], &BTreeMap<&str, usize>),
) -> Result<ScanResult> {
    let is_wanted = |chunk: &&ChunkPlace| {
        chunk.group.is_multiple_of(scan.every)
            && (scan.columns.is_empty() || scan.columns.contains(&chunk.column))
    };
    let piece = |chunk: &ChunkPlace| Piece {
        file: numbers[chunk.file.as_str()],
        offset: chunk.offset,
        bytes: chunk.bytes,
    };
    let wanted: Vec<Piece> = chunks.iter().filter(is_wanted).map(piece).collect();
    if wanted.is_empty() {
        bail!("table {} has nothing in segments for {:?}", definition.table, scan.name);
    }
    let sizes: Vec<Option<u64>> =
        definition.unit_kib.iter().map(|kib| Some(kib << 10)).chain([None]).collect();
    let mut units: Vec<UnitResult> = sizes.iter().map(|unit| UnitResult::new(*unit)).collect();
    let mut rates = Samples::new(sizes.len());
    let count = definition.runs * sizes.len();
    for turn in turns(sizes.len(), definition.runs) {
        text::progress(&format!("units of reading, {} ", scan.name));
        // Each run begins at another chunk, so that caching by a host favours none.
        let first = (turn.round * sizes.len() + turn.side) * wanted.len() / count;
        let from = wanted[first..].iter().chain(&wanted[..first]).copied();
        let (pieces, needed) = pieces(from, sizes[turn.side], definition.bytes_max_mib << 20);
        rates.add(turn, needed as f64 / read_all(files, &pieces)?);
        units[turn.side].bytes_needed += needed;
        units[turn.side].bytes_read += pieces.iter().map(|piece| piece.bytes).sum::<u64>();
    }
    for (side, unit) in units.iter_mut().enumerate() {
        unit.bytes_per_s = rates.median(side, |rate| *rate);
    }
    Ok(ScanResult { name: scan.name.clone(), units })
}

impl UnitResult {
    fn new(unit_bytes: Option<u64>) -> UnitResult {
        UnitResult { unit_bytes, bytes_needed: 0, bytes_read: 0, bytes_per_s: f64::NAN }
    }
}

/// Returns the pieces that are read for chunks, each unit once, and the number of needed bytes; stops at `bytes_max`
/// bytes.
fn pieces(chunks: impl Iterator<Item = Piece>, unit: Option<u64>, bytes_max: u64) -> (Vec<Piece>, u64) {
    let (mut pieces, mut seen) = (Vec::new(), HashSet::new());
    let (mut needed, mut read) = (0, 0);
    for chunk in chunks {
        if read >= bytes_max {
            break;
        }
        let alignment = unit.unwrap_or(PAGE_BYTES as u64);
        let end = (chunk.offset + chunk.bytes).next_multiple_of(alignment);
        let mut offset = chunk.offset / alignment * alignment;
        while offset < end {
            let bytes = unit.unwrap_or((end - offset).min(PIECE_BYTES));
            if unit.is_none() || seen.insert((chunk.file, offset)) {
                pieces.push(Piece { offset, bytes, ..chunk });
                read += bytes;
            }
            offset += bytes;
        }
        needed += chunk.bytes;
    }
    (pieces, needed)
}

/// Reads pieces, each by the next free thread; returns the seconds.
fn read_all(files: &[File], pieces: &[Piece]) -> Result<f64> {
    let largest = pieces.iter().map(|piece| piece.bytes).max().unwrap_or(0);
    let next = AtomicUsize::new(0);
    let read_some = |mut memory: Pages| -> Result<()> {
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let memory = memory.of(usize::try_from(piece.bytes)?);
            // The last unit of a file may extend beyond the end of the file.
            let read = files[piece.file].read_at(memory, piece.offset);
            if read.context("cannot read a segment past the system's cache")? == 0 {
                bail!("a segment ends before byte {}", piece.offset);
            }
        }
        Ok(())
    };
    let memory: Vec<Pages> = (0..limits::READERS).map(|_| Pages::new(largest as usize)).collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = memory.into_iter().map(|memory| scope.spawn(|| read_some(memory))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(read) => read,
            Err(_) => bail!("a thread that reads has panicked"),
        })
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Formats the part of the report.
pub fn report(results: &UnitsResult) -> String {
    let sizes = results.scans.first().map_or(0, |scan| scan.units.len());
    let unit = |place: usize| results.scans.first().and_then(|scan| scan.units[place].unit_bytes);
    let mut table = Table::of(0..sizes).column("unit", |place| {
        unit(place).map_or("chunk".to_string(), |unit| format!("{} KiB", unit >> 10))
    });
    for scan in &results.scans {
        let read = |unit: &UnitResult| unit.bytes_read as f64 / unit.bytes_needed as f64;
        table = table
            .number(format!("{}, MB/s", scan.name), 0, |place| scan.units[place].bytes_per_s / 1e6)
            .number("read", 2, |place| read(&scan.units[place]));
    }
    format!(
        "\nunits of reading: columns of {} past the system's cache, {} threads; its {} column chunks take a median of {} on \
         disk, nine of ten at most {}\nMB/s of the bytes that are needed, and how many are read for each of these\n{table}\n",
        results.table,
        results.threads,
        results.chunks,
        text::bytes(results.bytes_median as u64),
        text::bytes(results.bytes_p90 as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_chunks_once_and_chunks_are_read_from_page_to_page() {
        let chunk = |offset, bytes| Piece { file: 0, offset, bytes };
        let chunks = [chunk(5000, 3000), chunk(8192, 20_000), chunk(70_000, 10)];
        let of = |unit, most| {
            let (pieces, needed) = pieces(chunks.into_iter(), unit, most);
            (pieces.iter().map(|piece| (piece.offset, piece.bytes)).collect::<Vec<_>>(), needed)
        };
        let kib = 1024;
        assert_eq!(
            of(Some(16 * kib), u64::MAX),
            (vec![(0, 16 * kib), (16 * kib, 16 * kib), (64 * kib, 16 * kib)], 23_010)
        );
        assert_eq!(of(Some(4096 * kib), u64::MAX), (vec![(0, 4096 * kib)], 23_010));
        assert_eq!(of(None, u64::MAX), (vec![(4096, 4096), (8192, 20_480), (69_632, 4096)], 23_010));
        assert_eq!(of(None, 1), (vec![(4096, 4096)], 3000));
        let large = pieces([chunk(0, 2_500_000)].into_iter(), None, u64::MAX).0;
        assert_eq!(large.iter().map(|piece| piece.bytes).collect::<Vec<_>>(), [1 << 20, 1 << 20, 405_504]);
    }
}
