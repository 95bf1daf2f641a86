//! Measures codecs, alone compared with other libraries, and followed by a cipher compared with the codec alone. Times
//! count only if the libraries read one another's blocks.

use super::definition::{Definition, PackingDefinition};
use super::farpool_packing::{Packing, Then};
use super::farpool_side::mode;
use super::measure::{CaseResult, Pairs, ask_ns};
use super::packing::{self, Packs, Stored, cycled};
use super::rounds::{Timed, digest};
use crate::rival::Rival;
use crate::text;
use anyhow::{Context, Result, ensure};
use farpool_codec::{Codec, Decompressor};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;

/// The ratio of compressed to plain size.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    pub data: String,
    pub library: String,
    pub share: f64,
}

/// Data, with a file of the same content for other processes.
struct Data<'a> {
    name: &'a str,
    bytes: Vec<u8>,
    file: tempfile::NamedTempFile,
}

/// Runs the cases whose names contain `wanted`.
pub fn run(
    definition: &Definition,
    wanted: &str,
    mut libraries: Option<&mut Rival>,
) -> Result<(Vec<CaseResult>, Vec<Share>)> {
    let of = &definition.packing;
    let (mut cases, mut shares) = (Vec::new(), Vec::new());
    for name in &of.data {
        let bytes = super::data::named(name, of.data_bytes)?;
        let file = tempfile::NamedTempFile::new().context("cannot make a file for the data")?;
        std::fs::write(file.path(), &bytes)?;
        let data = Data { name, bytes, file };
        for codec in &of.codecs {
            let codec = Codec::named(codec).with_context(|| format!("there is no codec {codec:?}"))?;
            let case = Case { definition, of, data: &data, codec };
            if !case.name(None).contains(wanted) {
                continue;
            }
            shares.push(case.share()?);
            let others = if codec == Codec::Deflate { &of.libraries[..] } else { &[] };
            if let Some(libraries) = &mut libraries {
                for library in others {
                    shares
                        .push(case.check_exchange(library, libraries).with_context(|| library.name.clone())?);
                }
            }
            for threads in &definition.threads {
                for timed in [Timed::Encryption, Timed::Decryption] {
                    if others.is_empty() || libraries.is_none() {
                        cases.push(case.measure_alone((timed, *threads), None)?);
                    } else if let Some(libraries) = &mut libraries {
                        for library in others {
                            cases.push(case.measure_alone((timed, *threads), Some((library, libraries)))?);
                        }
                    }
                    for mode_name in &definition.modes {
                        for &bits in &of.bits {
                            let then = Then { mode: mode(mode_name)?, bits, chain_bytes: of.chain_bytes };
                            cases.push(case.measure_behind((timed, *threads), then)?);
                        }
                    }
                }
            }
        }
    }
    Ok((cases, shares))
}

/// A library of DEFLATE, with its compression level.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    pub name: String,
    pub level: i32,
}

struct Case<'a> {
    definition: &'a Definition,
    of: &'a PackingDefinition,
    data: &'a Data<'a>,
    codec: Codec,
}

impl Case<'_> {
    fn name(&self, then: Option<Then>) -> String {
        let cipher = then.map(|then| format!(" + AES-{}-{}", then.bits, then.mode)).unwrap_or_default();
        format!("{}{cipher}, {}", self.codec, self.data.name)
    }

    fn packing(&self, then: Option<Then>) -> Packing {
        Packing::new(self.codec, then).expect("modes and keys are those that the ciphers have")
    }

    fn share(&self) -> Result<Share> {
        let mut stored = Stored::new(self.data.bytes.len(), self.of.block_bytes);
        stored.pack(&mut self.packing(None), &self.data.bytes);
        let share = stored.bytes() as f64 / self.data.bytes.len() as f64;
        Ok(Share { data: self.data.name.to_string(), library: format!("farpool's {}", self.codec), share })
    }

    /// Checks that a library decompresses farpool's blocks, and that farpool decompresses the library's blocks.
    fn check_exchange(&self, library: &Library, libraries: &mut Rival) -> Result<Share> {
        let (plain, block_bytes) = (&self.data.bytes, self.of.block_bytes);
        // Blocks that do not shrink are not stored as DEFLATE: compressible ones are exchanged.
        let text = super::data::named("comments", plain.len())?;
        let (ours, theirs) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
        let mut stored = Stored::new(text.len(), block_bytes);
        stored.pack(&mut self.packing(None), &text);
        std::fs::write(ours.path(), stored.to_file())?;
        let request = |what: &str, file: &Path| self.request(library, what, file);
        let mut unpack = request("unpack", ours.path());
        unpack["bytes"] = json!(text.len());
        let found = libraries.ask(&unpack)?;
        ensure!(found["digest"] == format!("{:016x}", digest(&text, None)), "our blocks become other bytes");
        let mut pack = request("pack", self.data.file.path());
        pack["to"] = json!(theirs.path());
        libraries.ask(&pack)?;
        let file = std::fs::read(theirs.path())?;
        let mut stored = Stored::from_file(&file, block_bytes).context("blocks that are cut off")?;
        let mut back = vec![0; plain.len()];
        stored.unpack(&mut Foreign(Decompressor::new()), &mut back);
        ensure!(back == *plain, "its blocks become other bytes");
        let share = stored.bytes() as f64 / plain.len() as f64;
        Ok(Share { data: self.data.name.to_string(), library: described(library), share })
    }

    fn request(&self, library: &Library, what: &str, file: &Path) -> Value {
        json!({
            "do": what, "library": library.name, "level": library.level, "file": file,
            "block_bytes": self.of.block_bytes,
        })
    }

    fn time(&self, then: Option<Then>, timed: Timed, sizes: (usize, usize, usize)) -> f64 {
        packing::time(|| self.packing(then), timed, &self.data.bytes, sizes, self.of.block_bytes)
    }

    fn measure_alone(
        &self,
        (timed, threads): (Timed, usize),
        mut library: Option<(&Library, &mut Rival)>,
    ) -> Result<CaseResult> {
        let mut sizes = Vec::new();
        for &bytes in &self.of.bytes {
            text::progress(&format!("{}, {bytes} bytes ", self.name(None)));
            let repeats = (self.of.round_bytes / bytes).max(1);
            let theirs = || {
                let Some((library, libraries)) = &mut library else { return Ok(None) };
                let mut request = self.request(library, "time_packing", self.data.file.path());
                request["encrypts"] = json!(timed == Timed::Encryption);
                request["bytes"] = json!(bytes);
                request["repeats"] = json!(repeats);
                request["threads"] = json!(threads);
                ask_ns(libraries, &request).map(Some)
            };
            let own = || self.time(None, timed, (bytes, repeats, threads));
            let pairs = Pairs::measure(self.definition.runs, own, theirs)?;
            sizes.push(pairs.size(bytes * repeats, bytes, None));
        }
        let other = library.map(|(library, _)| described(library)).unwrap_or_default();
        Ok(CaseResult { name: self.name(None), direction: direction(timed), threads, other, sizes })
    }

    fn measure_behind(&self, (timed, threads): (Timed, usize), then: Then) -> Result<CaseResult> {
        let mut sizes = Vec::new();
        let goal = self.of.goal(self.codec, self.data.name, timed == Timed::Encryption);
        let goal = goal.map(|most| 1.0 / most);
        for &bytes in &self.of.bytes {
            text::progress(&format!("{}, {bytes} bytes ", self.name(Some(then))));
            let repeats = (self.of.round_bytes / bytes).max(1);
            let time = |then| self.time(then, timed, (bytes, repeats, threads));
            let pairs = Pairs::measure(self.definition.runs, || time(Some(then)), || Ok(Some(time(None))))?;
            sizes.push(pairs.size(bytes * repeats, bytes, goal));
        }
        let (name, other) = (self.name(Some(then)), format!("{} alone", self.codec));
        Ok(CaseResult { name, direction: direction(timed), threads, other, sizes })
    }
}

fn described(library: &Library) -> String {
    format!("{} -{}", library.name, library.level)
}

fn direction(timed: Timed) -> String {
    if timed == Timed::Encryption { "pack" } else { "unpack" }.to_string()
}

/// A decompressor of blocks from another library.
struct Foreign(Decompressor);

impl Packs for Foreign {
    fn pack(&mut self, block: &[u8], stored: &mut [u8]) -> usize {
        stored[..block.len()].copy_from_slice(block);
        block.len()
    }

    fn unpack(&mut self, _: usize, stored: &mut [u8], block: &mut [u8]) {
        if self.0.decompress(Codec::Deflate, stored, block).is_err() {
            // Makes the buffer differ from the expected contents.
            block.fill(0);
        }
    }
}

/// Returns `bytes` bytes of the test data called `name`, for measurements in other modules: at least `data_bytes` bytes
/// are generated, and repeated if that is too few.
pub fn buffer(name: &str, bytes: usize, data_bytes: usize) -> Result<Vec<u8>> {
    Ok(cycled(&super::data::named(name, data_bytes)?, bytes))
}
