//! Measures rounds of both sides (farpool and other libraries) in turns; times count only if both produce the same
//! ciphertext.

use super::definition::Definition;
use super::farpool_side::{Farpool, mode};
use super::measure_packing::{self, Share};
use super::mix::{self, MixResult};
use super::rounds::{self, Timed};
use crate::rival::{Rival, RivalDefinition};
use crate::suite::{Head, RivalResult};
use crate::{stats, text};
use anyhow::{Context, Result, ensure};
use farpool_cipher::Mode;
use serde::Serialize;
use serde_json::{Value, json};

/// Results of a run of the suite.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub head: Head,
    pub runs: usize,
    pub rivals: Vec<RivalResult>,
    pub cases: Vec<CaseResult>,
    /// The ratios of compressed to plain size.
    pub shares: Vec<Share>,
    pub mix: Vec<MixResult>,
}

/// Results of a cipher or a codec in one direction, on a number of threads, at all sizes.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub direction: String,
    pub threads: usize,
    /// The name of the library that farpool is compared with.
    pub other: String,
    pub sizes: Vec<SizeResult>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SizeResult {
    pub bytes: usize,
    /// Speed of farpool on one thread.
    pub gb_per_second: f64,
    /// The median ratio of the other library's time to farpool's; `None` if the library is missing.
    pub ratio: Option<f64>,
    pub ratios: Vec<f64>,
    pub goal: Option<f64>,
}

/// Runs the parts of the suite whose names contain `wanted`.
pub fn run(definition: &Definition, wanted: &str) -> Result<Results> {
    let rival = RivalDefinition::named("Libraries")?;
    let started = Rival::start(rival, 1);
    let libraries = RivalResult::of("libraries", &started, |rival| rival.version.clone());
    let mut openssl = started.ok();
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
        head: Head::of("iopath"),
        runs: definition.runs,
        rivals: vec![libraries],
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
            let request = json!({
                "do": "time", "mode": self.mode_name, "bits": self.bits, "encrypts": encrypts,
                "bytes": bytes, "repeats": repeats, "threads": threads,
            });
            let own = || rounds::time(make, timed, (bytes, repeats, threads));
            let theirs = || openssl.as_mut().map(|openssl| ask_ns(openssl, &request)).transpose();
            let pairs = Pairs::measure(definition.runs, own, theirs)?;
            sizes.push(pairs.size(bytes * repeats, bytes, definition.goals.at(bytes)));
        }
        let direction = if encrypts { "encrypt" } else { "decrypt" }.into();
        Ok(CaseResult { name: self.name.into(), direction, threads, other: "OpenSSL".into(), sizes })
    }

    /// Compares many chains of blocks that are encrypted in parallel with one chain of as many bytes.
    fn measure_chains(&self, definition: &Definition, threads: usize) -> Result<CaseResult> {
        let make = |chain_bytes| {
            move || Farpool::new(self.mode, self.bits, chain_bytes).expect("one was made before")
        };
        let mut sizes = Vec::new();
        // Fewer chains than the processor's AES unit handles in parallel gain nothing.
        for &bytes in definition.bytes.iter().filter(|bytes| **bytes >= 16 * definition.chain_bytes) {
            text::progress(&format!("{}, chains, {bytes} bytes ", self.name));
            let repeats = definition.repeats(bytes);
            let by = (bytes, repeats, threads);
            let time = |chain_bytes| rounds::time(make(chain_bytes), Timed::Encryption, by);
            let (many, one) = (|| time(Some(definition.chain_bytes)), || Ok(Some(time(None))));
            let pairs = Pairs::measure(definition.runs, many, one)?;
            sizes.push(pairs.size(bytes * repeats, bytes, Some(definition.goals.chains)));
        }
        let (name, other) = (format!("{} chains", self.name), "one chain".to_string());
        Ok(CaseResult { name, direction: "encrypt".into(), threads, other, sizes })
    }
}

/// Times of farpool, and for each the ratio of the other side's time in the same turn to it.
pub struct Pairs {
    own_ns: Vec<f64>,
    ratios: Vec<f64>,
}

impl Pairs {
    /// Runs both sides in turns; the other side may be missing.
    pub fn measure(
        runs: usize,
        own: impl Fn() -> f64,
        mut other: impl FnMut() -> Result<Option<f64>>,
    ) -> Result<Pairs> {
        let mut pairs = Pairs { own_ns: Vec::new(), ratios: Vec::new() };
        for _ in 0..runs {
            let own_ns = own();
            pairs.own_ns.push(own_ns);
            pairs.ratios.extend(other()?.map(|other_ns| other_ns / own_ns));
        }
        Ok(pairs)
    }

    /// Returns the result at a size, where each time is that of `bytes_of_run` bytes.
    pub fn size(self, bytes_of_run: usize, bytes: usize, goal: Option<f64>) -> SizeResult {
        let gb_per_second = bytes_of_run as f64 / stats::median(&self.own_ns);
        let ratio = (!self.ratios.is_empty()).then(|| stats::median(&self.ratios));
        SizeResult { bytes, gb_per_second, ratio, ratios: self.ratios, goal }
    }
}

/// Returns the nanoseconds that another library took for a request.
pub fn ask_ns(libraries: &mut Rival, request: &Value) -> Result<f64> {
    libraries.ask(request)?["ns"].as_f64().context("the driver gave no time")
}
