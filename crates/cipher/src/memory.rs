//! Encryption of values of tables while they are in the memory of a process, under a random key that is never stored.

use crate::cipher::{Cipher, Mode, START_BYTES, Tag};
use crate::keys::Secret;
use farpool_model::{Result, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cipher under a random key of this process that is never stored. Its messages are numbered, so that no nonce is
/// used twice.
#[derive(Debug)]
pub struct MemoryCipher {
    tier: Tier,
    cipher: Cipher,
    messages: AtomicU64,
}

/// Nonce and authentication tag of a message, which are needed to decrypt it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTag {
    number: u64,
    tag: Option<Tag>,
}

impl MemoryCipher {
    /// Creates a cipher with a new random key.
    ///
    /// # Errors
    /// `OverLimit` if the process may not lock more memory.
    pub fn new(tier: Tier) -> Result<Arc<MemoryCipher>> {
        let cipher = Cipher::new(Mode::of(tier), &Secret::random(tier.key_bytes())?)?;
        Ok(Arc::new(MemoryCipher { tier, cipher, messages: AtomicU64::new(0) }))
    }

    /// Returns the encryption tier.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Encrypts `data` in place, and returns what is needed to decrypt it.
    ///
    /// # Errors
    /// `Internal` if the cipher library fails.
    pub fn encrypt(&self, data: &mut [u8]) -> Result<MessageTag> {
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        let tag = self.cipher.encrypt(self.start(number, &mut [0; START_BYTES]), &[], data)?;
        Ok(MessageTag { number, tag })
    }

    /// Decrypts the message `encrypted` into `data`, which must have the same length.
    ///
    /// # Errors
    /// `Corrupt` if the message was changed and the tier authenticates data.
    pub fn decrypt(&self, message_tag: &MessageTag, encrypted: &[u8], data: &mut [u8]) -> Result<()> {
        let start = &mut [0; START_BYTES];
        self.cipher.decrypt_to(
            self.start(message_tag.number, start),
            &[],
            encrypted,
            data,
            message_tag.tag.as_ref(),
        )
    }

    /// Returns the nonce of message `number` or, for CTR, the initial counter block, of which the second half counts
    /// blocks.
    fn start<'a>(&self, number: u64, start: &'a mut [u8; START_BYTES]) -> &'a [u8] {
        start[..8].copy_from_slice(&number.to_be_bytes());
        &start[..Mode::of(self.tier).start_bytes()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farpool_model::ErrorKind;

    #[test]
    fn messages_come_back_and_no_two_are_alike() {
        for tier in Tier::ALL {
            let cipher = MemoryCipher::new(tier).unwrap();
            let plain = vec![7; 4096];
            let messages: Vec<(MessageTag, Vec<u8>)> = (0..50)
                .map(|_| {
                    let mut data = plain.clone();
                    (cipher.encrypt(&mut data).unwrap(), data)
                })
                .collect();
            // All plain blocks are equal, so two AES blocks that were encrypted with the same counter would be equal,
            // too.
            let blocks = messages.iter().flat_map(|(_, data)| data.chunks(16));
            assert_eq!(blocks.collect::<std::collections::HashSet<_>>().len(), 50 * 4096 / 16);
            for (message_tag, data) in &messages {
                let mut opened = vec![0; 4096];
                cipher.decrypt(message_tag, data, &mut opened).unwrap();
                assert_eq!(opened, plain);
                let other = &messages[7].1;
                let swapped = cipher.decrypt(message_tag, other, &mut opened);
                match tier.authenticates() && other != data {
                    true => assert_eq!(swapped.unwrap_err().kind, ErrorKind::Corrupt),
                    false => assert_eq!(opened == plain, other == data),
                }
            }
        }
    }
}
