//! The mixed way: reads encoded values where it can, and decodes the others.
//!
//! Groups are looked up in the form that is best for the group keys ([`KeyForm`]): by group numbers ([`dense`]) if
//! there are not many more possible combinations than rows, otherwise as one packed integer ([`packed`]) if they fit,
//! otherwise as a sequence of words ([`words`]). Once there are many groups, rows are partitioned first
//! ([`super::radix`]). Arguments that are lanes are not decoded. Nor are, without group keys, columns with few
//! distinct values of which a sketch is wanted ([`counted`]).

mod bound;
mod counted;
mod dense;
mod keys;
mod packed;
mod words;

pub(super) use bound::Mixed;
pub(super) use counted::CountsMemo;
pub use keys::KeyForm;
