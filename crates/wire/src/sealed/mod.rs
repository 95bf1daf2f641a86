//! Sealed answers (end-to-end encryption of answers): a client sends a public key along with a request, and every
//! answer comes back encrypted to that key and authenticated, by HPKE (RFC 9180) with X25519, HKDF-SHA-256 and
//! AES-128-GCM.
//!
//! The client generates a key pair for each request ([`Opener`]). The proof that the answers are from the node is
//! either a key of the node that the client knows, or the client's token ([`Proof`]). The encryption keys of the
//! answers are derived from the whole request as the node received it, its stream, the token in the hello (otherwise an
//! attacker in between could make the node answer for another tenant) and, if the request names a prepared program, the
//! request and the answer that prepared it. Therefore the client cannot decrypt answers to a request that was tampered
//! with.
//!
//! A sealed answer is a message of its usual kind, whose body is
//!
//! ```text
//! | ciphertext, as long as the plain body | a tag of 16 bytes for each block | encapsulated key, 32 | number, 8 |
//! ```
//!
//! The ciphertext is in blocks of `BLOCK_BYTES`, the last one shorter. Each block is encrypted by itself, so that it
//! stays in the CPU caches while it is copied and encrypted. Answers are numbered from 0 in their order; an `Error` may
//! come at any time and has a number from `ERROR_NUMBERS` on. The associated data of a block are the stream, the
//! number, the kind, the block's index and whether it is the last, so that an answer that was dropped, repeated,
//! swapped, truncated or given another kind is detected. Example: if answer 1 is dropped in transit, the client expects
//! number 1 and refuses answer 2; renumbering answer 2 as 1 makes its tag wrong.

mod open;
mod seal;
#[cfg(test)]
mod tests;

pub use farpool_cipher::hpke::{PrivateKey, PublicKey};
pub use open::Opener;
pub use seal::{NodeProof, NumberedAnswer, Sealer};

use crate::message::{Message, Outgoing};
use crate::proto;
use crate::request::{body, read};
use crate::verbs::FrameKind;
use bytes::Bytes;
use farpool_cipher::hpke::KEY_BYTES;
use farpool_cipher::{Secret, TAG_BYTES, sha256};
use farpool_model::{Error, ErrorKind, Result, cast};
use std::fmt;

/// Plain bytes of a block. Reason: with larger blocks, less of a block is still in the CPU caches for the second pass
/// over it; with smaller ones, tags and calls cost more. From 64 KiB to 512 KiB no difference was measured.
const BLOCK_BYTES: usize = 128 << 10;

/// Id of the only cipher suite so far: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.
pub(crate) const SUITE: u32 = 1;

/// Number of bits for the index of a block within its message: more than enough, because a message has at most 2,048
/// blocks.
const BLOCK_BITS: u32 = 16;

/// The first message number for errors, beyond the numbers of all other answers.
const ERROR_NUMBERS: u64 = 1 << 46;

/// Bytes after the tags: the encapsulated key and the message number.
const TRAILER_BYTES: usize = KEY_BYTES + 8;

/// A SHA-256 digest of a request, or of a request and its answer.
pub type Digest = [u8; 32];

/// Context string for the derivation of the encryption keys, so that these keys cannot be used for anything else.
const INFO: &[u8] = b"farpool/1 sealed answers, from the node to the client";

/// Means by which a client verifies that answers are from the node.
#[derive(Clone, Debug)]
pub enum Proof {
    /// The node proves that it has the private key for this public key, which the client has been given.
    NodeKey(PublicKey),
    /// The node proves that it knows the client's access token, from which this key is derived.
    Token(std::sync::Arc<TokenKey>),
}

impl Proof {
    fn number(&self) -> u32 {
        match self {
            Proof::NodeKey(_) => 1,
            Proof::Token(_) => 2,
        }
    }

    fn id(&self) -> &[u8] {
        match self {
            Proof::NodeKey(key) => &key.0,
            Proof::Token(key) => &key.id,
        }
    }
}

/// A pre-shared key that is derived from a token, and its id. The token does not follow from either.
pub struct TokenKey {
    secret: Secret,
    id: [u8; 16],
}

impl TokenKey {
    /// Derives the key from a token that `farpool token new` has made: a prefix and 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Invalid` for any other token, because it may be easy to guess, and guesses can be verified on recorded answers
    /// (RFC 9180, section 9.5). `OverLimit` if the process may not lock more memory.
    pub fn of(token: &str) -> Result<TokenKey> {
        let digits = token.strip_prefix("fp_").filter(|digits| digits.len() == 64 && is_hex(digits));
        let Some(digits) = digits else {
            let message = "the token is not one that can prove who the node is: it may be easy to guess";
            return Err(Error::invalid(message).advise(
                "use one that `farpool token new` has made, or name the node's key with --node-key",
            ));
        };
        let whole = Secret::take(&mut digits.as_bytes().to_vec())?;
        let secret = whole.derive(b"", b"farpool sealed answers: shared secret", 32)?;
        let id = whole.name(b"farpool sealed answers: name of the shared secret")?;
        Ok(TokenKey { secret, id })
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey")
    }
}

/// A request whose answers must be sealed, as the node received it.
#[derive(Debug)]
pub struct SealedRequest {
    /// The request itself.
    pub request: Message,
    key: PublicKey,
    proof: u32,
    proof_id: Bytes,
    digest: Digest,
}

impl SealedRequest {
    /// Reads a message of the kind [`FrameKind::Sealed`].
    ///
    /// # Errors
    /// `Corrupt` if it cannot be decoded; `Invalid` if it asks for something that this node does not know, or does not
    /// contain a request.
    pub fn read(message: &Message) -> Result<SealedRequest> {
        let sealed: proto::Sealed = read(&message.body)?;
        if sealed.suite != SUITE {
            let number = sealed.suite;
            return Err(Error::invalid(format!("the node does not know suite {number} of encryption"))
                .advise("upgrade the older one of client and node"));
        }
        let key = sealed.key[..].try_into().map_err(|_| {
            Error::invalid(format!("a public key of {} bytes: it has {KEY_BYTES}", sealed.key.len()))
        })?;
        let kind = u8::try_from(sealed.kind).ok().and_then(FrameKind::from_number);
        let kind = kind.filter(|kind| kind.may_be_sealed()).ok_or_else(|| {
            Error::invalid(format!("answers to a message of kind {} cannot be encrypted", sealed.kind))
        })?;
        if sealed.request.len() > kind.message_bytes_max() {
            return Err(Error::new(
                ErrorKind::OverLimit,
                format!("a request {} that is too large", kind.name()),
            ));
        }
        let request = Message {
            kind,
            stream: message.stream,
            body: sealed.request,
            bytes_on_wire: message.bytes_on_wire,
        };
        let digest = sha256(&message.body);
        Ok(SealedRequest {
            request,
            key: PublicKey(key),
            proof: sealed.proof,
            proof_id: sealed.proof_id,
            digest,
        })
    }

    /// Returns the id of the stream on which the program that the request names was prepared; `None` if it names none.
    ///
    /// # Errors
    /// Errors of decoding the request.
    pub fn handle(&self) -> Result<Option<u32>> {
        match self.request.kind {
            FrameKind::Execute => Ok(read::<proto::PlanHandle>(&self.request.body)?.handle),
            FrameKind::Outlines | FrameKind::Fetch => {
                Ok(Some(read::<proto::ChunksHandle>(&self.request.body)?.handle))
            }
            FrameKind::ChangeRows => Ok(Some(read::<proto::ChangeRows>(&self.request.body)?.handle)),
            _ => Ok(None),
        }
    }
}

/// Wraps `request` in a `Sealed` message, which asks for answers encrypted to `key`. Returns the message and its
/// digest.
fn wrap(request: Outgoing, key: PublicKey, proof: &Proof) -> Result<(Outgoing, Digest)> {
    let (kind, pieces, _) = request.into_parts();
    let body = body(&proto::Sealed {
        suite: SUITE,
        key: Bytes::copy_from_slice(&key.0),
        proof: proof.number(),
        proof_id: Bytes::copy_from_slice(proof.id()),
        kind: u32::from(kind.number()),
        request: pieces.concat().into(),
    });
    let digest = sha256(&body);
    Ok((Outgoing::new(FrameKind::Sealed, vec![body])?, digest))
}

/// Returns the digest of the token that a client has shown in its hello; zeros if it has shown none.
pub fn shown(token: Option<&str>) -> Digest {
    token.map_or([0; 32], |token| sha256(token.as_bytes()))
}

/// Returns the `info` argument of HPKE, which both sides must compute in the same way.
fn info(stream: u32, shown: &Digest, request: &Digest, prepared: Option<&Digest>) -> Vec<u8> {
    let prepared = prepared.copied().unwrap_or_default();
    [INFO, &stream.to_le_bytes(), shown, request, &prepared].concat()
}

/// Returns the digest that later requests for a prepared program are bound to: over the request that prepared it, and
/// the answer.
fn bind<'a>(request: &Digest, answer: impl Iterator<Item = &'a [u8]>) -> Digest {
    let mut bytes = request.to_vec();
    answer.for_each(|piece| bytes.extend_from_slice(piece));
    sha256(&bytes)
}

/// Returns the associated data of a block, which its tag authenticates.
fn associated(stream: u32, number: u64, kind: FrameKind, block: usize, is_last: bool) -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..4].copy_from_slice(&stream.to_le_bytes());
    bytes[4..12].copy_from_slice(&number.to_le_bytes());
    bytes[12] = kind.number();
    bytes[13..17].copy_from_slice(&cast::u32_checked(block).to_le_bytes());
    bytes[17] = u8::from(is_last);
    bytes
}

/// Returns the nonce counter of a block: its number among all blocks of the stream.
fn nonce(number: u64, block: usize) -> u64 {
    number << BLOCK_BITS | cast::u64_from(block)
}

/// Returns the number of blocks for a message of `bytes` plain bytes.
fn blocks(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES).max(1)
}

/// Returns the maximum number of bytes that sealing adds to a message of at most `bytes`.
pub(crate) fn added_bytes(bytes: usize) -> usize {
    blocks(bytes) * TAG_BYTES + TRAILER_BYTES
}
