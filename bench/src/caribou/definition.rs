//! The suite as data: `bench/definitions/caribou.toml`, which explains the fields.

use super::keys::Skew;
use super::load::Mix;
use crate::suite::Options;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub runs: usize,
    /// Duration of a run, and of the warm-up before it.
    pub seconds: f64,
    pub warm_up_s: f64,
    pub keys: u64,
    // Defaults of all series.
    value_bytes: usize,
    pub connections: usize,
    depth: usize,
    mix: String,
    skew: Skew,
    /// Maximum number of connections; cases with more are left out.
    connections_max: Option<usize>,
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

/// A series of cases: one for each combination of the settings that it lists, and the defaults for the others.
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

/// The processors that a server and the generator run on: a processor of its own for each, or both processors shared.
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
    /// Name of the mix, and its percentages of operations.
    pub mix: String,
    #[serde(skip)]
    pub parts: Mix,
    pub depth: usize,
    pub value_bytes: usize,
    pub skew: Skew,
    pub connections: usize,
    pub cores: Cores,
}

/// Response times of one client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    pub value_bytes: Vec<usize>,
    pub mixes: Vec<String>,
    pub seconds: f64,
}

/// Latency in an open loop.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub mix: String,
    /// Rates, as fractions of the slowest side's throughput in a closed loop.
    pub parts: Vec<f64>,
    pub seconds: f64,
    pub runs: usize,
}

/// Memory of entries.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    pub keys: u64,
    pub value_bytes: usize,
    /// Numbers of keyspaces among which the keys are distributed, a measurement for each.
    pub spaces: Vec<u64>,
}

/// Conditional reads (`FP.CGET`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditional {
    pub value_bytes: Vec<usize>,
    /// The condition, in which `matching` or `miss` replaces `{last}`.
    condition: String,
    #[serde(rename = "match")]
    matching: String,
    miss: String,
}

/// Scans with eight conditions and for a substring.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// MiB of values that a scan reads.
    pub mib: usize,
    pub value_bytes: Vec<usize>,
    /// Percentages of rows that pass the eight conditions.
    pub percents: Vec<u64>,
    pub runs: usize,
}

/// Scans of compressed values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compressed {
    /// MiB of values, not compressed, that a scan reads.
    pub mib: usize,
    pub value_bytes: Vec<usize>,
    pub codecs: Vec<String>,
}

/// Point operations concurrent with scans.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// Rate of the point operations, as a fraction of their throughput in a closed loop.
    pub part: f64,
    pub mix: String,
    pub seconds: f64,
    /// The scan, which counts the keys of one class.
    pub sql: String,
}

/// Updates that are durable before they are acknowledged.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durable {
    pub connections: usize,
    pub depth: usize,
    /// Goal: minimum ratio of farpool's throughput to Redis'.
    pub at_least: f64,
}

/// Starts of a server over durable keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// MiB of values.
    pub mib: usize,
    pub value_bytes: usize,
    /// Goal: minimum ratio of the rates at which farpool and Redis load values.
    pub at_least: f64,
}

/// The goals, mostly as ratios to Redis; `goals.rs` compares results with them.
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
    /// Reads the definition, and leaves out the cases with too many connections.
    pub fn read(options: &Options) -> Result<Definition> {
        let mut definition: Definition = options.definition("caribou")?;
        let most = definition.connections_max.unwrap_or(usize::MAX);
        for counts in definition.series.iter_mut().filter_map(|series| series.connections.as_mut()) {
            counts.retain(|count| *count <= most);
        }
        definition.durable.retain(|durable| durable.connections <= most);
        Ok(definition)
    }

    /// Returns the percentages of operations of the mix `name`.
    pub fn mix(&self, name: &str) -> Result<Mix> {
        self.mixes.get(name).copied().with_context(|| format!("there is no mix {name:?}"))
    }

    /// Returns all cases, series by series.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for series in &self.series {
            let like = Case { cores: series.cores, ..self.case(&series.name, &self.mix)? };
            let mut of_series = vec![like];
            // The first setting varies most slowly.
            vary(&mut of_series, &series.value_bytes, |case, bytes| case.value_bytes = *bytes);
            let mixes = series.mixes.iter().flatten().map(|mix| Ok((mix.clone(), self.mix(mix)?)));
            let mixes = series.mixes.is_some().then(|| mixes.collect::<Result<Vec<_>>>()).transpose()?;
            vary(&mut of_series, &mixes, |case, (mix, parts)| (case.mix, case.parts) = (mix.clone(), *parts));
            vary(&mut of_series, &series.depths, |case, depth| case.depth = *depth);
            vary(&mut of_series, &series.skews, |case, skew| case.skew = *skew);
            vary(&mut of_series, &series.connections, |case, count| case.connections = *count);
            cases.append(&mut of_series);
        }
        Ok(cases)
    }

    /// Returns a case with the given mix and the default settings.
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

/// Replaces each case by one case per value of a setting. Leaves the cases as they are if there are no values.
fn vary<V>(cases: &mut Vec<Case>, values: &Option<Vec<V>>, set: impl Fn(&mut Case, &V)) {
    let Some(values) = values else { return };
    let with = |case: &Case, value: &V| {
        let mut case = case.clone();
        set(&mut case, value);
        case
    };
    *cases = cases.iter().flat_map(|case| values.iter().map(move |value| with(case, value))).collect();
}

impl Conditional {
    /// Returns a condition that all values match, or one that none matches.
    pub fn condition(&self, matches: bool) -> String {
        self.condition.replace("{last}", if matches { &self.matching } else { &self.miss })
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::suite::Options;

    #[test]
    fn cases_have_mixes_that_add_up() {
        for is_quick in [false, true] {
            let definition = Definition::read(&Options::of(is_quick)).expect("it can be read");
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
