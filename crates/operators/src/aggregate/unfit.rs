//! Reasons why a way is not applicable.

/// Why a way is not applicable, as a clause that can follow "because"; shown when a program is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit(pub(super) &'static str);

/// The data that a way needs to run, or why it is not applicable.
pub(crate) type Fit<T> = std::result::Result<T, Unfit>;

/// The keys have no codes or bounds that could number the groups.
pub(super) const DOMAIN_UNKNOWN: Unfit = Unfit("the domain of the keys is not known");

/// An aggregate cannot be computed on lanes.
pub(super) const NOT_ON_LANES: Unfit = Unfit("an aggregate needs decoded values");

/// A sum may not fit a lane.
pub(super) const SUM_TOO_WIDE: Unfit = Unfit("a sum may leave 64 bits");
