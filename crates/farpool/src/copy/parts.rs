//! Splits the rows of a query into parts, which are encoded on several threads in parallel and returned in order.

use super::encode::{Encoded, Encoder, bytes_of};
use crate::ordered::threads;
use arrow::array::RecordBatch;
use farpool_model::{Error, Result, cast};
use farpool_transfer::BatchStream;
use futures::{Stream, StreamExt, stream};
use std::sync::Arc;

/// Returns the encoded parts of `batches`, each with its number of rows. `at_place` adds the place to errors of
/// encoding, but not to those of `batches`.
pub(super) fn encoded(
    batches: BatchStream,
    encoder: Arc<Encoder>,
    at_place: impl Fn(Error) -> Error,
) -> impl Stream<Item = Result<(Encoded, u64)>> {
    let gathering = Gathering { batches, encoder: encoder.clone(), left: None };
    let parts = stream::unfold(gathering, async |mut gathering| {
        let part = gathering.next().await.transpose()?;
        Some((part, gathering))
    });
    let at_place = Arc::new(at_place);
    let encoding = parts.map(move |part| {
        let (encoder, at_place) = (encoder.clone(), at_place.clone());
        async move {
            let part = part?;
            let rows = part.iter().map(|batch| cast::u64_from(batch.num_rows())).sum();
            let encoded = tokio::task::spawn_blocking(move || encoder.encode(part)).await;
            let encoded = encoded.map_err(|error| Error::internal(format!("writing stopped: {error}")))?;
            Ok((encoded.map_err(&*at_place)?, rows))
        }
    });
    encoding.buffered(threads())
}

/// A stream that collects batches into parts.
struct Gathering {
    batches: BatchStream,
    encoder: Arc<Encoder>,
    /// The rest of a batch, which belongs to the next part.
    left: Option<RecordBatch>,
}

impl Gathering {
    /// Returns the batches of the next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let (mut part, mut rows, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let room = self.encoder.room(rows, bytes);
            if room == 0 {
                return Ok(Some(part));
            }
            let batch = match self.left.take() {
                Some(batch) => batch,
                None => match self.batches.next().await.transpose()? {
                    Some(batch) => batch,
                    None => return Ok((!part.is_empty()).then_some(part)),
                },
            };
            let taken = batch.num_rows().min(room);
            self.left = (taken < batch.num_rows()).then(|| batch.slice(taken, batch.num_rows() - taken));
            if taken > 0 {
                let batch = batch.slice(0, taken);
                (rows, bytes) = (rows + taken, bytes + bytes_of(&batch));
                part.push(batch);
            }
        }
    }
}
