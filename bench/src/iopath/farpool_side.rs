//! Adapts farpool's ciphers to the benchmark suite `iopath`.

use super::rounds::{InPlace, START, key};
use anyhow::{Context, Result};
use farpool_cipher::{Cipher, Mode, Secret, Tag};

/// A cipher, the start of its messages, and the tag of the last one.
pub struct Farpool {
    cipher: Cipher,
    start: Vec<u8>,
    tag: Option<Tag>,
    /// Bytes of each chain, if many are encrypted in parallel.
    chain_bytes: Option<usize>,
    starts: Vec<[u8; 16]>,
}

impl Farpool {
    pub fn new(mode: Mode, bits: usize, chain_bytes: Option<usize>) -> Result<Farpool> {
        let cipher = Cipher::new(mode, &Secret::take(&mut key(bits))?)?;
        let start = START[..mode.start_bytes()].to_vec();
        Ok(Farpool { cipher, start, tag: None, chain_bytes, starts: Vec::new() })
    }
}

/// Returns the mode with a name.
pub fn mode(name: &str) -> Result<Mode> {
    let found = Mode::ALL.into_iter().find(|mode| mode.to_string().eq_ignore_ascii_case(name));
    found.with_context(|| format!("there is no mode {name:?}"))
}

impl Farpool {
    /// Decrypts data that was encrypted with this tag.
    pub fn decrypt_with(&mut self, data: &mut [u8], tag: Option<Tag>) {
        self.tag = tag;
        self.decrypt(data);
    }
}

impl InPlace for Farpool {
    fn encrypt(&mut self, data: &mut [u8]) {
        let encrypted = match self.chain_bytes {
            None => self.cipher.encrypt(&self.start, &[], data).map(|tag| self.tag = tag),
            Some(chain_bytes) => {
                self.starts.resize(data.len() / chain_bytes, START);
                self.cipher.encrypt_chains(&self.starts, data)
            }
        };
        encrypted.expect("the sizes are right");
    }

    fn decrypt(&mut self, data: &mut [u8]) {
        let chain_bytes = self.chain_bytes.unwrap_or(data.len());
        for chain in data.chunks_mut(chain_bytes) {
            self.cipher.decrypt(&self.start, &[], chain, self.tag.as_ref()).expect("the tag is right");
        }
    }

    fn tag(&self) -> Option<[u8; 16]> {
        self.tag
    }
}
