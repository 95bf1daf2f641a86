//! Heads of parts in memory. They have bounds and dictionary values of tables, and the heads of all segments are
//! resident: in an encrypted directory they are encrypted in memory, too. Heads under the key of a table stay encrypted
//! as on disk.

use farpool_cipher::{MemoryCipher, MessageTag, Tag};
use farpool_model::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// Description of a part, apart from its data.
#[derive(Clone, Debug)]
pub(crate) enum PartHead {
    Clear(Vec<u8>),
    Hidden {
        cipher: Arc<MemoryCipher>,
        message_tag: MessageTag,
        bytes: Box<[u8]>,
    },
    /// Encrypted under the key of the part's table, as in the file.
    OfTable {
        tag: Tag,
        bytes: Box<[u8]>,
    },
}

impl PartHead {
    /// Encrypts the head with `cipher`, unless it is already encrypted.
    pub fn hidden(self, cipher: &Arc<MemoryCipher>) -> Result<PartHead> {
        let PartHead::Clear(bytes) = self else { return Ok(self) };
        let mut bytes = bytes.into_boxed_slice();
        let message_tag = cipher.encrypt(&mut bytes)?;
        Ok(PartHead::Hidden { cipher: cipher.clone(), message_tag, bytes })
    }

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
