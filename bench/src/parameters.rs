//! Parses parameters of sketches in definitions, written as in SQL:
//! `distinct=16 frequency=6x13 second_moment=6x13`.

use farpool::model::SketchParameters;
use serde::{Deserialize, Deserializer, de::Error};

/// Parses and checks the parameters.
pub fn read<'d, D: Deserializer<'d>>(from: D) -> Result<SketchParameters, D::Error> {
    let parameters: SketchParameters = String::deserialize(from)?.parse().map_err(D::Error::custom)?;
    parameters.check().map_err(D::Error::custom)?;
    Ok(parameters)
}
