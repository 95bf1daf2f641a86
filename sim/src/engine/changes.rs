//! Requests of a simulated engine to change rows of a table (UPDATE and DELETE), which the node carries out itself.

use super::{Engine, name};
use crate::checks::Checked;
use crate::query::Change;
use crate::rows::schema;
use farpool_model::ErrorKind;
use farpool_transfer::Pool;
use std::collections::BTreeSet;

impl Engine {
    pub(super) async fn change(&self, change: &Change, first: u64) -> Checked<String> {
        debug_assert_eq!(change.program().table, name(&change.table));
        let handle = match self.pool.prepare(&change.program(), &schema()).await {
            Ok(handle) => handle,
            Err(error) => return self.explained(&error, &change.table, first),
        };
        let (id, counts) = {
            let mut state = self.shared.lock();
            let (step, span) = (state.log.step, state.span_since(first));
            let model = &mut state.models[self.tenant];
            let may_be = model.rows_within(&change.table, handle.version, span);
            let may_be = may_be.ok_or_else(|| format!("{} was never the newest", handle.version))?;
            let counts: BTreeSet<u64> = may_be.iter().map(|rows| change.count(rows)).collect();
            (model.change_begins(step, handle.version, change.clone()), counts)
        };
        let count = counts.first().copied().unwrap_or_default();
        let outcome = self.pool.change_rows(&handle, count).await;
        if self.is_known(&outcome) {
            self.is_over(id);
        }
        let error = match outcome {
            Ok(info) => {
                self.shared.lock().models[self.tenant].change_made(id, info.version)?;
                return Ok(format!("made {} of {} rows", info.version, info.rows));
            }
            Err(error) => error,
        };
        let may_be = {
            let state = self.shared.lock();
            let model = &state.models[self.tenant];
            let span = state.span_since(first);
            match error.kind {
                ErrorKind::OverLimit => state.weather.is_tight,
                // Handles of prepared programs are lost with their connection.
                ErrorKind::Stale => {
                    model.may_have_changed_since(&change.table, handle.version, span)
                        || self.cuts.explain(first)
                        || state.weather.may_part()
                }
                ErrorKind::NotFound => model.was_absent_within(&change.table, span),
                ErrorKind::Internal => counts.len() > 1 && error.message.contains("nothing was changed"),
                _ => false,
            }
        };
        if may_be { Ok(format!("{:?}", error.kind)) } else { self.explained(&error, "", first) }
    }
}
