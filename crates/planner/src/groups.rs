//! Chooses which programs run as one ([`crate::union`]): groups of programs over one table that need similar rows and
//! columns, under a limit for memory (after "pipeline groups" of Geyer et al., CIDR 2023).
//!
//! The search minimizes the predicted time of all programs. A group costs
//!
//! ```text
//! (common conditions · rows + own conditions · (rows that meet those in common + rows of the group)
//!     + finish · rows of the group)/workers + bytes of the result/link + keeping the result
//! ```
//!
//! with the rates of [`crate::cost`]. A column that several programs return is counted once, and so is a condition that
//! all have. A row that only some programs need is sent with the columns of all. The latency of the first answer is
//! ignored, because separate programs run at the same time.
//!
//! For few programs, the best partition into groups is found by dynamic programming over their subsets. For more (set
//! partitioning is NP-hard), a heuristic is used: each program, the most expensive first, joins the group where that
//! saves most; then programs change groups, and groups merge, as long as the predicted time decreases.
//!
//! Invariant: no result of the search is predicted to cost more than all programs apart.

mod numbers;
mod search;

use crate::cost::{Place, Rates, filter_s, grouping};
use crate::estimate;
use crate::union::{Union, are_alike, conditions, union};
use farpool_model::{Expr, Output, Program, TableInfo};
use numbers::{Bits, Numbers};

/// Maximum number of distinct filters in a group. Reason: each becomes a column of the result, or a condition of
/// aggregates, for all rows of the group.
const FILTERS_MAX: usize = 16;

/// Maximum number of distinct filters for which it is estimated, for each pair, how many rows satisfy both. With more
/// filters, there would be too many pairs, and filters are assumed to be independent.
const PAIRS_OF_MAX: usize = 32;

/// Cost of storing a result completely and reading it again, as a multiple of the cost of decoding it.
const KEEPING: f64 = 2.0;

/// Estimated cost of programs, of one alone or of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Time of the workers and of the network link, in nanoseconds.
    pub ns: f64,
    /// Bytes that leave the pool.
    pub bytes: f64,
    /// Bytes of the results in the engine's memory, decoded.
    pub bytes_plain: f64,
}

/// A group of programs that run as one.
#[derive(Clone, Debug)]
pub struct Group {
    /// Positions of the programs in the list that was passed to [`groups`].
    pub members: Vec<usize>,
    /// The common program, and each program's part of its result.
    pub union: Union,
    /// Estimated cost of the common program.
    pub together: Expected,
    /// Sum of the estimated costs of the programs, each run alone.
    pub apart: Expected,
}

/// Returns the groups (of two programs or more) into which `programs` should be combined; programs in no group run
/// alone. The pool must be able to carry out all of them exactly, over one version of the table `info`. The result of a
/// group takes at most `bytes_max` bytes in the engine's memory.
pub fn groups(
    programs: &[&Program],
    info: &TableInfo,
    place: Place,
    rates: &Rates,
    bytes_max: f64,
) -> Vec<Group> {
    let kinds = kinds(programs).into_iter().filter(|kind| kind.len() > 1);
    kinds
        .flat_map(|positions| {
            let kind = Kind::new(positions, programs, info, place, rates, bytes_max);
            kind.grouped().into_iter().filter_map(|group| kind.group(&group, programs)).collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the positions of compatible programs (see [`are_alike`]), a list for each kind.
fn kinds(programs: &[&Program]) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (at, program) in programs.iter().enumerate() {
        match kinds.iter_mut().find(|kind| are_alike(programs[kind[0]], program)) {
            Some(kind) => kind.push(at),
            None if are_alike(program, program) => kinds.push(vec![at]),
            None => {}
        }
    }
    kinds
}

/// Compatible programs, prepared for the search: their filters, conditions and columns are represented by indexes into
/// these lists, so that equal ones are found quickly.
struct Kind {
    members: Vec<Member>,
    filters: Vec<Filter>,
    conditions: Vec<Condition>,
    columns: Vec<Column>,
    /// The fraction of the rows that satisfy two filters, at the index `first * filters.len() + second`; empty if it
    /// has not been computed.
    both: Vec<f64>,
    rows: f64,
    is_grouped: bool,
    has_keys: bool,
    rates: Rates,
    workers: f64,
    ns_per_byte: f64,
    bytes_max: f64,
}

struct Member {
    /// Position in the list of programs that was passed to [`groups`].
    position: usize,
    filter: usize,
    columns: Bits,
    /// Whether the program's columns cannot fail on any row, so that they may be computed on rows of other programs,
    /// too.
    is_total: bool,
}

struct Filter {
    conditions: Bits,
    /// The fraction of the rows that satisfy the filter.
    part: f64,
    /// Seconds of one thread for evaluating the filter on a row.
    seconds: f64,
    is_total: bool,
    /// Number of groups (GROUP BY) of the rows that satisfy the filter, and seconds for grouping one row.
    groups: f64,
    finish_s: f64,
}

struct Condition {
    part: f64,
    seconds: f64,
}

/// A column of a result: bytes per value in the engine's memory and on the network link.
struct Column {
    plain: f64,
    packed: f64,
}

/// A candidate for a group: some members that run as one.
#[derive(Clone, Debug)]
struct Joint {
    members: Vec<usize>,
    common: Bits,
    columns: Bits,
    /// The distinct filters of the members.
    filters: Vec<usize>,
    groups: f64,
    finish_s: f64,
    is_total: bool,
    expected: Expected,
}

impl Kind {
    fn new(
        positions: Vec<usize>,
        programs: &[&Program],
        info: &TableInfo,
        place: Place,
        rates: &Rates,
        bytes_max: f64,
    ) -> Self {
        let keys = match positions.first().map(|at| &programs[*at].output) {
            Some(Output::Aggregate { keys, .. }) => Some(keys.len()),
            _ => None,
        };
        let mut kind = Kind {
            members: Vec::with_capacity(positions.len()),
            filters: Vec::new(),
            conditions: Vec::new(),
            columns: Vec::new(),
            both: Vec::new(),
            rows: info.rows as f64,
            is_grouped: keys.is_some(),
            has_keys: keys.is_some_and(|keys| keys > 0),
            rates: *rates,
            workers: place.workers.max(1) as f64,
            ns_per_byte: place.link.map_or(0.0, |link| 1e9 / link.bytes_per_s.max(1.0)),
            bytes_max,
        };
        let (mut filters, mut all, mut columns) = (Numbers::new(), Numbers::new(), Numbers::new());
        for position in positions {
            let program = programs[position];
            let text = program.filter.as_ref().map_or_else(String::new, Expr::to_string);
            let (filter, is_new) = filters.number(text, program.filter.as_ref());
            if is_new {
                let filter = kind.filter(program, info, &mut all);
                kind.filters.push(filter);
            }
            let columns = kind.columns_of(program, filter, info, &mut columns);
            // The arguments of aggregates are computed only on the rows that satisfy the program's own filter, so that
            // they cannot fail on others.
            let is_total = match &program.output {
                Output::Rows(rows) => rows.iter().all(|row| !row.expr.may_fail(&info.schema).unwrap_or(true)),
                Output::Aggregate { .. } => true,
            };
            kind.members.push(Member { position, filter, columns, is_total });
        }
        if filters.all.len() <= PAIRS_OF_MAX {
            kind.both = both(&filters.all, info);
        }
        kind
    }

    fn filter(&mut self, program: &Program, info: &TableInfo, all: &mut Numbers<Expr>) -> Filter {
        let mut numbers = Vec::new();
        let (mut seconds, mut is_total) = (0.0, true);
        for condition in conditions(program) {
            let own = filter_s(&condition, 1.0, &self.rates);
            is_total &= !condition.may_fail(&info.schema).unwrap_or(true);
            seconds += own;
            let part = estimate::selectivity(&condition, info);
            let (number, is_new) = all.number(condition.to_string(), condition);
            if is_new {
                self.conditions.push(Condition { part, seconds: own });
            }
            numbers.push(number);
        }
        let part = program.filter.as_ref().map_or(1.0, |filter| estimate::selectivity(filter, info));
        let (groups, finish_s) = grouping(program, info, part * info.rows as f64, &self.rates);
        Filter { conditions: Bits::of(numbers), part, seconds, is_total, groups, finish_s }
    }

    /// Returns the columns of a program's result, without group keys. Aggregates over the rows of different filters are
    /// different columns.
    fn columns_of<'a>(
        &mut self,
        program: &'a Program,
        filter: usize,
        info: &TableInfo,
        numbers: &mut Numbers<(Option<usize>, ColumnOf<'a>)>,
    ) -> Bits {
        let mut found = Vec::new();
        let mut number = |text: String, thing, make: &dyn Fn() -> Column| {
            let (number, is_new) = numbers.number(text, thing);
            if is_new {
                self.columns.push(make());
            }
            found.push(number);
        };
        match &program.output {
            Output::Rows(columns) => {
                for expr in columns.iter().map(|column| &column.expr) {
                    let column = || Column {
                        plain: estimate::width(expr, info),
                        packed: estimate::packed_width(expr, info),
                    };
                    number(expr.to_string(), (None, ColumnOf::Rows(expr)), &column);
                }
            }
            Output::Aggregate { aggregates, .. } => {
                for aggregate in aggregates {
                    let bytes = estimate::result_width(aggregate);
                    let text = format!("{filter} {:?} {:?}", aggregate.function, aggregate.data_type);
                    let inputs =
                        aggregate.inputs().map(|input| input.to_string()).collect::<Vec<_>>().join(", ");
                    let thing = (Some(filter), ColumnOf::Groups(aggregate));
                    number(text + &inputs, thing, &|| Column { plain: bytes, packed: bytes });
                }
            }
        }
        Bits::of(found)
    }

    fn alone(&self, at: usize) -> Joint {
        let member = &self.members[at];
        let filter = &self.filters[member.filter];
        let mut joint = Joint {
            members: vec![at],
            common: filter.conditions.clone(),
            columns: member.columns.clone(),
            filters: vec![member.filter],
            groups: filter.groups,
            finish_s: filter.finish_s,
            is_total: member.is_total && filter.is_total,
            expected: Expected::default(),
        };
        joint.expected = self.expected(&joint);
        joint
    }

    /// Combines two candidates; returns `None` if they must not be combined or have nothing in common.
    fn joined(&self, a: &Joint, b: &Joint) -> Option<Joint> {
        let is_sharing = a.filters == b.filters || a.columns.meets(&b.columns) || a.common.meets(&b.common);
        if !is_sharing || !self.may_join(a, b) {
            return None;
        }
        let joint = self.join(a, b);
        (joint.expected.bytes_plain <= self.bytes_max).then_some(joint)
    }

    /// Returns whether one program can do the work of both: if their filters differ, nothing may fail on the rows of
    /// the other.
    fn may_join(&self, a: &Joint, b: &Joint) -> bool {
        if a.filters == b.filters {
            return true;
        }
        let others = b.filters.iter().filter(|filter| !a.filters.contains(filter)).count();
        a.is_total && b.is_total && a.filters.len() + others <= FILTERS_MAX
    }

    fn join(&self, a: &Joint, b: &Joint) -> Joint {
        let others = b.filters.iter().filter(|filter| !a.filters.contains(filter));
        let mut joint = Joint {
            members: a.members.iter().chain(&b.members).copied().collect(),
            common: a.common.and(&b.common),
            columns: a.columns.or(&b.columns),
            filters: a.filters.iter().chain(others).copied().collect(),
            groups: a.groups.max(b.groups),
            finish_s: a.finish_s.max(b.finish_s),
            is_total: a.is_total && b.is_total,
            expected: Expected::default(),
        };
        joint.expected = self.expected(&joint);
        joint
    }

    /// Returns the predicted cost of one group; see the formula at the top of this file.
    fn expected(&self, joint: &Joint) -> Expected {
        let filters = || joint.filters.iter().map(|filter| &self.filters[*filter]);
        let conditions = || joint.common.numbers().map(|condition| &self.conditions[condition]);
        let (common_s, product) =
            conditions().fold((0.0, 1.0), |(seconds, part), c| (seconds + c.seconds, part * c.part));
        let largest = filters().map(|filter| filter.part).fold(0.0, f64::max);
        let part_common = match joint.filters.len() {
            1 => largest,
            _ => f64::max(product, largest),
        };
        let passed = self.rows * self.part_of_any(&joint.filters, part_common);
        // The conditions that are not common are evaluated twice: to find the rows of the group, and to tell which
        // program they belong to.
        let own_s: f64 = filters().map(|filter| (filter.seconds - common_s).max(0.0)).sum();
        let is_open = filters().any(|filter| filter.conditions == joint.common);
        let (first, again) = match joint.filters.len() {
            1 => (0.0, 0.0),
            _ if is_open => (0.0, passed),
            _ => (self.rows * part_common, passed),
        };
        let filter_s = self.rows * common_s + (first + again) * own_s;
        let columns = || joint.columns.numbers().map(|column| &self.columns[column]);
        let (plain, packed) = columns().fold((0.0, 0.0), |(a, b), c| (a + c.plain, b + c.packed));
        let marks = if joint.filters.len() > 1 { joint.filters.len() as f64 } else { 0.0 };
        let (finish_s, out, mark_bytes) = match self.is_grouped {
            true => {
                let mark_bytes = if self.has_keys { 8.0 } else { 0.0 };
                // Each filter needs aggregates of its own, which are computed on the rows of the whole group.
                (passed * joint.finish_s * joint.filters.len() as f64, joint.groups, mark_bytes)
            }
            false => (passed * plain / self.rates.decode_bytes, passed, 0.125),
        };
        let bytes_plain = out * (plain + marks * mark_bytes);
        let bytes = out * (packed + marks * mark_bytes);
        let kept =
            if joint.members.len() > 1 { KEEPING * bytes_plain / self.rates.decode_bytes } else { 0.0 };
        let ns = ((filter_s + finish_s) / self.workers + kept) * 1e9 + bytes * self.ns_per_byte;
        Expected { ns, bytes, bytes_plain }
    }

    /// Returns the fraction of the rows that satisfy at least one of some filters; `common` is the fraction of the rows
    /// that satisfy the conditions which all these filters have in common.
    fn part_of_any(&self, filters: &[usize], common: f64) -> f64 {
        let mut any: f64 = 0.0;
        for (at, &filter) in filters.iter().enumerate() {
            let part = self.filters[filter].part;
            // Rows that satisfy both this filter and an earlier one have been counted already: at least the largest
            // such overlap.
            let met = filters[..at].iter().map(|&other| self.part_of_both(filter, other, common));
            any += (part - met.fold(0.0, f64::max)).max(0.0);
        }
        any.min(common)
    }

    fn part_of_both(&self, a: usize, b: usize, common: f64) -> f64 {
        match self.both.get(a * self.filters.len() + b) {
            Some(both) => *both,
            None if common > 0.0 => self.filters[a].part * self.filters[b].part / common,
            None => 0.0,
        }
    }

    fn group(&self, joint: &Joint, programs: &[&Program]) -> Option<Group> {
        let members: Vec<usize> = joint.members.iter().map(|member| self.members[*member].position).collect();
        let apart = joint.members.iter().fold(Expected::default(), |sum, member| {
            let own = self.alone(*member).expected;
            Expected {
                ns: sum.ns + own.ns,
                bytes: sum.bytes + own.bytes,
                bytes_plain: sum.bytes_plain + own.bytes_plain,
            }
        });
        let all: Vec<&Program> = members.iter().map(|position| programs[*position]).collect();
        Some(Group { union: union(&all)?, members, together: joint.expected, apart })
    }
}

/// Content of a result column: a value of rows, or an aggregate of groups.
#[derive(Clone, Copy, Debug)]
enum ColumnOf<'a> {
    Rows(&'a Expr),
    Groups(&'a farpool_model::Aggregate),
}

impl PartialEq for ColumnOf<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (ColumnOf::Rows(a), ColumnOf::Rows(b)) => a == b,
            // Aggregates that differ only in their names are equal.
            (ColumnOf::Groups(a), ColumnOf::Groups(b)) => {
                (a.function, &a.arguments, &a.filter, &a.data_type)
                    == (b.function, &b.arguments, &b.filter, &b.data_type)
            }
            (ColumnOf::Rows(_) | ColumnOf::Groups(_), _) => false,
        }
    }
}

/// Returns, for each pair of filters, the fraction of the rows that satisfy both; see [`Kind::both`].
fn both(filters: &[Option<&Expr>], info: &TableInfo) -> Vec<f64> {
    let count = filters.len();
    let mut both = vec![0.0; count * count];
    for a in 0..count {
        for b in 0..a {
            let meets = crate::split::conjunction(filters[a].into_iter().chain(filters[b]).cloned());
            let part = meets.map_or(1.0, |meets| estimate::selectivity(&meets, info));
            both[a * count + b] = part;
            both[b * count + a] = part;
        }
    }
    both
}

#[cfg(test)]
mod tests;
