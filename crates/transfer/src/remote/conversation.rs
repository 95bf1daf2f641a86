//! The protocol state of one stream (of the messages of one request), which decides which messages the node may send
//! next.
//!
//! Invariant: a message is accepted only if `docs/wire.md` allows it in this state: in the right order, with no more
//! rows than the client has granted credit for, and nothing after the last message. Therefore the unread messages of a
//! stream take at most its window (the credit), one further message of rows, and a few small messages.

use farpool_model::{Error, Result};
use farpool_wire::{FrameKind, Window};

/// The protocol state of one stream: the request, the messages so far, and the credit in both directions.
#[derive(Debug)]
pub(super) struct Conversation {
    request: FrameKind,
    stage: Stage,
    /// The credit that the client has granted the node for sending rows, as the node must see it.
    incoming: Window,
    /// The credit that the node has granted the client for sending rows of a load.
    outgoing: Window,
    /// Bytes of rows that the client has sent and for which the node has not yet returned credit.
    outstanding: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The client has sent the request.
    Asked,
    /// The node has answered for the program's operators; or, for a load, the client has sent all rows.
    Answered,
    /// The node has sent the last message of the stream.
    Ended,
}

impl Conversation {
    /// Creates the state of a stream on which a request of this kind is being sent.
    pub fn new(request: FrameKind) -> Self {
        Conversation {
            request,
            stage: Stage::Asked,
            incoming: Window::new(),
            outgoing: Window::new(),
            outstanding: 0,
        }
    }

    /// Returns whether the node has sent its last message on the stream.
    pub fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Returns whether the client may send rows of a load now, according to its credit.
    pub fn may_send(&self) -> bool {
        self.outgoing.is_open()
    }

    /// Records a message that the client has sent.
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

    /// Records credit for rows that the client is about to grant to the node.
    pub fn granting(&mut self, bytes: u64) -> Result<()> {
        self.incoming.granted(bytes)
    }

    /// Checks that the node may send a frame of this kind now.
    ///
    /// # Errors
    /// `Corrupt` if the protocol does not allow such a frame in this state.
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
        let answers: &[FrameKind] = match (self.stage, self.request.verb()) {
            (Stage::Ended, _) => return false,
            (Stage::Asked, Some(verb)) => verb.answers,
            (Stage::Answered, Some(verb)) => verb.later_answers,
            (Stage::Asked | Stage::Answered, None) => &[],
        };
        kind == FrameKind::Error || answers.contains(&kind)
    }

    /// Records a message of the node that [`Conversation::check`] has accepted.
    pub fn received(&mut self, kind: FrameKind, bytes_on_wire: u64) {
        let goes_on = self.request.verb().is_some_and(|verb| !verb.later_answers.is_empty());
        match kind {
            FrameKind::Credit => {}
            kind if kind.is_flow_controlled() => self.incoming.sent(bytes_on_wire),
            kind if kind != FrameKind::Error && self.stage == Stage::Asked && goes_on => {
                self.stage = Stage::Answered;
            }
            _ => self.stage = Stage::Ended,
        }
    }

    /// Records credit that the node grants for rows of a load.
    ///
    /// # Errors
    /// `Corrupt` if the node grants more than the client has sent. Reason: the credit limits how many bytes of rows the
    /// client queues.
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

    /// Returns the kinds of messages that the node may send next.
    fn followers(conversation: &Conversation) -> Vec<FrameKind> {
        FrameKind::ALL.iter().copied().filter(|kind| conversation.check(*kind).is_ok()).collect()
    }

    #[test]
    fn most_requests_have_one_answer() {
        let verbs = FrameKind::ALL.iter().filter_map(|kind| Some((*kind, kind.verb()?)));
        for (request, verb) in verbs.filter(|(_, verb)| verb.later_answers.is_empty()) {
            let mut allowed = followers(&Conversation::new(request));
            allowed.retain(|kind| *kind != FrameKind::Error);
            assert!(allowed.iter().all(|kind| verb.answers.contains(kind)), "{request:?}: {allowed:?}");
            assert_eq!(allowed.len(), verb.answers.len());
            for answer in allowed.into_iter().chain([FrameKind::Error]) {
                let mut conversation = Conversation::new(request);
                take(&mut conversation, answer, 20).unwrap();
                assert!(conversation.has_ended());
                assert_eq!(followers(&conversation), []);
                let error = conversation.check(FrameKind::Error).unwrap_err();
                assert!(error.message.contains("had its last answer"), "{error}");
            }
        }
        let conversation = Conversation::new(FrameKind::Table);
        use FrameKind::*;
        assert_eq!(followers(&conversation), [TableInfo, Error, Unchanged, ViewInfo]);
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
