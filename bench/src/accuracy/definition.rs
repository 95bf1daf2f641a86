//! The definition of the benchmark suite `sketch-accuracy`, read from `bench/definitions/sketch-accuracy.toml`(the
//! fields are explained there).

use crate::parameters;
use farpool::model::SketchParameters;
use serde::Deserialize;

/// A sketch with `seeds_max`, which serves comparison only, takes one in this many of the values.
const SHARE: u64 = 10;

/// The definition of the suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub seeds: u64,
    pub values_max: u64,
    /// Data sets with more distinct values or more rows are left out.
    most: Option<u64>,
    pub uniform: Vec<Uniform>,
    pub zipf: Vec<Zipf>,
    pub sketches: Vec<SketchDefinition>,
}

/// Data sets in which all values are equally frequent.
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

/// A sketch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SketchDefinition {
    #[serde(deserialize_with = "parameters::read")]
    pub parameters: SketchParameters,
    pub error_max: Option<f64>,
    pub seeds_max: Option<u64>,
    pub distinct_max: Option<u64>,
}

impl Definition {
    /// Returns whether data sets of this size take part.
    pub fn has(&self, size: &u64) -> bool {
        self.most.is_none_or(|most| *size <= most)
    }

    /// Returns the number of seeds for a data set with this many distinct values.
    pub fn seeds_for(&self, distinct: u64) -> u64 {
        (self.values_max / distinct.max(1)).clamp(1, self.seeds)
    }

    /// Returns whether a sketch takes part for this seed of a data set with this many distinct values.
    pub fn takes_part(&self, sketch: &SketchDefinition, seed: u64, distinct: u64) -> bool {
        let share = (self.values_max / SHARE / distinct.max(1)).max(1);
        sketch.seeds_max.is_none_or(|most| seed < most.min(share))
            && sketch.distinct_max.is_none_or(|most| distinct <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::Definition;
    use crate::places;

    #[test]
    fn large_data_sets_have_fewer_seeds() {
        let definition: Definition = places::definition("sketch-accuracy").expect("it can be read");
        assert_eq!(definition.seeds_for(1000), definition.seeds);
        assert_eq!(definition.seeds_for(2 * definition.values_max), 1);
        assert!(definition.sketches.iter().all(|sketch| definition.takes_part(sketch, 0, 1000)));
    }
}
