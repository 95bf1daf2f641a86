//! Substrait plans, encoded from programs and decoded to them: the standard form in which engines hand over
//! work (substrait.io, version 0.85; older plans are read too).
//!
//! Encoded plans are Read → Filter → Project or Aggregate → Sort → Fetch. The decoder accepts more: several
//! projections and filters, composed into one program; see `docs/wire.md` for the whole list. A function or
//! expression that is not supported becomes [`farpool_model::Expr::Opaque`], so that the node can answer for
//! the rest; an unsupported relation (a join, a window) is an error. Levels and nodes are counted before
//! anything is decoded deeper.

mod aggregates;
mod decode;
mod encode;
mod expressions;
mod functions;
mod order;
mod proto;
mod size;
mod types;

pub use decode::{decode_program, decode_program_within};
pub use encode::encode_program;

#[cfg(test)]
use farpool_model::AggregateFunction;
use farpool_model::{Error, Result};

/// Decodes one message of a plan.
fn read<M: prost::Message + Default>(bytes: &bytes::Bytes) -> Result<M> {
    M::decode(bytes.clone()).map_err(|error| Error::corrupt(format!("a damaged plan: {error}")))
}

/// Returns name and extension of every supported function, to compare with the page that lists them.
#[cfg(test)]
pub(crate) fn function_names() -> Vec<(String, String)> {
    let scalar = functions::SCALAR.iter().map(|(name, urn, _)| (name.to_string(), urn.to_string()));
    let aggregate = AggregateFunction::NAMED.iter().flat_map(|function| {
        let known = function.description();
        let aliases = known.aliases.iter().map(|alias| (alias.to_string(), functions::FARPOOL.to_string()));
        [(known.name.to_string(), functions::urn(known.extension).to_string())].into_iter().chain(aliases)
    });
    scalar.chain(aggregate).collect()
}

#[cfg(test)]
mod tests;
