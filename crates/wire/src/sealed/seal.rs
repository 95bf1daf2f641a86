//! The node's side of sealed answers (answers that are encrypted end to end for the client of one request): encrypts
//! (seals) and numbers the answers.

use super::{
    BLOCK_BYTES, Digest, ERROR_NUMBERS, SealedRequest, TRAILER_BYTES, TokenKey, associated, bind, blocks,
    info, nonce,
};
use crate::message::Outgoing;
use crate::verbs::FrameKind;
use bytes::Bytes;
use farpool_cipher::TAG_BYTES;
use farpool_cipher::hpke::{Authentication, Context, PrivateKey, PublicKey};
use farpool_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Proof of a node's identity: its own key, and the token that the client has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeProof<'a> {
    /// The node's private key; `None` if it has none.
    pub key: Option<&'a PrivateKey>,
    /// The key derived from the client's token.
    pub token: Option<&'a TokenKey>,
    /// Digest of the token that the client has shown; see [`shown`](super::shown).
    pub shown: Digest,
}

/// Encrypts (seals) the answers to one request, on several threads at once.
///
/// Invariant: no number is used for two messages, so that no nonce is used twice, which would break AES-GCM.
#[derive(Debug)]
pub struct Sealer {
    context: Context,
    encapsulated: PublicKey,
    stream: u32,
    digest: Digest,
    prepared: Option<Digest>,
    numbers: AtomicU64,
    errors: AtomicU64,
    order: Mutex<AnswerOrder>,
}

/// Puts sealed answers back into the order of their numbers, because several threads encrypt them.
#[derive(Debug, Default)]
struct AnswerOrder {
    /// The sequence number of the answer that is sent next.
    next: u64,
    /// Answers that must wait until those before them have been encrypted. There are fewer of them than threads.
    waiting: BTreeMap<u64, Outgoing>,
}

/// A sealed (encrypted) answer with its sequence number. It must be sent after the answers with lower numbers.
#[derive(Debug)]
pub struct NumberedAnswer {
    pub(super) number: u64,
    message: Outgoing,
}

impl Sealer {
    /// Sets up the encryption of the answers to `request`. `prepared` is the digest that its program is bound to, as
    /// returned by [`Sealer::bind`].
    ///
    /// # Errors
    /// `Denied` if the node cannot prove its identity by the method that the client requires; `Invalid` for a public
    /// key of low order; `OverLimit` if the process may not lock more memory.
    pub fn new(request: &SealedRequest, prepared: Option<&Digest>, proof: NodeProof<'_>) -> Result<Sealer> {
        let stream = request.request.stream;
        let info = info(stream, &proof.shown, &request.digest, prepared);
        let by = match (request.proof, proof) {
            (1, NodeProof { key: Some(key), .. }) if key.public().0[..] == request.proof_id[..] => {
                Authentication { key: Some(key), shared: None }
            }
            (1, NodeProof { key: Some(key), .. }) => {
                let message = format!("the node's key is {}, and the client wants another", key.public());
                return Err(
                    Error::new(ErrorKind::Denied, message).advise("ask whoever runs the node for its key")
                );
            }
            (1, NodeProof { key: None, .. }) => {
                return Err(Error::new(ErrorKind::Denied, "the node has no key to prove who it is with"));
            }
            (2, NodeProof { token: Some(token), .. }) if token.id[..] == request.proof_id[..] => {
                Authentication { key: None, shared: Some((&token.secret, &token.id)) }
            }
            (2, _) => {
                let message = "the client has shown no token that could prove who the node is";
                return Err(Error::new(ErrorKind::Denied, message)
                    .advise("use a token that `farpool token new` has made, or the node's key"));
            }
            (other, _) => {
                return Err(Error::invalid(format!("the node does not know proof {other} of who it is"))
                    .advise("upgrade the older one of client and node"));
            }
        };
        let (encapsulated, context) = Context::sender(&request.key, &info, &by)?;
        Ok(Sealer {
            context,
            encapsulated,
            stream,
            digest: request.digest,
            prepared: prepared.copied(),
            numbers: AtomicU64::new(0),
            errors: AtomicU64::new(ERROR_NUMBERS),
            order: Mutex::default(),
        })
    }

    /// Returns whether the answers are bound to this program. Must be checked when the program runs: it must be the
    /// program for which the keys were derived.
    pub fn is_bound_to(&self, prepared: Option<&Digest>) -> bool {
        self.prepared.as_ref() == prepared
    }

    /// Returns the digest that later requests for the prepared program are bound to. This request has prepared it, and
    /// `answer` is the unencrypted answer.
    pub fn bind(&self, answer: &[Outgoing]) -> Digest {
        bind(&self.digest, answer.iter().flat_map(Outgoing::pieces))
    }

    /// Takes the next number and encrypts an answer; other threads may encrypt others at the same time. The answer is
    /// sent by [`Sealer::deliver`].
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory; after that, no further answer can be sent but an error.
    pub fn seal(&self, message: Outgoing) -> Result<NumberedAnswer> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Ok(NumberedAnswer { number, message: self.encrypt(number, message)? })
    }

    /// Passes sealed answers to `put` in the order of their numbers: this one, and later ones that waited for it. If an
    /// earlier one is missing, keeps this one; the call for the earlier one, on another thread, passes it on.
    pub fn deliver(&self, numbered: NumberedAnswer, mut put: impl FnMut(Outgoing)) {
        let mut order = self.order.lock();
        order.waiting.insert(numbered.number, numbered.message);
        loop {
            let next = order.next;
            let Some(message) = order.waiting.remove(&next) else { return };
            order.next += 1;
            put(message);
        }
    }

    /// Encrypts an answer while no other answer is pending; the caller sends it at once.
    ///
    /// # Errors
    /// Errors of [`Sealer::seal`]; `Internal` if an earlier answer is pending.
    pub fn seal_alone(&self, message: Outgoing) -> Result<Outgoing> {
        let NumberedAnswer { number, message } = self.seal(message)?;
        let mut order = self.order.lock();
        if order.next != number {
            return Err(Error::internal(format!("answer {number} would go before answer {}", order.next)));
        }
        order.next += 1;
        Ok(message)
    }

    /// Encrypts an error, which may be sent at any time and replaces all pending answers.
    ///
    /// # Errors
    /// Errors of [`Sealer::seal`].
    pub fn seal_error(&self, message: Outgoing) -> Result<Outgoing> {
        debug_assert_eq!(message.kind(), FrameKind::Error);
        self.encrypt(self.errors.fetch_add(1, Ordering::Relaxed), message)
    }

    /// Copies the pieces of a message block by block, and encrypts each block while it is in the CPU cache. The pieces
    /// are copied because they may be memory of the pool, which others read.
    fn encrypt(&self, number: u64, message: Outgoing) -> Result<Outgoing> {
        let (kind, pieces, bytes) = message.into_parts();
        let cipher = self.context.expand()?;
        let blocks = blocks(bytes);
        let mut body = Vec::with_capacity(bytes + blocks * TAG_BYTES + TRAILER_BYTES);
        let mut tags = Vec::with_capacity(blocks * TAG_BYTES);
        let mut pieces = pieces.into_iter();
        let mut piece = Bytes::new();
        for block in 0..blocks {
            let start = body.len();
            let end = bytes.min(start + BLOCK_BYTES);
            while body.len() < end {
                if piece.is_empty() {
                    piece = pieces.next().ok_or_else(|| Error::internal("a message that is too short"))?;
                }
                let part = piece.split_to(piece.len().min(end - body.len()));
                body.extend_from_slice(&part);
            }
            let associated = associated(self.stream, number, kind, block, block + 1 == blocks);
            let tag = cipher.seal(nonce(number, block), &associated, &mut body[start..])?;
            tags.extend_from_slice(&tag);
        }
        body.extend_from_slice(&tags);
        body.extend_from_slice(&self.encapsulated.0);
        body.extend_from_slice(&number.to_le_bytes());
        Ok(Outgoing::sealed(kind, body.into()))
    }
}
