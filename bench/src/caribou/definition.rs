//! The suite as data: `bench/definitions/caribou.toml`, which explains the fields.

use super::keys::Skew;
use super::load::Mix;
use crate::places;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    pub seconds: f64,
    pub warm_up_s: f64,
    pub keys: u64,
    value_bytes: usize,
    pub connections: usize,
    depth: usize,
    mix: String,
    skew: Skew,
    quick: Quick,
    mixes: BTreeMap<String, Mix>,
    series: Vec<Series>,
    pub response: Response,
    pub load: Load,
    pub memory: Memory,
    pub conditional: Conditional,
    pub scan: Scan,
    pub compressed: Compressed,
    pub beside: Beside,
    pub durable: Vec<Durable>,
    pub recovery: Recovery,
    pub goals: Goals,
}

/// The settings of `--quick`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: usize,
    seconds: f64,
    warm_up_s: f64,
    keys: u64,
    connections_max: usize,
    memory_keys: u64,
    scan_mib: usize,
    recovery_mib: usize,
}

/// Cases that differ in few things.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    name: String,
    mixes: Option<Vec<String>>,
    depths: Option<Vec<usize>>,
    value_bytes: Option<Vec<usize>>,
    skews: Option<Vec<Skew>>,
    connections: Option<Vec<usize>>,
    #[serde(default)]
    cores: Cores,
}

/// The processors that a server and the generator run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cores {
    #[default]
    Own,
    Both,
}

/// A case of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    pub series: String,
    pub mix: String,
    #[serde(skip)]
    pub parts: Mix,
    pub depth: usize,
    pub value_bytes: usize,
    pub skew: Skew,
    pub connections: usize,
    pub cores: Cores,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    pub value_bytes: Vec<usize>,
    pub mixes: Vec<String>,
    pub seconds: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub mix: String,
    pub parts: Vec<f64>,
    pub seconds: f64,
    pub runs: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub keys: u64,
    pub value_bytes: usize,
    pub spaces: Vec<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditional {
    pub value_bytes: Vec<usize>,
    condition: String,
    #[serde(rename = "match")]
    matching: String,
    miss: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    pub mib: usize,
    pub value_bytes: Vec<usize>,
    pub percents: Vec<u64>,
    pub runs: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compressed {
    pub mib: usize,
    pub value_bytes: Vec<usize>,
    pub codecs: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    pub part: f64,
    pub mix: String,
    pub seconds: f64,
    pub sql: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durable {
    pub connections: usize,
    pub depth: usize,
    pub at_least: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    pub mib: usize,
    pub value_bytes: usize,
    pub at_least: f64,
}

/// The target ratios.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub per_cpu_pipelined: f64,
    pub pinned_pipelined: f64,
    pub one_by_one: f64,
    pub hot: f64,
    pub latency: f64,
    pub memory: f64,
    pub conditional: f64,
    pub conditions: BTreeMap<String, f64>,
    pub substring: f64,
    pub compressed: f64,
    pub beside_latency: f64,
    pub beside_steps_us: f64,
    pub beside_scan: f64,
    pub sync_latency: f64,
}

impl Definition {
    /// Reads the definition.
    pub fn read(is_quick: bool) -> Result<Definition> {
        let mut definition: Definition = places::definition("caribou")?;
        if is_quick {
            definition.shrink();
        }
        Ok(definition)
    }

    fn shrink(&mut self) {
        let quick = self.quick.clone();
        (self.runs, self.seconds, self.warm_up_s, self.keys) =
            (quick.runs, quick.seconds, quick.warm_up_s, quick.keys);
        for counts in self.series.iter_mut().filter_map(|series| series.connections.as_mut()) {
            counts.retain(|count| *count <= quick.connections_max);
        }
        self.durable.retain(|durable| durable.connections <= quick.connections_max);
        self.response.seconds = quick.seconds;
        (self.load.seconds, self.load.runs) = (quick.seconds, quick.runs);
        self.memory.keys = quick.memory_keys;
        (self.scan.mib, self.compressed.mib, self.scan.runs) = (quick.scan_mib, quick.scan_mib, quick.runs);
        self.beside.seconds = quick.seconds;
        self.recovery.mib = quick.recovery_mib;
    }

    /// Returns the operations of a mix.
    pub fn mix(&self, name: &str) -> Result<Mix> {
        self.mixes.get(name).copied().with_context(|| format!("there is no mix {name:?}"))
    }

    /// Returns all cases, series by series.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for series in &self.series {
            for value_bytes in series.value_bytes.as_deref().unwrap_or(&[self.value_bytes]) {
                for mix in series.mixes.as_deref().unwrap_or(std::slice::from_ref(&self.mix)) {
                    for depth in series.depths.as_deref().unwrap_or(&[self.depth]) {
                        for skew in series.skews.as_deref().unwrap_or(&[self.skew]) {
                            for connections in series.connections.as_deref().unwrap_or(&[self.connections]) {
                                cases.push(Case {
                                    series: series.name.clone(),
                                    mix: mix.clone(),
                                    parts: self.mix(mix)?,
                                    depth: *depth,
                                    value_bytes: *value_bytes,
                                    skew: *skew,
                                    connections: *connections,
                                    cores: series.cores,
                                });
                            }
                        }
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Returns a case with the default settings of a series.
    pub fn case(&self, series: &str, mix: &str) -> Result<Case> {
        Ok(Case {
            series: series.to_string(),
            mix: mix.to_string(),
            parts: self.mix(mix)?,
            depth: self.depth,
            value_bytes: self.value_bytes,
            skew: self.skew,
            connections: self.connections,
            cores: Cores::Own,
        })
    }
}

impl Conditional {
    /// Returns the condition that all values meet, or that none does.
    pub fn condition(&self, matches: bool) -> String {
        self.condition.replace("{last}", if matches { &self.matching } else { &self.miss })
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;

    #[test]
    fn cases_have_mixes_that_add_up() {
        for is_quick in [false, true] {
            let definition = Definition::read(is_quick).expect("it can be read");
            for case in definition.cases().expect("all mixes are there") {
                let parts = case.parts;
                let all = parts.read + parts.update + parts.insert + parts.delete + parts.modify;
                assert_eq!(all, 100, "{}", case.mix);
            }
            assert!(
                definition.mix(&definition.load.mix).is_ok()
                    && definition.mix(&definition.beside.mix).is_ok()
            );
            assert!(definition.response.mixes.iter().all(|mix| definition.mix(mix).is_ok()));
            assert_ne!(definition.conditional.condition(true), definition.conditional.condition(false));
        }
    }
}
