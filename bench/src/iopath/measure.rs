//! Measures rounds of both sides in turns; times count only if both produce the same ciphertext.

use super::definition::Definition;
use super::farpool_side::{Farpool, mode};
use super::measure_packing::{self, Share};
use super::mix::{self, MixResult};
use super::rounds::{self, Timed};
use crate::machine::{self, Machine};
use crate::rival::{Rival, RivalDefinition, RivalResult};
use crate::{stats, text};
use anyhow::{Context, Result, ensure};
use farpool_cipher::Mode;
use serde::Serialize;
use serde_json::json;

/// A run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub suite: String,
    pub date: String,
    pub machine: Machine,
    pub runs: usize,
    pub rivals: Vec<RivalResult>,
    pub cases: Vec<CaseResult>,
    /// The ratios of compressed to plain size.
    pub shares: Vec<Share>,
    pub mix: Vec<MixResult>,
}

/// A cipher or a codec in one direction, on a number of threads, at all sizes.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub direction: String,
    pub threads: usize,
    /// The name of the other side.
    pub other: String,
    pub sizes: Vec<SizeResult>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SizeResult {
    pub bytes: usize,
    /// Speed of one thread.
    pub gb_per_second: f64,
    /// The median ratio of the other side's time to farpool's.
    pub ratio: Option<f64>,
    pub ratios: Vec<f64>,
    pub goal: Option<f64>,
}

/// Runs the parts of the suite whose names contain `wanted`.
pub fn run(definition: &Definition, wanted: &str) -> Result<Results> {
    let rival = RivalDefinition::named("Libraries")?;
    let (mut openssl, started) = match Rival::start(rival.clone(), 1) {
        Ok(rival) => {
            let version = rival.version.clone();
            (Some(rival), RivalResult { name: "libraries:".into(), version, missing: None })
        }
        Err(why) => {
            let missing = Some(format!("{why:#}"));
            (None, RivalResult { name: rival.name, version: String::new(), missing })
        }
    };
    let mut cases = Vec::new();
    for mode_name in &definition.modes {
        for bits in &definition.bits {
            let name = format!("AES-{bits}-{}", mode(mode_name)?);
            if !name.contains(wanted) {
                continue;
            }
            let case = Case { name: &name, mode: mode(mode_name)?, mode_name, bits: *bits };
            if let Some(openssl) = &mut openssl {
                case.check_exchange(definition, openssl).with_context(|| name.clone())?;
            }
            for threads in &definition.threads {
                for encrypts in [true, false] {
                    cases.push(case.measure(definition, (encrypts, *threads), openssl.as_mut())?);
                }
                if case.mode == Mode::Cbc {
                    cases.push(case.measure_chains(definition, *threads)?);
                }
            }
        }
    }
    let (packed, shares) = measure_packing::run(definition, wanted, openssl.as_mut())?;
    cases.extend(packed);
    let mix = if "mix".contains(wanted) { mix::run(definition)? } else { Vec::new() };
    text::progress("");
    Ok(Results {
        suite: "iopath".to_string(),
        date: machine::today(),
        machine: machine::machine(),
        runs: definition.runs,
        rivals: vec![started],
        cases,
        shares,
        mix,
    })
}

struct Case<'a> {
    name: &'a str,
    mode: Mode,
    mode_name: &'a str,
    bits: usize,
}

impl Case<'_> {
    /// Checks that both sides produce the same ciphertext and tag, and that each decrypts its own ciphertext.
    fn check_exchange(&self, definition: &Definition, openssl: &mut Rival) -> Result<()> {
        for bytes in &definition.bytes {
            let mut farpool = Farpool::new(self.mode, self.bits, None)?;
            let own =
                rounds::exchange(&mut farpool, *bytes).context("what was encrypted is not decrypted")?;
            let request =
                json!({ "do": "digest", "mode": self.mode_name, "bits": self.bits, "bytes": bytes });
            let theirs = openssl.ask(&request)?;
            ensure!(theirs["digest"] == format!("{own:016x}"), "{bytes} bytes are encrypted to others");
        }
        Ok(())
    }

    fn measure(
        &self,
        definition: &Definition,
        (encrypts, threads): (bool, usize),
        mut openssl: Option<&mut Rival>,
    ) -> Result<CaseResult> {
        let timed = if encrypts { Timed::Encryption } else { Timed::Decryption };
        let make = || Farpool::new(self.mode, self.bits, None).expect("one was made before");
        let mut sizes = Vec::new();
        for &bytes in &definition.bytes {
            text::progress(&format!("{}, {bytes} bytes ", self.name));
            let repeats = definition.repeats(bytes);
            let (mut times, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..definition.runs {
                let own = rounds::time(make, timed, (bytes, repeats, threads));
                times.push(own);
                let Some(openssl) = &mut openssl else { continue };
                let request = json!({
                    "do": "time", "mode": self.mode_name, "bits": self.bits, "encrypts": encrypts,
                    "bytes": bytes, "repeats": repeats, "threads": threads,
                });
                let theirs = openssl.ask(&request)?["ns"].as_f64().context("the driver gave no time")?;
                ratios.push(theirs / own);
            }
            sizes.push(size(bytes, repeats, &times, ratios, definition.goals.at(bytes)));
        }
        let direction = if encrypts { "encrypt" } else { "decrypt" }.into();
        Ok(CaseResult { name: self.name.into(), direction, threads, other: "OpenSSL".into(), sizes })
    }

    /// Measures many parallel chains against one of as many bytes.
    fn measure_chains(&self, definition: &Definition, threads: usize) -> Result<CaseResult> {
        let make = |chain_bytes| {
            move || Farpool::new(self.mode, self.bits, chain_bytes).expect("one was made before")
        };
        let mut sizes = Vec::new();
        // Fewer chains than the processor's AES unit handles in parallel gain nothing.
        for &bytes in definition.bytes.iter().filter(|bytes| **bytes >= 16 * definition.chain_bytes) {
            text::progress(&format!("{}, chains, {bytes} bytes ", self.name));
            let repeats = definition.repeats(bytes);
            let (mut times, mut ratios) = (Vec::new(), Vec::new());
            for _ in 0..definition.runs {
                let by = (bytes, repeats, threads);
                let many = rounds::time(make(Some(definition.chain_bytes)), Timed::Encryption, by);
                let one = rounds::time(make(None), Timed::Encryption, by);
                times.push(many);
                ratios.push(one / many);
            }
            sizes.push(size(bytes, repeats, &times, ratios, Some(definition.goals.chains)));
        }
        let (name, other) = (format!("{} chains", self.name), "one chain".to_string());
        Ok(CaseResult { name, direction: "encrypt".into(), threads, other, sizes })
    }
}

pub(super) fn size(
    bytes: usize,
    repeats: usize,
    times: &[f64],
    ratios: Vec<f64>,
    goal: Option<f64>,
) -> SizeResult {
    let gb_per_second = (bytes * repeats) as f64 / stats::median(times);
    let ratio = (!ratios.is_empty()).then(|| stats::median(&ratios));
    SizeResult { bytes, gb_per_second, ratio, ratios, goal }
}
