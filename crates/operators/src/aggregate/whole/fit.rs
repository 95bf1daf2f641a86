//! Whether an aggregation goes the whole-table way, and how the words of its groups are laid out.

use super::table::WholeTable;
use crate::aggregate::aggregation::{AggregateResult, Aggregation, Key};
use crate::aggregate::dense::KeyFrame;
use crate::aggregate::dense::{Extent, Measures, Source, SumOf};
use arrow_schema::DataType;
use farpool_columns::RowGroup;
use farpool_model::Fold;
use farpool_model::cast::{u64_from, usize_saturating};

/// Words of the array per row of the table up to which it pays: emptying and reading a word in order costs
/// about a tenth of hashing a row.
const WORDS_PER_ROW_MAX: u64 = 4;

/// Groups up to which the tables of single row groups are faster: they stay in the L1 cache.
const GROUPS_MIN: usize = 64;

/// Groups up to which it is worth looking, before each row group, whether all are there: more need more rows
/// than most tables have.
const COMPLETE_MAX: usize = 64 << 10;

/// Groups that there may be; their numbers, and one more, take 32 bits.
const GROUPS_MAX: usize = 1 << 31;

/// An aggregation fitted to a table.
pub(crate) struct Whole {
    pub(super) keys: Vec<KeyFrame>,
    /// The product of the keys' domains.
    pub(super) domain: usize,
    pub(super) measures: Measures,
    /// For each fold, the bounds of what it is of.
    pub(super) bounds: Vec<(i64, i64)>,
    pub(super) form: Form,
}

/// How the words of a group are laid out. A group is there if its first word is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A bit per group: there is nothing to compute.
    Bits,
    /// The number of rows, then sums, then folds.
    Rows,
    /// Sums, the first of them doubled and with its lowest bit set; then folds.
    Tagged,
    /// Only folds, of which the first picks.
    Picks,
}

impl Form {
    /// Words before the sums.
    pub(super) fn rows_words(self) -> usize {
        usize::from(self == Form::Rows)
    }
}

impl Whole {
    /// Fits `aggregation` to the row groups `groups`, the only ones that will be run; `None` when it is not
    /// eligible or would take more than `bytes_max` per worker.
    pub(crate) fn fit(aggregation: &Aggregation, groups: &[&RowGroup], bytes_max: usize) -> Option<Whole> {
        if aggregation.keys.is_empty() || groups.is_empty() {
            return None;
        }
        let intervals = aggregation.lanes.intervals(|column| bounds_of(groups, column));
        let (keys, domain) = frames(&aggregation.keys, &intervals, groups)?;
        let rows = groups.iter().map(|group| u64_from(group.rows)).sum();
        let extent =
            Extent { rows, nullable: &|column| nullable(groups, column), interval: &|lane| intervals[lane] };
        let measures = Measures::of(aggregation, &extent)?;
        let bounds = measures.folds.iter().map(|of| intervals[of.lane]).collect::<Option<Vec<_>>>()?;
        // A picked value is held as its distance from a bound, and one more.
        if bounds.iter().any(|(min, max)| max.abs_diff(*min) == u64::MAX) {
            return None;
        }
        let form = form(aggregation, &measures);
        let whole = Whole { keys, domain, measures, bounds, form };
        let fits = whole.words_held() as u64 <= WORDS_PER_ROW_MAX.saturating_mul(rows)
            && whole.bytes() <= bytes_max
            && (domain > GROUPS_MIN || form == Form::Bits);
        fits.then_some(whole)
    }

    /// The keys.
    pub(crate) fn keys(&self) -> &[KeyFrame] {
        &self.keys
    }

    /// What is computed.
    pub(crate) fn measures(&self) -> &Measures {
        &self.measures
    }

    /// Whether every group is there, and there is nothing to compute.
    pub(crate) fn is_complete(&self, table: &WholeTable) -> bool {
        self.form == Form::Bits && self.domain <= COMPLETE_MAX && table.marked(self.domain) == self.domain
    }

    /// Bytes that each worker holds.
    pub(crate) fn bytes(&self) -> usize {
        self.words_held() * size_of::<i64>()
    }

    /// Words per group.
    pub(super) fn words(&self) -> usize {
        self.form.rows_words() + self.measures.sums.len() + self.measures.folds.len()
    }

    /// Words of all groups, and of one more for rows that are put aside.
    pub(super) fn words_held(&self) -> usize {
        match self.form {
            Form::Bits => self.domain / 64 + 1,
            _ => (self.domain + 1).saturating_mul(self.words()),
        }
    }
}

/// The bounds of a column, of whose chunks some may be all NULL; `None` when a chunk does not hold integers.
pub(crate) fn bounds_of(groups: &[&RowGroup], column: usize) -> Option<(i64, i64)> {
    let mut bounds: Option<(i64, i64)> = None;
    for group in groups {
        let chunk = &group.chunks[column];
        if chunk.null_count() == group.rows {
            continue;
        }
        let integers = chunk.integers()?;
        let (min, max) = bounds.unwrap_or((integers.min(), integers.max()));
        bounds = Some((min.min(integers.min()), max.max(integers.max())));
    }
    bounds
}

/// Whether a column has NULLs.
pub(crate) fn nullable(groups: &[&RowGroup], column: usize) -> bool {
    groups.iter().any(|group| group.chunks[column].null_count() > 0)
}

fn frames(
    keys: &[Key],
    intervals: &[Option<(i64, i64)>],
    groups: &[&RowGroup],
) -> Option<(Vec<KeyFrame>, usize)> {
    let mut stride = 1_usize;
    let mut frames = Vec::with_capacity(keys.len());
    for key in keys {
        let data_type = key.compiled.data_type().clone();
        let (min, max) = match (&data_type, key.compiled.as_column(), key.lane) {
            (DataType::Boolean, Some(_), _) => (0, 1),
            (_, _, Some(lane)) => intervals[lane]?,
            _ => return None,
        };
        let nullable = key.compiled.columns().iter().any(|column| nullable(groups, *column));
        let values = usize_saturating(max.abs_diff(min)).saturating_add(1);
        let domain = values.saturating_add(usize::from(nullable));
        frames.push(KeyFrame { min, domain, stride, nullable, data_type });
        stride = stride.checked_mul(domain).filter(|product| *product <= GROUPS_MAX)?;
    }
    Some((frames, stride))
}

fn form(aggregation: &Aggregation, measures: &Measures) -> Form {
    // A count that only tells whether there is any row is told by the group's being there.
    let mut counted = aggregation.results.iter().filter_map(AggregateResult::count_shown);
    if counted.any(|accumulator| matches!(measures.sources[accumulator], Source::AllRows)) {
        return Form::Rows;
    }
    match (measures.sums.first(), measures.folds.first().map(|of| of.fold)) {
        (None, None) => Form::Bits,
        (Some(SumOf::Lane(..) | SumOf::Rows(_)), _) => Form::Tagged,
        // Of all rows: under a mask it would have a sum that counts it.
        (None, Some(Fold::Pick(_))) => Form::Picks,
        // A word of bits that is 0 does not tell that the group is not there.
        (None, Some(Fold::Bits(_))) => Form::Rows,
    }
}
