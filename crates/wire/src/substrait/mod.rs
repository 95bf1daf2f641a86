//! Substrait plans, the standard form in which query engines hand over work (substrait.io, version 0.85; older plans
//! are read, too). Encodes programs as plans and decodes plans to programs.
//!
//! Encoded plans are Read → Join → Filter → Project or Aggregate → Sort → Fetch. The decoder accepts more, such as several
//! projections and filters, which are composed into one program; `docs/wire.md` has the whole list. An unsupported
//! function or expression becomes [`farpool_model::Expr::Opaque`], so that the node can still run the rest. An
//! unsupported relation (a set operation, a window) is an error.
//!
//! A plan may come from anyone. Its nesting depth and its number of relations and expressions, in all sides of its joins
//! together, are limited, and counted before an inner part is decoded, so that no plan overflows the stack or takes much
//! memory.

mod aggregates;
mod decode;
mod encode;
mod expressions;
mod functions;
mod given;
mod joins;
mod order;
mod proto;
mod size;
mod types;

pub use decode::{decode_program, decode_program_within};
pub use encode::encode_program;

#[cfg(test)]
use farpool_model::AggregateFunction;
use farpool_model::{Error, Result};

/// Decodes one protocol buffer message of a plan.
fn read<M: prost::Message + Default>(bytes: &bytes::Bytes) -> Result<M> {
    M::decode(bytes.clone()).map_err(|error| Error::corrupt(format!("a damaged plan: {error}")))
}

/// Returns the name and the extension of every supported function, for the test that compares them with `docs/wire.md`.
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
