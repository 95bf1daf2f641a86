//! Heads of the parts of segments (files of column chunks): the metadata of each chunk, with bounds and dictionary
//! values. The heads of all open segments are in memory. In an encrypted directory they are encrypted there, too; heads
//! under the key of a table stay encrypted as they are on disk.

use farpool_cipher::{MemoryCipher, MessageTag, Tag};
use farpool_model::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// Head of a part (the metadata of a column chunk) as it is held in memory.
#[derive(Clone, Debug)]
pub(crate) enum PartHead {
    /// The head is unencrypted, in a plain directory.
    Clear(Vec<u8>),
    /// The head is encrypted in memory under a random key of this process.
    Hidden { cipher: Arc<MemoryCipher>, message_tag: MessageTag, bytes: Box<[u8]> },
    /// The head is encrypted under the key of the part's table, as in the file.
    OfTable { tag: Tag, bytes: Box<[u8]> },
}

impl PartHead {
    /// Encrypts an unencrypted head with `cipher`; returns encrypted heads unchanged.
    pub fn hidden(self, cipher: &Arc<MemoryCipher>) -> Result<PartHead> {
        let PartHead::Clear(bytes) = self else { return Ok(self) };
        let mut bytes = bytes.into_boxed_slice();
        let message_tag = cipher.encrypt(&mut bytes)?;
        Ok(PartHead::Hidden { cipher: cipher.clone(), message_tag, bytes })
    }

    /// Returns the head's bytes, decrypted if necessary.
    ///
    /// # Errors
    /// `Internal` for a head under the key of a table, which [`Segment::head`](crate::Segment::head) decrypts.
    pub fn open(&self) -> Result<Cow<'_, [u8]>> {
        match self {
            PartHead::Clear(bytes) => Ok(Cow::Borrowed(bytes)),
            PartHead::Hidden { cipher, message_tag, bytes } => {
                let mut open = vec![0; bytes.len()];
                cipher.decrypt(message_tag, bytes, &mut open)?;
                Ok(Cow::Owned(open))
            }
            PartHead::OfTable { .. } => Err(Error::internal("a head is opened without the key of its table")),
        }
    }
}

impl PartialEq for PartHead {
    fn eq(&self, other: &PartHead) -> bool {
        match (self, other) {
            (PartHead::OfTable { tag, bytes }, PartHead::OfTable { tag: other_tag, bytes: other_bytes }) => {
                tag == other_tag && bytes == other_bytes
            }
            _ => self.open().ok() == other.open().ok(),
        }
    }
}

impl Eq for PartHead {}
