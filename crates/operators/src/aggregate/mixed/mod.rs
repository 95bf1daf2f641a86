//! The mixed way: uses lanes and codes where they are available, and decodes the rest.
//!
//! Groups are looked up in the form that is best for the keys ([`KeyForm`]): by dense numbers ([`dense`])
//! where their domain is not much larger than the row group, else as one packed integer ([`packed`]), else as
//! rows of words ([`words`]). Once there are many groups, rows are partitioned ([`super::radix`]) instead.
//! Arguments on lanes are not decoded, nor are, without keys, columns of few values whose sketch is wanted
//! ([`counted`]).

mod bound;
mod counted;
mod dense;
mod keys;
mod packed;
mod words;

pub(super) use bound::Mixed;
pub(super) use counted::CountsMemo;
pub use keys::KeyForm;
