//! Why a way cannot be taken.

/// Why a way cannot be taken, in words that go on from "because": shown to whoever asks how a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit(pub(super) &'static str);

/// What a way needs to run, or why it cannot be taken.
pub(crate) type Fit<T> = std::result::Result<T, Unfit>;

/// The keys have no codes or bounds that could number the groups.
pub(super) const DOMAIN_UNKNOWN: Unfit = Unfit("the domain of the keys is not known");

/// An aggregate needs more than a lane.
pub(super) const NOT_ON_LANES: Unfit = Unfit("an aggregate needs decoded values");

/// A sum has to be wider than a lane.
pub(super) const SUM_TOO_WIDE: Unfit = Unfit("a sum may leave 64 bits");
