//! Decides whether an aggregation uses the *whole-table way* (one array of groups for the whole table, indexed by
//! a number that is computed from the group keys), and how the words of a group are laid out.

use crate::aggregate::aggregation::{AggregateResult, Aggregation, Key};
use crate::aggregate::dense::KeyFrame;
use crate::aggregate::dense::{Measures, Source, SumOf};
use crate::aggregate::extent::{Extent, bounds_of, nullable};
use crate::aggregate::unfit::{DOMAIN_UNKNOWN, Fit, NOT_ON_LANES, Unfit};
use arrow_schema::DataType;
use farpool_columns::RowGroup;
use farpool_model::Fold;
use farpool_model::cast::{u64_from, usize_saturating};

/// Maximum number of words of the array per row of the table. Reason: clearing and reading a word sequentially costs
/// about a tenth of hashing a row.
const WORDS_PER_ROW_MAX: u64 = 4;

/// Number of groups up to which an array per row group is faster, because it fits the L1 cache.
const GROUPS_MIN: usize = 64;

/// Maximum number of groups. Reason: group numbers, including that of the discard group, have 32 bits.
const GROUPS_MAX: usize = 1 << 31;

const NOTHING_TO_INDEX: Unfit = Unfit("there is no key, or no row group passes the filter");
const DOMAIN_TOO_LARGE: Unfit = Unfit("the domain of the keys is too large for so few rows");
const DOMAIN_SMALL: Unfit = Unfit("so few groups are faster row group by row group");
const ARRAY_TOO_LARGE: Unfit = Unfit("an array of all groups does not fit each worker's memory");
const VALUES_TOO_FAR_APART: Unfit = Unfit("values of a minimum or maximum lie too far apart");

/// An aggregation adapted to a table for the whole-table way.
pub(crate) struct Whole {
    pub(super) keys: Vec<KeyFrame>,
    /// Number of possible groups: the product of the numbers of distinct codes of the group keys.
    pub(super) domain: usize,
    pub(super) measures: Measures,
    /// For each fold (such as a minimum), the least and the greatest value that it can have.
    pub(super) bounds: Vec<(i64, i64)>,
    pub(super) form: Form,
}

/// Layout of the words of a group. A group exists if its first word is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One bit per group: only the existing groups are wanted, and no aggregate function.
    Bits,
    /// The number of rows, then the sums, then the folds.
    Rows,
    /// The sums, then the folds. The first sum is stored doubled and with its lowest bit set, so that it is not 0.
    Tagged,
    /// Only folds, the first of which is a pick (minimum, maximum or any value).
    Picks,
}

impl Form {
    /// Returns the number of words before the sums.
    pub(super) fn rows_words(self) -> usize {
        usize::from(self == Form::Rows)
    }
}

impl Whole {
    /// Adapts `aggregation` to `groups`, the only row groups that it will read. Each worker may use `bytes_max`
    /// bytes. Returns [`Unfit`] if the whole-table way cannot be used.
    pub(crate) fn fit(aggregation: &Aggregation, groups: &[&RowGroup], bytes_max: usize) -> Fit<Whole> {
        if aggregation.keys.is_empty() || groups.is_empty() {
            return Err(NOTHING_TO_INDEX);
        }
        let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
        let (keys, domain) = frames(&aggregation.keys, &intervals, groups)?;
        let rows = groups.iter().map(|group| u64_from(group.rows)).sum();
        let extent =
            Extent { rows, nullable: &|column| nullable(groups, column), interval: &|lane| intervals[lane] };
        let measures = Measures::of(aggregation, &extent)?;
        let bounds = measures.folds.iter().map(|of| intervals[of.lane]).collect::<Option<Vec<_>>>();
        let bounds = bounds.ok_or(NOT_ON_LANES)?;
        // The array stores a minimum or maximum as the distance from the worst possible value, plus one, which must
        // fit 64 bits.
        if bounds.iter().any(|(min, max)| max.abs_diff(*min) == u64::MAX) {
            return Err(VALUES_TOO_FAR_APART);
        }
        let form = form(aggregation, &measures);
        Whole { keys, domain, measures, bounds, form }.if_it_pays(rows, bytes_max)
    }

    /// Returns `self` if an array of all possible groups costs less than a hash table of the groups of `rows` rows;
    /// otherwise the reason.
    fn if_it_pays(self, rows: u64, bytes_max: usize) -> Fit<Whole> {
        if self.words_held() as u64 > WORDS_PER_ROW_MAX.saturating_mul(rows) {
            return Err(DOMAIN_TOO_LARGE);
        }
        if self.bytes() > bytes_max {
            return Err(ARRAY_TOO_LARGE);
        }
        if self.domain <= GROUPS_MIN && self.form != Form::Bits {
            return Err(DOMAIN_SMALL);
        }
        Ok(self)
    }

    /// Returns how the group keys are coded.
    pub(crate) fn keys(&self) -> &[KeyFrame] {
        &self.keys
    }

    /// Returns the measures of each group.
    pub(crate) fn measures(&self) -> &Measures {
        &self.measures
    }

    /// Returns the bytes of each worker's array.
    pub(crate) fn bytes(&self) -> usize {
        self.words_held() * size_of::<i64>()
    }

    /// Returns the number of words per group.
    pub(super) fn words(&self) -> usize {
        self.form.rows_words() + self.measures.sums.len() + self.measures.folds.len()
    }

    /// Returns the number of words of all groups, including the discard group.
    pub(super) fn words_held(&self) -> usize {
        match self.form {
            Form::Bits => self.domain / 64 + 1,
            _ => (self.domain + 1).saturating_mul(self.words()),
        }
    }
}

/// Returns how each group key is coded, and the number of possible groups.
fn frames(
    keys: &[Key],
    intervals: &[Option<(i64, i64)>],
    groups: &[&RowGroup],
) -> Fit<(Vec<KeyFrame>, usize)> {
    let mut stride = 1_usize;
    let mut frames = Vec::with_capacity(keys.len());
    for key in keys {
        let data_type = key.compiled.data_type().clone();
        let (min, max) = match (&data_type, key.compiled.as_column(), key.lane) {
            (DataType::Boolean, Some(_), _) => (0, 1),
            (_, _, Some(lane)) => intervals[lane].ok_or(DOMAIN_UNKNOWN)?,
            _ => return Err(DOMAIN_UNKNOWN),
        };
        let nullable = key.compiled.columns().iter().any(|column| nullable(groups, *column));
        let values = usize_saturating(max.abs_diff(min)).saturating_add(1);
        let domain = values.saturating_add(usize::from(nullable));
        frames.push(KeyFrame { min, domain, stride, nullable, data_type });
        let product = stride.checked_mul(domain).filter(|product| *product <= GROUPS_MAX);
        stride = product.ok_or(DOMAIN_TOO_LARGE)?;
    }
    Ok((frames, stride))
}

fn form(aggregation: &Aggregation, measures: &Measures) -> Form {
    // A row count that is only compared with 0 is not stored, because every group in the array has rows.
    let mut counted = aggregation.results.iter().filter_map(AggregateResult::count_shown);
    if counted.any(|accumulator| matches!(measures.sources[accumulator], Source::AllRows)) {
        return Form::Rows;
    }
    match (measures.sums.first(), measures.folds.first().map(|of| of.fold)) {
        (None, None) => Form::Bits,
        (Some(SumOf::Lane(..) | SumOf::Rows(_)), _) => Form::Tagged,
        // The fold is of all rows, without a mask: with a mask there would be a sum that counts the rows of the mask.
        (None, Some(Fold::Pick(_))) => Form::Picks,
        // The word of a bitwise operation may be 0 in a group that exists, so that rows are counted.
        (None, Some(Fold::Bits(_))) => Form::Rows,
    }
}
