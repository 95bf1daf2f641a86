//! The client's side of sealed answers (answers that the node encrypts end to end for one request): generates a key
//! pair for the request, and decrypts (opens) the answers.

use super::{
    BLOCK_BYTES, Digest, ERROR_NUMBERS, Proof, TRAILER_BYTES, associated, bind, blocks, info, nonce, wrap,
};
use crate::message::{Message, Outgoing};
use crate::response::Response;
use crate::verbs::FrameKind;
use bytes::BytesMut;
use farpool_cipher::TAG_BYTES;
use farpool_cipher::hpke::{Authentication, Context, KEY_BYTES, PrivateKey, PublicKey};
use farpool_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decrypts (opens) the answers to one request.
#[derive(Debug)]
pub struct Opener {
    key: PrivateKey,
    proof: Proof,
    shown: Digest,
    digest: Digest,
    prepared: Option<Digest>,
    /// The sequence number of the answer that must come next.
    pub(super) next: AtomicU64,
    /// Encapsulated key and decryption context, derived from the first answer that could be decrypted.
    pub(super) context: Mutex<Option<(PublicKey, Arc<Context>)>>,
}

/// Bytes that follow the ciphertext in a sealed body; see the documentation of [`crate::sealed`].
struct Trailer {
    number: u64,
    encapsulated: PublicKey,
    /// Number of plain bytes, which is also the length of the ciphertext.
    bytes: usize,
}

impl Opener {
    /// Generates a key pair for the answers to `request`, and returns the message to send in place of the request.
    /// `shown` is the [digest](super::shown) of the token in the client's hello; `prepared` is the digest that the
    /// named program is bound to, as returned by [`Opener::bind`].
    ///
    /// # Errors
    /// `OverLimit` if the request is too large, or the process may not lock more memory.
    pub fn new(
        request: Outgoing,
        proof: &Proof,
        shown: Digest,
        prepared: Option<Digest>,
    ) -> Result<(Outgoing, Opener)> {
        let key = PrivateKey::random()?;
        let (message, digest) = wrap(request, key.public(), proof)?;
        let (next, context, proof) = (AtomicU64::new(0), Mutex::default(), proof.clone());
        Ok((message, Opener { key, proof, shown, digest, prepared, next, context }))
    }

    /// Returns the digest that later requests for the prepared program are bound to. This request has prepared it, and
    /// `answer` is the decrypted answer.
    pub fn bind(&self, answer: &Message) -> Digest {
        bind(&self.digest, std::iter::once(&answer.body[..]))
    }

    /// Checks that the answer has the number that must come next. Call it once for each answer, in the order in which
    /// they came; they may then be decrypted in any order. An error passes without a check, since it may come in place of
    /// any answer.
    ///
    /// # Errors
    /// `Corrupt` if another answer must come next: one was dropped, repeated or swapped.
    pub fn check(&self, message: &Message) -> Result<()> {
        if message.kind == FrameKind::Error {
            return Ok(());
        }
        let number = Trailer::read(message)?.number;
        let due = self.next.fetch_add(1, Ordering::Relaxed);
        match number == due {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "answer {number} came where {due} was due: answers were dropped, repeated or exchanged"
            ))),
        }
    }

    /// Decrypts, in place, an answer that [`Opener::check`] has accepted. If the node has sent an error unencrypted,
    /// returns an error that says so.
    ///
    /// # Errors
    /// `Corrupt` if the answer was tampered with, or is from another sender.
    pub fn open(&self, message: Message) -> Result<Message> {
        if message.kind == FrameKind::Error {
            return self.open_error(message);
        }
        let trailer = Trailer::read(&message)?;
        if trailer.number >= ERROR_NUMBERS {
            return Err(forged(message.kind));
        }
        let encapsulated = trailer.encapsulated;
        let known = match &*self.context.lock() {
            Some((known, context)) if *known == encapsulated => Some(context.clone()),
            Some(_) => return Err(forged(message.kind)),
            None => None,
        };
        if let Some(context) = known {
            return decrypt(&context, &trailer, message);
        }
        let context = self.derive(&message, &trailer, self.prepared.as_ref())?;
        let opened = decrypt(&context, &trailer, message)?;
        self.context.lock().get_or_insert((encapsulated, Arc::new(context)));
        Ok(opened)
    }

    /// Decrypts an error, for which other rules hold: it may be the only answer, and may come in place of others.
    fn open_error(&self, message: Message) -> Result<Message> {
        if let Ok(trailer) = Trailer::read(&message)
            && trailer.number >= ERROR_NUMBERS
        {
            // If the node has lost the program, it cannot know the digest that answers are bound to; both possibilities
            // are tried.
            let bound_to = self.prepared.iter().map(Some).chain([None]);
            for prepared in bound_to {
                let context = self.derive(&message, &trailer, prepared);
                if let Ok(opened) = context.and_then(|context| decrypt(&context, &trailer, message.clone())) {
                    return Ok(opened);
                }
            }
        }
        // A node that does not know how to encrypt can only refuse unencrypted.
        match Response::decode(&message, None) {
            Ok(Response::Error(said)) => Err(unproven(said)),
            _ => Err(forged(message.kind)),
        }
    }

    /// Derives the decryption context from `message`, for answers that are bound to `prepared`.
    fn derive(&self, message: &Message, trailer: &Trailer, prepared: Option<&Digest>) -> Result<Context> {
        let info = info(message.stream, &self.shown, &self.digest, prepared);
        let by = match &self.proof {
            Proof::NodeKey(key) => Authentication { key: Some(key), shared: None },
            Proof::Token(key) => Authentication { key: None, shared: Some((&key.secret, &key.id[..])) },
        };
        let context = Context::receiver(&self.key, &trailer.encapsulated, &info, &by);
        context.map_err(|error| match error.kind {
            ErrorKind::Invalid => forged(message.kind),
            _ => error,
        })
    }
}

/// Decrypts a message in the memory that it came in; in a copy if others read that memory.
fn decrypt(context: &Context, trailer: &Trailer, message: Message) -> Result<Message> {
    let Trailer { number, bytes, .. } = *trailer;
    let Message { kind, stream, body, bytes_on_wire } = message;
    let mut body = body.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let cipher = context.expand()?;
    let blocks = blocks(bytes);
    let (data, tags) = body.split_at_mut(bytes);
    for block in 0..blocks {
        let place = block * BLOCK_BYTES..bytes.min((block + 1) * BLOCK_BYTES);
        let associated = associated(stream, number, kind, block, block + 1 == blocks);
        let tag = tags[block * TAG_BYTES..].first_chunk().ok_or_else(|| forged(kind))?;
        let opened = cipher.open(nonce(number, block), &associated, &mut data[place], tag);
        opened.map_err(|_| forged(kind))?;
    }
    body.truncate(bytes);
    Ok(Message { kind, stream, body: body.freeze(), bytes_on_wire })
}

impl Trailer {
    fn read(message: &Message) -> Result<Trailer> {
        Trailer::of(&message.body).ok_or_else(|| {
            Error::corrupt(format!("{} came in the clear, where it was to be encrypted", message.kind.name()))
        })
    }

    fn of(body: &[u8]) -> Option<Trailer> {
        let (rest, number) = body.split_last_chunk()?;
        let (rest, encapsulated) = rest.split_last_chunk::<KEY_BYTES>()?;
        debug_assert_eq!(body.len() - rest.len(), TRAILER_BYTES);
        // The tags follow the ciphertext; their number follows from the total length.
        let blocks = rest.len().div_ceil(BLOCK_BYTES + TAG_BYTES).max(1);
        let bytes = rest.len().checked_sub(blocks * TAG_BYTES)?;
        (self::blocks(bytes) == blocks).then_some(())?;
        Some(Trailer { number: u64::from_le_bytes(*number), encapsulated: PublicKey(*encapsulated), bytes })
    }
}

fn forged(kind: FrameKind) -> Error {
    Error::corrupt(format!("{} was changed on its way, or is not from the node that was asked", kind.name()))
        .advise("see that --node-key, or the token, is that of the node, and who is between it and here")
}

/// Returns the error for an unencrypted error message, which may be from anybody.
fn unproven(said: Error) -> Error {
    Error {
        message: format!("refused in the clear, so by the node or somebody on the way: {}", said.message),
        ..said
    }
}
