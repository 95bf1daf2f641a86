//! Reasons why a *way* (an implementation of aggregation) cannot be used.

/// Reason why a way cannot be used, as a clause that can follow "because" in EXPLAIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit(pub(super) &'static str);

/// Data that a way needs, or the reason why the way cannot be used.
pub(crate) type Fit<T> = std::result::Result<T, Unfit>;

/// The group keys have neither codes nor known minimum and maximum, from which group numbers could be computed.
pub(super) const DOMAIN_UNKNOWN: Unfit = Unfit("the domain of the keys is not known");

/// An aggregate function cannot be computed from lanes.
pub(super) const NOT_ON_LANES: Unfit = Unfit("an aggregate needs decoded values");

/// A sum may not fit 64 bits.
pub(super) const SUM_TOO_WIDE: Unfit = Unfit("a sum may leave 64 bits");
