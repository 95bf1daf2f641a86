//! The row groups of a load that are not in the pool yet, divided into pieces of work for several threads.
//!
//! A row group is encoded one column at a time, and then placed in the pool as a whole. Row groups are returned in the
//! order of their rows. With a data directory they are then written to a segment. This file starts no threads: the
//! caller that takes a [`Piece`] runs it and returns the result.

use super::durable::ChunkWriter;
use farpool_columns::{Chunk, Encoder, PlainGroup, RowGroup};
use farpool_disk::TableKey;
use farpool_model::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// A piece of a load's work, which takes one thread about a millisecond.
#[derive(Debug)]
pub struct Piece(PieceWork);

#[derive(Debug)]
enum PieceWork {
    Encode {
        group: u64,
        plain: Arc<PlainGroup>,
        column: usize,
        encoder: Encoder,
    },
    Place(Placement),
    /// Writes row groups to a segment.
    Keep {
        writer: ChunkWriter,
        groups: Vec<Arc<RowGroup>>,
        key: Option<Arc<TableKey>>,
    },
    /// The outcome of work that another thread has done already.
    Done(Result<PieceDone>),
}

/// An encoded row group that is to be placed in the pool.
#[derive(Debug)]
pub(super) struct Placement {
    group: u64,
    rows: usize,
    chunks: Vec<Chunk>,
    encoder: Encoder,
}

/// The result of a piece of work, which must be passed to [`super::Load::done`].
#[derive(Debug)]
pub struct PieceDone(pub(super) PieceOutcome);

#[derive(Debug)]
pub(super) enum PieceOutcome {
    Encoded {
        group: u64,
        column: usize,
        chunk: Chunk,
    },
    Placed {
        group: u64,
        placed: RowGroup,
    },
    /// The pool has no room for the row group at present.
    Crowded(Placement, Error),
    /// The row groups were written.
    Kept(ChunkWriter),
    /// A segment of row groups is durable.
    Stored,
}

impl Piece {
    /// Returns a piece that writes `groups` to a segment, for a table with the encryption key `key`.
    pub(super) fn keep(writer: ChunkWriter, groups: Vec<Arc<RowGroup>>, key: Option<Arc<TableKey>>) -> Piece {
        Piece(PieceWork::Keep { writer, groups, key })
    }

    /// Returns a piece of work whose outcome another thread has produced already.
    pub(super) fn of_done(outcome: Result<PieceDone>) -> Piece {
        Piece(PieceWork::Done(outcome))
    }

    /// Does the work. The result must be passed to [`super::Load::done`].
    ///
    /// # Errors
    /// `Invalid` if a value cannot be encoded; errors of the disk. The load cannot continue after an error.
    pub fn run(self) -> Result<PieceDone> {
        match self.0 {
            PieceWork::Encode { group, plain, column, encoder } => {
                let chunk = encoder.encode_column(&plain, column)?;
                Ok(PieceDone(PieceOutcome::Encoded { group, column, chunk }))
            }
            PieceWork::Place(placement) => placement.run(),
            PieceWork::Keep { mut writer, groups, key } => {
                groups.into_iter().try_for_each(|group| writer.add(group, key.as_ref()))?;
                Ok(PieceDone(PieceOutcome::Kept(writer)))
            }
            PieceWork::Done(outcome) => outcome,
        }
    }
}

impl Placement {
    /// Tries to place the row group in the pool.
    ///
    /// # Errors
    /// `Invalid` if its columns are not those of the table; `Corrupt` if its values were lost.
    pub fn run(mut self) -> Result<PieceDone> {
        self.chunks = self.encoder.encrypted(self.chunks)?;
        let chunks = self.chunks.iter().map(Chunk::shared).collect();
        match self.encoder.place(self.rows, chunks) {
            Ok(placed) => Ok(PieceDone(PieceOutcome::Placed { group: self.group, placed })),
            Err(error) if error.kind == ErrorKind::OverLimit => {
                Ok(PieceDone(PieceOutcome::Crowded(self, error)))
            }
            Err(error) => Err(error),
        }
    }
}

/// The row groups of one load that are being encoded.
#[derive(Debug)]
pub(super) struct Pieces {
    encoder: Encoder,
    /// Row groups in the order of their rows.
    groups: VecDeque<Group>,
    /// Sequence number of the first group in `groups`.
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

    /// Adds a row group, whose rows come after those of the row groups before.
    pub fn add(&mut self, plain: PlainGroup) {
        let chunks = (0..plain.columns_count()).map(|_| None).collect();
        self.groups.push_back(Group {
            rows: plain.rows(),
            bytes_held: plain.bytes_held(),
            columns_handed_out: 0,
            state: GroupState::Encoding { plain: Arc::new(plain), chunks },
        });
    }

    /// Returns the number of row groups added and not yet taken by [`Pieces::take_placed`].
    pub fn groups_count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the bytes of memory of rows that are not in the pool yet.
    pub fn bytes_held(&self) -> usize {
        self.groups.iter().map(|group| group.bytes_held).sum()
    }

    /// Returns whether [`Pieces::next`] has a piece.
    pub fn has_next(&self, may_begin: bool) -> bool {
        self.groups.iter().any(|group| group.has_next(may_begin))
    }

    /// Takes the next piece; `None` if every piece has been taken. The encoding of another row group is started only if
    /// `may_begin`.
    pub fn next(&mut self, may_begin: bool) -> Option<Piece> {
        let index = self.groups.iter().position(|group| group.has_next(may_begin))?;
        let number = self.first + index as u64;
        Some(Piece(self.groups[index].next(number, &self.encoder)?))
    }

    /// Records the encoded chunk of one column of a row group.
    pub fn encoded(&mut self, group: u64, column: usize, chunk: Chunk) {
        if let Some(Group { state: GroupState::Encoding { chunks, .. }, .. }) = self.group(group)
            && let Some(slot) = chunks.get_mut(column)
        {
            *slot = Some(chunk);
        }
    }

    /// Records that a row group was placed in the pool.
    pub fn placed(&mut self, group: u64, placed: RowGroup) {
        if let Some(group) = self.group(group) {
            group.state = GroupState::Placed(placed);
            group.bytes_held = 0;
        }
    }

    fn group(&mut self, number: u64) -> Option<&mut Group> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.groups.get_mut(index)
    }

    /// Takes the first row group if it is in the pool; `None` otherwise.
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
    fn has_next(&self, may_begin: bool) -> bool {
        match &self.state {
            GroupState::Encoding { .. } if self.columns_handed_out == 0 && !may_begin => false,
            GroupState::Encoding { chunks, .. } => {
                self.columns_handed_out < chunks.len() || chunks.iter().all(Option::is_some)
            }
            GroupState::Placing | GroupState::Placed(_) => false,
        }
    }

    fn next(&mut self, group: u64, encoder: &Encoder) -> Option<PieceWork> {
        let GroupState::Encoding { plain, chunks } = &mut self.state else { return None };
        let encoder = encoder.clone();
        if self.columns_handed_out < chunks.len() {
            let column = self.columns_handed_out;
            self.columns_handed_out += 1;
            return Some(PieceWork::Encode { group, plain: plain.clone(), column, encoder });
        }
        let chunks = chunks.iter_mut().map(Option::take).collect::<Option<Vec<_>>>()?;
        self.state = GroupState::Placing;
        // The encoded chunks still take memory, because the row group may wait for room in the pool.
        self.bytes_held = chunks.iter().map(Chunk::bytes_encoded).sum();
        Some(PieceWork::Place(Placement { group, rows: self.rows, chunks, encoder }))
    }
}
