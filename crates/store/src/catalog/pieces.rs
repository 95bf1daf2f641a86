//! The row groups of a load on their way into the pool, in pieces that several threads work on at once.
//!
//! A row group is encoded one column at a time, and then placed in the pool as a whole. Row groups leave in
//! the order in which their rows came. This file starts no threads: whoever takes a [`Piece`] runs it and
//! brings back the result.

use farpool_columns::{Chunk, Encoder, PlainGroup, RowGroup};
use farpool_model::Result;
use std::collections::VecDeque;
use std::sync::Arc;

/// A unit of a load's encoding work, done by one thread in about a millisecond.
#[derive(Debug)]
pub struct Piece {
    group: u64,
    work: PieceWork,
    encoder: Encoder,
}

#[derive(Debug)]
enum PieceWork {
    Encode { plain: Arc<PlainGroup>, column: usize },
    Place { rows: usize, chunks: Vec<Chunk> },
}

/// The result of a piece, to be given back to its load.
#[derive(Debug)]
pub struct PieceDone {
    group: u64,
    outcome: PieceOutcome,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time for each thread, moved twice")]
enum PieceOutcome {
    Encoded { column: usize, chunk: Chunk },
    Placed(RowGroup),
}

impl Piece {
    /// Runs the piece. Its result must be passed to [`super::Load::done`].
    ///
    /// # Errors
    /// `Invalid` when a value cannot be encoded; `OverLimit` when the pool is full. The load cannot go on then.
    pub fn run(self) -> Result<PieceDone> {
        let outcome = match self.work {
            PieceWork::Encode { plain, column } => {
                PieceOutcome::Encoded { column, chunk: self.encoder.encode_column(&plain, column)? }
            }
            PieceWork::Place { rows, chunks } => PieceOutcome::Placed(self.encoder.place(rows, chunks)?),
        };
        Ok(PieceDone { group: self.group, outcome })
    }
}

/// The row groups of one load that are being encoded.
#[derive(Debug)]
pub(super) struct Pieces {
    encoder: Encoder,
    /// Row groups in the order of their rows.
    groups: VecDeque<Group>,
    /// Number of the first group in `groups`.
    first: u64,
}

#[derive(Debug)]
struct Group {
    rows: usize,
    bytes_held: usize,
    columns_handed_out: usize,
    state: GroupState,
}

#[derive(Debug)]
enum GroupState {
    Encoding { plain: Arc<PlainGroup>, chunks: Vec<Option<Chunk>> },
    Placing,
    Placed(RowGroup),
}

impl Pieces {
    pub fn new(encoder: Encoder) -> Self {
        Pieces { encoder, groups: VecDeque::new(), first: 0 }
    }

    /// Adds a row group behind the others.
    pub fn add(&mut self, plain: PlainGroup) {
        let chunks = (0..plain.columns_count()).map(|_| None).collect();
        self.groups.push_back(Group {
            rows: plain.rows(),
            bytes_held: plain.bytes_held(),
            columns_handed_out: 0,
            state: GroupState::Encoding { plain: Arc::new(plain), chunks },
        });
    }

    /// Number of row groups added and not yet taken by [`Pieces::take_placed`].
    pub fn groups_count(&self) -> usize {
        self.groups.len()
    }

    /// Bytes of memory that rows hold which are not encoded yet.
    pub fn bytes_held(&self) -> usize {
        self.groups.iter().map(|group| group.bytes_held).sum()
    }

    /// Whether [`Pieces::next`] has a piece.
    pub fn has_next(&self) -> bool {
        self.groups.iter().any(Group::has_next)
    }

    /// Takes the next piece; `None` when every piece has been taken.
    pub fn next(&mut self) -> Option<Piece> {
        let index = self.groups.iter().position(Group::has_next)?;
        let work = self.groups[index].next()?;
        let group = self.first + index as u64;
        Some(Piece { group, work, encoder: self.encoder.clone() })
    }

    /// Takes back a finished piece.
    pub fn done(&mut self, done: PieceDone) {
        let index = done.group.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(group) = index.and_then(|index| self.groups.get_mut(index)) {
            group.done(done.outcome);
        }
    }

    /// Takes the first row group, once it is in the pool.
    pub fn take_placed(&mut self) -> Option<RowGroup> {
        if !matches!(self.groups.front()?.state, GroupState::Placed(_)) {
            return None;
        }
        self.first += 1;
        match self.groups.pop_front()?.state {
            GroupState::Placed(group) => Some(group),
            GroupState::Encoding { .. } | GroupState::Placing => None,
        }
    }
}

impl Group {
    fn has_next(&self) -> bool {
        match &self.state {
            GroupState::Encoding { chunks, .. } => {
                self.columns_handed_out < chunks.len() || chunks.iter().all(Option::is_some)
            }
            GroupState::Placing | GroupState::Placed(_) => false,
        }
    }

    fn next(&mut self) -> Option<PieceWork> {
        let GroupState::Encoding { plain, chunks } = &mut self.state else { return None };
        if self.columns_handed_out < chunks.len() {
            let column = self.columns_handed_out;
            self.columns_handed_out += 1;
            return Some(PieceWork::Encode { plain: plain.clone(), column });
        }
        let chunks = chunks.iter_mut().map(Option::take).collect::<Option<Vec<_>>>()?;
        self.state = GroupState::Placing;
        self.bytes_held = 0;
        Some(PieceWork::Place { rows: self.rows, chunks })
    }

    fn done(&mut self, outcome: PieceOutcome) {
        match (outcome, &mut self.state) {
            (PieceOutcome::Placed(group), state) => *state = GroupState::Placed(group),
            (PieceOutcome::Encoded { column, chunk }, GroupState::Encoding { chunks, .. }) => {
                if let Some(slot) = chunks.get_mut(column) {
                    *slot = Some(chunk);
                }
            }
            (PieceOutcome::Encoded { .. }, _) => {}
        }
    }
}
