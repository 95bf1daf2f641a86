//! The suite as data: `bench/definitions/sketch-accuracy.toml`, which explains the fields.

use farpool::model::{Counters, SketchParameters};
use serde::Deserialize;

/// The suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub seeds: u64,
    pub quick: Quick,
    pub uniform: Vec<Uniform>,
    pub zipf: Vec<Zipf>,
    pub sketches: Vec<SketchDefinition>,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    seeds: u64,
    most: u64,
}

/// Data sets in which every value occurs as often.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uniform {
    pub times: u64,
    pub distinct: Vec<u64>,
}

/// Data sets with skew.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zipf {
    pub skew: f64,
    pub rows: Vec<u64>,
}

/// The parameters of sketches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SketchDefinition {
    pub name: String,
    distinct: Option<u8>,
    frequency: Option<[u8; 2]>,
    second_moment: Option<[u8; 2]>,
    pub error_max: Option<f64>,
}

impl Definition {
    /// What `--quick` runs.
    pub fn shrink_to_quick(&mut self) {
        self.seeds = self.quick.seeds;
        let most = self.quick.most;
        self.uniform.iter_mut().for_each(|data| data.distinct.retain(|distinct| *distinct <= most));
        self.zipf.iter_mut().for_each(|data| data.rows.retain(|rows| *rows <= most));
    }
}

impl SketchDefinition {
    pub fn parameters(&self) -> SketchParameters {
        let counters = |shape: [u8; 2]| Counters { rows: shape[0], precision: shape[1] };
        SketchParameters {
            distinct: self.distinct,
            frequency: self.frequency.map(counters),
            second_moment: self.second_moment.map(counters),
            top: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;

    #[test]
    fn the_parameters_hold() {
        let definition: Definition = places::definition("sketch-accuracy").expect("it can be read");
        for sketch in &definition.sketches {
            farpool_statistics::check(&sketch.parameters()).expect("the parameters hold");
        }
    }
}
