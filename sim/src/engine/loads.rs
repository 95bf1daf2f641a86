//! Loads over the wire, in all modes: of random rows, in batches with pauses between them, and sometimes with a failure
//! of their source in the middle.

use super::{Engine, name};
use crate::checks::Checked;
use crate::model::RequestId;
use crate::network::Cuts;
use crate::random::Random;
use crate::rows::{Row, WORDS, batch, long_words, random_rows, schema};
use crate::state::{Shared, pause};
use farpool_model::limits::LARGE_GROUP_ROWS;
use farpool_model::{Error, ErrorKind, LoadMode, Result, TableInfo};
use farpool_transfer::{BatchStream, Pool};
use futures::stream;
use std::sync::Arc;

/// Maximal number of rows in a batch of a small append.
const TRICKLE_ROWS_MAX: usize = 4;

/// Number of events after the last row of a load within which its connection may be cut.
const CUT_WITHIN: usize = 64;

/// Error message of a source that fails.
const SOURCE_FAILS: &str = "the source of the load fails";

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub enum LoadSize {
    /// A number of batches of up to this many rows.
    Batches(usize),
    /// The minimal number of rows of a row group whose values can be evicted, or a few more, with long strings.
    LargeGroup,
}

impl LoadSize {
    /// Returns the number of rows of each batch, the last first.
    fn counts(self, random: &mut Random) -> Vec<usize> {
        match self {
            LoadSize::Batches(rows_max) => {
                (0..random.magnitude(8)).map(|_| random.magnitude(rows_max)).collect()
            }
            LoadSize::LargeGroup => {
                let batches = 1 + random.below(3);
                let mut counts = vec![LARGE_GROUP_ROWS.div_ceil(batches); batches];
                counts[0] += random.magnitude(2000);
                counts
            }
        }
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            LoadSize::Batches(_) => &WORDS,
            LoadSize::LargeGroup => long_words(),
        }
    }
}

/// The source of a load's rows.
struct Source {
    shared: Shared,
    cuts: Arc<Cuts>,
    tenant: usize,
    id: RequestId,
    random: Random,
    words: &'static [&'static str],
    /// Numbers of rows of the remaining batches, the last first.
    counts: Vec<usize>,
    fails: bool,
    rows: Vec<Row>,
}

impl Source {
    /// Returns the next batch. Once the last batch is taken, the load may be committed at any time.
    fn next(&mut self) -> Option<Result<arrow_array::RecordBatch>> {
        let Some(count) = self.counts.pop() else {
            let all = Arc::new(std::mem::take(&mut self.rows));
            let mut state = self.shared.lock();
            state.models[self.tenant].load_is_complete(self.id, all);
            if !state.is_ending && self.random.chance(15) {
                self.cuts.cut_at(state.log.step + self.random.magnitude(CUT_WITHIN) as u64);
            }
            return None;
        };
        if self.counts.is_empty() && self.fails {
            return Some(Err(Error::invalid(SOURCE_FAILS)));
        }
        let rows = random_rows(&mut self.random, count, self.words);
        let batch = batch(&rows);
        self.rows.extend(rows);
        Some(Ok(batch))
    }

    fn into_stream(self) -> BatchStream {
        Box::pin(stream::unfold(self, |mut source| async {
            pause(&source.shared, &mut source.random).await;
            source.next().map(|batch| (batch, source))
        }))
    }
}

impl Engine {
    pub(super) async fn load(
        &self,
        table: &str,
        mode: LoadMode,
        mut random: Random,
        size: LoadSize,
        first: u64,
    ) -> Checked<String> {
        let (id, mode) = {
            let mut state = self.shared.lock();
            let step = state.log.step;
            let model = &mut state.models[self.tenant];
            let newest = model.newest(table).filter(|_| mode == LoadMode::Replace && random.chance(50));
            let mode = newest.map_or(mode, |newest| LoadMode::ReplaceVersion(newest.version));
            (model.load_begins(step, table, mode), mode)
        };
        let (shared, tenant) = (self.shared.clone(), self.tenant);
        let counts = size.counts(&mut random);
        let fails = !counts.is_empty() && random.chance(10);
        let hint = random.chance(20).then(|| random.magnitude(1 + counts.iter().sum::<usize>()) as u64);
        let rows = Vec::new();
        let cuts = self.cuts.clone();
        let source = Source { shared, cuts, tenant, id, random, words: size.words(), counts, fails, rows };
        let outcome = self.pool.load(&name(table), mode.into(), schema(), hint, source.into_stream()).await;
        let has_source_failed = |error: &Error| fails && error.message == SOURCE_FAILS;
        // If the source has failed, the node may not know it yet, and still reserve the table's name for the load.
        if self.is_known_of_load(&outcome) && !outcome.as_ref().is_err_and(has_source_failed) {
            self.is_over(id);
        }
        match outcome {
            Ok(info) => self.check_loaded(id, &info),
            Err(error) if has_source_failed(&error) => Ok("its source failed".into()),
            Err(error) => self.check_load_error(&error, id, table, mode, first),
        }
    }

    /// Returns whether the client knows the outcome of a load.
    fn is_known_of_load(&self, outcome: &Result<TableInfo>) -> bool {
        self.is_known(outcome)
            || outcome.as_ref().is_err_and(|error| error.message.contains("nothing of it was loaded"))
    }

    /// Appends a few rows repeatedly, often enough to trigger merges.
    pub(super) async fn trickle(&self, table: &str, random: &mut Random, first: u64) -> Checked<String> {
        let count = 1 + random.below(self.appends_max);
        let mut told = Vec::new();
        for _ in 0..count {
            let random = Random::new(random.next());
            let size = LoadSize::Batches(TRICKLE_ROWS_MAX);
            told.push(self.load(table, LoadMode::Append, random, size, first).await?);
        }
        Ok(told.join(", "))
    }

    fn check_loaded(&self, id: RequestId, info: &TableInfo) -> Checked<String> {
        self.shared.lock().models[self.tenant].load_made(id, info.version)?;
        Ok(format!("made {} of {} rows", info.version, info.rows))
    }

    fn check_load_error(
        &self,
        error: &Error,
        id: RequestId,
        table: &str,
        mode: LoadMode,
        first: u64,
    ) -> Checked<String> {
        let span = self.span(first);
        let may_be = {
            let state = self.shared.lock();
            match error.kind {
                ErrorKind::OverLimit => state.weather.is_tight,
                ErrorKind::Exists => {
                    let model = &state.models[self.tenant];
                    let is_taken = model.was_there_within(table, span);
                    mode == LoadMode::Create && (is_taken || model.was_being_created_within(table, id, span))
                }
                ErrorKind::Stale => match mode {
                    LoadMode::ReplaceVersion(version) => {
                        state.models[self.tenant].had_other_version_within(table, version, span)
                    }
                    _ => false,
                },
                ErrorKind::NotFound => {
                    matches!(mode, LoadMode::Append | LoadMode::ReplaceVersion(_))
                        && state.models[self.tenant].was_absent_within(table, span)
                }
                _ => false,
            }
        };
        if may_be { Ok(format!("{:?}", error.kind)) } else { self.explained(error, "", first) }
    }
}
