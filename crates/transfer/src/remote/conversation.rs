//! What may come next on one stream, whatever a node sends.
//!
//! Invariant: a message is let in only if `docs/wire.md` has it come here: in its order, of rows no more than
//! there is credit for, and nothing after the last. So what one stream holds unread is at most a few messages
//! beside its window and one message of rows.

use farpool_model::{Error, Result};
use farpool_wire::{FrameKind, Window};

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Conversation {
    request: FrameKind,
    stage: Stage,
    /// Rows that may come: the node's side, as the node has to see it.
    incoming: Window,
    /// Rows of a load that may be sent.
    outgoing: Window,
    /// Bytes of rows that were sent and for which no credit has come back.
    outstanding: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The request has been sent.
    Asked,
    /// Of a program, the answers have come; of a load, all rows have been sent.
    Answered,
    /// The last message has come.
    Ended,
}

impl Conversation {
    /// That of a stream on which a request of this kind is being sent.
    pub fn new(request: FrameKind) -> Self {
        Conversation {
            request,
            stage: Stage::Asked,
            incoming: Window::new(),
            outgoing: Window::new(),
            outstanding: 0,
        }
    }

    /// Whether the node has said its last word.
    pub fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether rows of a load may be sent now.
    pub fn may_send(&self) -> bool {
        self.outgoing.is_open()
    }

    /// A message has been sent.
    pub fn sent(&mut self, kind: FrameKind, bytes_on_wire: u64) {
        match kind {
            FrameKind::LoadBatch => {
                self.outgoing.sent(bytes_on_wire);
                self.outstanding += bytes_on_wire;
            }
            FrameKind::LoadEnd => self.stage = Stage::Answered,
            _ => {}
        }
    }

    /// The node is about to be given credit for rows.
    pub fn granting(&mut self, bytes: u64) -> Result<()> {
        self.incoming.granted(bytes)
    }

    /// Whether a frame of this kind may come now.
    ///
    /// # Errors
    /// `Corrupt` when it may not.
    pub fn check(&self, kind: FrameKind) -> Result<()> {
        if !self.has_place_for(kind) {
            let name = kind.name();
            return Err(Error::corrupt(match self.stage {
                Stage::Asked => format!("{name} does not answer {}", self.request.name()),
                Stage::Answered => format!("{name} where {} goes on", self.request.name()),
                Stage::Ended => format!("{name} after {} had its last answer", self.request.name()),
            }));
        }
        if kind.is_flow_controlled() && !self.incoming.is_open() {
            return Err(Error::corrupt("rows of a result beyond the credit of their stream"));
        }
        Ok(())
    }

    fn has_place_for(&self, kind: FrameKind) -> bool {
        use FrameKind::*;
        match (self.stage, self.request) {
            (Stage::Ended, _) => false,
            _ if kind == Error => true,
            (Stage::Asked, Prepare) => kind == Prepared,
            (Stage::Asked, Execute) => matches!(kind, Prepared | Unchanged),
            (Stage::Answered, Execute) => matches!(kind, Batch | Parcel | Receipt),
            (Stage::Asked, LoadBegin) => kind == Credit,
            (Stage::Answered, LoadBegin) => matches!(kind, Credit | Loaded),
            (Stage::Asked, LoadOutcome) => kind == LoadEnded,
            (Stage::Asked, Tables) => kind == TableList,
            (Stage::Asked, Table) => matches!(kind, TableInfo | Unchanged | ViewInfo),
            (Stage::Asked, CreateView) => kind == ViewInfo,
            (Stage::Asked, DropView) => kind == Dropped,
            (Stage::Asked, Drop) => kind == Dropped,
            (Stage::Asked, AlterTable) => kind == TableInfo,
            (Stage::Asked, ChangeRows) => kind == Loaded,
            (Stage::Asked, Statistics) => kind == TableStatistics,
            (Stage::Asked, Status) => kind == StatusInfo,
            (Stage::Asked, Queries) => kind == QueryList,
            (Stage::Asked, CancelQuery) => kind == QueryCancelled,
            _ => false,
        }
    }

    /// A message has come for which [`Conversation::check`] found a place.
    pub fn received(&mut self, kind: FrameKind, bytes_on_wire: u64) {
        match kind {
            FrameKind::Batch | FrameKind::Parcel => self.incoming.sent(bytes_on_wire),
            FrameKind::Prepared | FrameKind::Unchanged if self.request == FrameKind::Execute => {
                self.stage = Stage::Answered;
            }
            FrameKind::Credit => {}
            _ => self.stage = Stage::Ended,
        }
    }

    /// The node has given credit for rows of a load.
    ///
    /// # Errors
    /// `Corrupt` when it is for more than was sent: what waits to be sent is bounded by the credit.
    pub fn granted(&mut self, bytes: u64) -> Result<()> {
        let Some(outstanding) = self.outstanding.checked_sub(bytes) else {
            return Err(Error::corrupt(format!(
                "credit for {bytes} bytes of rows, of which only {} were sent",
                self.outstanding
            )));
        };
        self.outstanding = outstanding;
        self.outgoing.granted(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_model::{ErrorKind, limits};
    use proptest::prelude::*;

    const WINDOW: u64 = limits::STREAM_WINDOW_BYTES as u64;

    fn take(conversation: &mut Conversation, kind: FrameKind, bytes: u64) -> Result<()> {
        conversation.check(kind)?;
        conversation.received(kind, bytes);
        Ok(())
    }

    /// The kinds of message that may follow.
    fn followers(conversation: &Conversation) -> Vec<FrameKind> {
        FrameKind::ALL.iter().copied().filter(|kind| conversation.check(*kind).is_ok()).collect()
    }

    #[test]
    fn each_request_has_its_answers_in_order() {
        use FrameKind::*;
        let one_answer: [(FrameKind, &[FrameKind]); 13] = [
            (Prepare, &[Prepared, Error]),
            (Tables, &[TableList, Error]),
            (Table, &[TableInfo, Error, Unchanged, ViewInfo]),
            (CreateView, &[Error, ViewInfo]),
            (DropView, &[Dropped, Error]),
            (Drop, &[Dropped, Error]),
            (AlterTable, &[TableInfo, Error]),
            (ChangeRows, &[Loaded, Error]),
            (Statistics, &[Error, TableStatistics]),
            (Status, &[StatusInfo, Error]),
            (Queries, &[Error, QueryList]),
            (CancelQuery, &[Error, QueryCancelled]),
            (LoadOutcome, &[Error, LoadEnded]),
        ];
        for (request, answers) in one_answer {
            assert_eq!(followers(&Conversation::new(request)), answers);
            for answer in answers {
                let mut conversation = Conversation::new(request);
                take(&mut conversation, *answer, 20).unwrap();
                assert!(conversation.has_ended());
                assert_eq!(followers(&conversation), []);
                let error = conversation.check(Error).unwrap_err();
                assert!(error.message.contains("had its last answer"), "{error}");
            }
        }
    }

    #[test]
    fn a_result_is_answers_then_rows_then_a_receipt() {
        use FrameKind::*;
        let mut conversation = Conversation::new(Execute);
        assert_eq!(followers(&conversation), [Prepared, Error, Unchanged]);
        take(&mut conversation, Prepared, 100).unwrap();
        assert_eq!(followers(&conversation), [Batch, Receipt, Error, Parcel]);
        take(&mut conversation, Parcel, 100).unwrap();
        assert_eq!(followers(&conversation), [Batch, Receipt, Error, Parcel]);
        take(&mut conversation, Receipt, 100).unwrap();
        assert_eq!(followers(&conversation), []);
    }

    #[test]
    fn a_load_is_complete_only_once_all_of_it_was_sent() {
        use FrameKind::*;
        let mut conversation = Conversation::new(LoadBegin);
        assert_eq!(followers(&conversation), [Credit, Error]);
        conversation.sent(LoadEnd, 12);
        assert_eq!(followers(&conversation), [Credit, Loaded, Error]);
    }

    #[test]
    fn credit_for_a_load_is_for_what_was_sent() {
        let mut conversation = Conversation::new(FrameKind::LoadBegin);
        assert_eq!(conversation.granted(1).unwrap_err().kind, ErrorKind::Corrupt);
        conversation.sent(FrameKind::LoadBatch, WINDOW + 5);
        assert!(!conversation.may_send());
        conversation.granted(6).unwrap();
        assert!(conversation.may_send());
        assert_eq!(conversation.granted(WINDOW).unwrap_err().kind, ErrorKind::Corrupt);
        conversation.granted(WINDOW - 1).unwrap();
    }

    proptest! {
        #[test]
        fn what_is_unread_is_less_than_a_window_and_one_message(
            steps in prop::collection::vec((1..WINDOW, any::<bool>()), 1..200),
        ) {
            let mut conversation = Conversation::new(FrameKind::Execute);
            take(&mut conversation, FrameKind::Prepared, 50).unwrap();
            let (mut unread, mut largest) = (0, 0);
            for (bytes, reads) in steps {
                let refused = take(&mut conversation, FrameKind::Batch, bytes).is_err();
                prop_assert_eq!(refused, unread >= WINDOW);
                if !refused {
                    (unread, largest) = (unread + bytes, bytes.max(largest));
                }
                prop_assert!(unread < WINDOW + largest);
                if reads {
                    conversation.granting(unread).unwrap();
                    unread = 0;
                }
            }
        }
    }
}
