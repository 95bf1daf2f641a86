//! Lanes (columns or integer expressions that are evaluated as 64-bit integers) bound to one row group, and their
//! evaluation. A *node* is a column reference or an operation of such an expression.

use super::build::{LaneId, LaneOp, Lanes};
use super::kernels::{Map, Zip};
use farpool_columns::{Integers, Level, RowGroup};
use farpool_model::DatePart;

/// Rows of a row group for which lanes are evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowSet<'a> {
    /// All rows from `start` (the start of a block) to `end`.
    Range(usize, usize),
    /// Single rows, in ascending order.
    Rows(&'a [u32]),
}

impl RowSet<'_> {
    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            RowSet::Range(start, end) => end - start,
            RowSet::Rows(rows) => rows.len(),
        }
    }
}

/// Nodes of [`Lanes`] bound to one row group, except those that cannot be evaluated for it.
pub(crate) struct BoundLanes<'a> {
    lanes: &'a Lanes,
    nodes: Vec<Option<Bound<'a>>>,
}

#[derive(Clone, Copy)]
struct Bound<'a> {
    min: i64,
    max: i64,
    column: Option<Integers<'a>>,
}

/// Buffers for the values of each node, reused from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct LaneBuffers {
    values: Vec<Vec<i64>>,
    done: Vec<bool>,
    scratch: Vec<i64>,
    bits: Vec<Vec<u64>>,
}

impl Lanes {
    /// Binds the nodes that can be evaluated for `group` without overflow.
    pub(crate) fn bind<'a>(&'a self, group: &'a RowGroup) -> BoundLanes<'a> {
        let mut bound = BoundLanes { lanes: self, nodes: Vec::with_capacity(self.nodes.len()) };
        for lane in &self.nodes {
            let node = bound.bind_node(lane.op, lane.range, group);
            bound.nodes.push(node);
        }
        bound
    }

    /// Returns for each node the least and the greatest value that it can have, given the minimum and maximum of each
    /// column by `columns`; `None` for nodes that may overflow then.
    pub(crate) fn intervals(&self, columns: impl Fn(usize) -> Option<(i64, i64)>) -> Vec<Option<(i64, i64)>> {
        let mut intervals = Vec::with_capacity(self.nodes.len());
        for lane in &self.nodes {
            let known = interval(lane.op, lane.range, |id| intervals[id], &columns);
            intervals.push(known);
        }
        intervals
    }
}

impl<'a> BoundLanes<'a> {
    fn bind_node(&self, op: LaneOp, range: (i128, i128), group: &'a RowGroup) -> Option<Bound<'a>> {
        let column = match op {
            LaneOp::Column(index) => Some(group.chunks[index].integers()?),
            _ => None,
        };
        let of = |id: LaneId| self.nodes[id].map(|b| (b.min, b.max));
        let (min, max) = interval(op, range, of, |_| column.map(|c| (c.min(), c.max())))?;
        Some(Bound { min, max, column })
    }

    /// Returns the least and the greatest value that the node can have in this row group; `None` if it is not bound.
    pub(crate) fn interval(&self, id: LaneId) -> Option<(i64, i64)> {
        self.nodes[id].map(|b| (b.min, b.max))
    }

    /// Returns the bit-packed integers of the column, if the node is only a column reference; otherwise `None`.
    pub(crate) fn integers(&self, id: LaneId) -> Option<Integers<'a>> {
        self.nodes[id].and_then(|b| b.column)
    }

    /// Evaluates the `wanted` nodes, all of which must be bound, over `rows`.
    pub(crate) fn evaluate(&self, wanted: &[LaneId], rows: RowSet<'_>, buffers: &mut LaneBuffers) {
        buffers.values.resize_with(self.nodes.len(), Vec::new);
        buffers.done.clear();
        buffers.done.resize(self.nodes.len(), false);
        wanted.iter().for_each(|id| self.node(*id, rows, buffers));
    }

    fn node(&self, id: LaneId, rows: RowSet<'_>, buffers: &mut LaneBuffers) {
        if std::mem::replace(&mut buffers.done[id], true) {
            return;
        }
        let mut out = std::mem::take(&mut buffers.values[id]);
        match self.lanes.nodes[id].op {
            LaneOp::Column(_) => {
                let integers = self.nodes[id].and_then(|b| b.column).expect("only bound nodes are evaluated");
                load(&integers, rows, &mut out);
            }
            LaneOp::Constant(_) => {
                out.clear();
                out.resize(rows.len(), self.constant(id).expect("a constant node"));
            }
            LaneOp::Negate(e) => {
                self.node(e, rows, buffers);
                map(&buffers.values[e], &mut out, |v| -v);
            }
            LaneOp::Extract(part, units_per_day, e) => {
                self.node(e, rows, buffers);
                extract(part, units_per_day, &buffers.values[e], &mut out);
            }
            LaneOp::Add(l, r) => self.add(l, r, rows, buffers, &mut out),
            LaneOp::Subtract(l, r) => self.subtract(l, r, rows, buffers, &mut out),
            LaneOp::Multiply(l, r) => self.multiply(l, r, rows, buffers, &mut out),
        }
        buffers.values[id] = out;
    }

    fn constant(&self, id: LaneId) -> Option<i64> {
        match self.nodes[id] {
            Some(b) if b.min == b.max => Some(b.min),
            _ => None,
        }
    }

    fn add(&self, l: LaneId, r: LaneId, rows: RowSet<'_>, buffers: &mut LaneBuffers, out: &mut Vec<i64>) {
        match (self.constant(l), self.constant(r)) {
            (Some(k), _) => {
                self.node(r, rows, buffers);
                map(&buffers.values[r], out, |v| k + v);
            }
            (_, Some(k)) => {
                self.node(l, rows, buffers);
                map(&buffers.values[l], out, |v| v + k);
            }
            _ => {
                self.both(l, r, rows, buffers);
                zip(&buffers.values[l], &buffers.values[r], out, |a, b| a + b);
            }
        }
    }

    fn subtract(
        &self,
        l: LaneId,
        r: LaneId,
        rows: RowSet<'_>,
        buffers: &mut LaneBuffers,
        out: &mut Vec<i64>,
    ) {
        match (self.constant(l), self.constant(r)) {
            (Some(k), _) => {
                self.node(r, rows, buffers);
                map(&buffers.values[r], out, |v| k - v);
            }
            (_, Some(k)) => {
                self.node(l, rows, buffers);
                map(&buffers.values[l], out, |v| v - k);
            }
            _ => {
                self.both(l, r, rows, buffers);
                zip(&buffers.values[l], &buffers.values[r], out, |a, b| a - b);
            }
        }
    }

    fn multiply(
        &self,
        l: LaneId,
        r: LaneId,
        rows: RowSet<'_>,
        buffers: &mut LaneBuffers,
        out: &mut Vec<i64>,
    ) {
        match (self.constant(l), self.constant(r)) {
            (Some(k), _) => {
                self.node(r, rows, buffers);
                map(&buffers.values[r], out, |v| k * v);
            }
            (_, Some(k)) => {
                self.node(l, rows, buffers);
                map(&buffers.values[l], out, |v| v * k);
            }
            _ if self.fits_u32(l) && self.fits_u32(r) => {
                self.both(l, r, rows, buffers);
                // The product of two 32-bit integers to 64 bits is one vector instruction on every level of CPU
                // instructions; that of 64-bit integers is not.
                let low = |v: i64| u64::from(v as u32);
                zip(&buffers.values[l], &buffers.values[r], out, |a, b| (low(a) * low(b)) as i64);
            }
            _ => {
                self.both(l, r, rows, buffers);
                zip(&buffers.values[l], &buffers.values[r], out, |a, b| a * b);
            }
        }
    }

    fn both(&self, l: LaneId, r: LaneId, rows: RowSet<'_>, buffers: &mut LaneBuffers) {
        self.node(l, rows, buffers);
        self.node(r, rows, buffers);
    }

    fn fits_u32(&self, id: LaneId) -> bool {
        self.interval(id).is_some_and(|(min, max)| min >= 0 && max <= i64::from(u32::MAX))
    }
}

impl LaneBuffers {
    /// Returns the values of a node after its evaluation.
    pub(crate) fn values(&self, id: LaneId) -> &[i64] {
        &self.values[id]
    }

    /// Returns a buffer for temporary values, which the next evaluation overwrites.
    pub(crate) fn scratch(&mut self) -> &mut Vec<i64> {
        &mut self.scratch
    }

    /// Takes a bitmap of `words` words, all of them 0. Return it by [`LaneBuffers::give_bits`] for reuse.
    pub(crate) fn take_bits(&mut self, words: usize) -> Vec<u64> {
        let mut bits = self.bits.pop().unwrap_or_default();
        bits.clear();
        bits.resize(words, 0);
        bits
    }

    /// Keeps a bitmap for later calls of [`LaneBuffers::take_bits`].
    pub(crate) fn give_bits(&mut self, bits: Vec<u64>) {
        self.bits.push(bits);
    }

    /// Returns the bytes of memory that the buffers take.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.values.iter().map(Vec::capacity).chain(self.bits.iter().map(Vec::capacity));
        (words.sum::<usize>() + self.scratch.capacity()) * 8
    }
}

/// Returns the least and the greatest value of a node, given those of its operands; `None` if it may not fit 64 bits or
/// `range`.
fn interval(
    op: LaneOp,
    range: (i128, i128),
    nodes: impl Fn(LaneId) -> Option<(i64, i64)>,
    columns: impl Fn(usize) -> Option<(i64, i64)>,
) -> Option<(i64, i64)> {
    let wide = |(min, max): (i64, i64)| (i128::from(min), i128::from(max));
    let of = |id: LaneId| nodes(id).map(wide);
    let (min, max) = match op {
        LaneOp::Column(index) => columns(index).map(wide)?,
        LaneOp::Constant(value) => (value, value),
        LaneOp::Add(l, r) => {
            let (l, r) = (of(l)?, of(r)?);
            (l.0 + r.0, l.1 + r.1)
        }
        LaneOp::Subtract(l, r) => {
            let (l, r) = (of(l)?, of(r)?);
            (l.0 - r.1, l.1 - r.0)
        }
        LaneOp::Multiply(l, r) => {
            // The bounds have 64 bits, so that their products fit 128 bits.
            let (l, r) = (of(l)?, of(r)?);
            let corners = [l.0 * r.0, l.0 * r.1, l.1 * r.0, l.1 * r.1];
            corners.iter().fold((corners[0], corners[0]), |(lo, hi), c| (lo.min(*c), hi.max(*c)))
        }
        LaneOp::Negate(e) => of(e).map(|e| (-e.1, -e.0))?,
        LaneOp::Extract(part, units_per_day, e) => {
            // Times beyond the calendar are NULL, which lanes cannot tell.
            let times = nodes(e).filter(|times| DatePart::are_of_calendar(*times, units_per_day))?;
            wide(part.range(times, units_per_day))
        }
    };
    if min < range.0 || max > range.1 {
        return None;
    }
    Some((i64::try_from(min).ok()?, i64::try_from(max).ok()?))
}

/// Replaces `out` by the values of a bit-packed column at `rows`.
fn load(integers: &Integers<'_>, rows: RowSet<'_>, out: &mut Vec<i64>) {
    match rows {
        RowSet::Range(start, end) => integers.unpack(start..end, out),
        RowSet::Rows(rows) => integers.gather(rows, out),
    }
}

/// Replaces `out` by a part of each time. The part and the unit are constants in each loop, so that it is vector code
/// for dates.
fn extract(part: DatePart, units_per_day: i64, times: &[i64], out: &mut Vec<i64>) {
    macro_rules! extracted {
        ($($part:ident)*) => {
            match (part, units_per_day) {
                $((DatePart::$part, 1) => map(times, out, |time| DatePart::$part.of(time, 1)),
                (DatePart::$part, _) => map(times, out, |time| DatePart::$part.of(time, units_per_day)),)*
            }
        };
    }
    extracted!(Year IsoYear Quarter Month Week Day DayOfYear DayOfWeek IsoDayOfWeek Hour Minute Second);
}

/// Replaces `out` by `f` of each value.
#[inline]
fn map(input: &[i64], out: &mut Vec<i64>, f: impl Fn(i64) -> i64) {
    out.resize(input.len(), 0);
    Level::best().run(Map { input, out, f });
}

/// Replaces `out` by `f` of each pair of values.
#[inline]
fn zip(left: &[i64], right: &[i64], out: &mut Vec<i64>, f: impl Fn(i64, i64) -> i64) {
    out.resize(left.len(), 0);
    Level::best().run(Zip { left, right, out, f });
}
