//! Access tokens: 256 random bits each, of which a node stores only the SHA-256 digest (FIPS 180-4).
//!
//! Tokens are random and cannot be guessed, so the digest needs neither a salt nor a slow hash function.

use farpool_model::{Error, Result};
use serde::{Deserialize, Deserializer, de};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::{self, Write};
use subtle::ConstantTimeEq;

/// Prefix of all tokens, by which people and secret scanners recognise them.
pub(super) const PREFIX: &str = "fp_";

/// The SHA-256 digest of an access token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of a token as a client sends it.
    pub fn of(token: &str) -> Self {
        TokenDigest(Sha256::digest(token.as_bytes()).into())
    }

    /// Parses a digest written as 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Invalid` for anything else. The message does not contain the text, which may be a token.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "this is not the SHA-256 of a token, which has 64 hexadecimal digits: \
                 paste what `farpool token new` prints",
            )
        };
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(TokenDigest(bytes))
    }

    /// Returns whether two digests are equal, in a time that does not depend on their bytes.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Returns the token with these 256 random bits.
pub fn new_token(random: [u8; 32]) -> String {
    let mut token = PREFIX.to_string();
    write_hex(&mut token, &random).map(|()| token).unwrap_or_default()
}

/// Minimum number of letters and digits after [`PREFIX`] for which a text is taken for a token, or a part of a token.
const TOKEN_CHARS_MIN: usize = 8;

/// Returns `bytes` with everything that looks like a token replaced by [`REDACTED`]; borrowed if nothing was replaced.
pub(crate) fn without_tokens(bytes: &[u8]) -> Cow<'_, [u8]> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    let prefix = PREFIX.as_bytes();
    while let Some(at) = rest.windows(prefix.len()).position(|window| window == prefix) {
        let behind = &rest[at + prefix.len()..];
        let chars = behind.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let is_token = chars >= TOKEN_CHARS_MIN;
        if is_token {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(REDACTED);
        } else {
            out.extend_from_slice(&rest[..at + prefix.len() + chars]);
        }
        rest = &behind[chars..];
    }
    match rest.len() == bytes.len() {
        true => Cow::Borrowed(bytes),
        false => {
            out.extend_from_slice(rest);
            if out == bytes { Cow::Borrowed(bytes) } else { Cow::Owned(out) }
        }
    }
}

/// The text that replaces a token in logs.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

fn write_hex(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// Prints only a part of the digest, which is enough to distinguish digests.
impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..4])
    }
}

impl<'de> Deserialize<'de> for TokenDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        TokenDigest::parse(&text).map_err(|error| de::Error::custom(error.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_standard() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenDigest::of("abc").to_string(), abc);
        let read = TokenDigest::parse(&abc.to_uppercase()).unwrap();
        assert!(read.equals(&TokenDigest::of("abc")) && !read.equals(&TokenDigest::of("abd")));
    }

    #[test]
    fn a_token_in_place_of_its_digest_is_not_repeated() {
        let token = new_token([7; 32]);
        assert_eq!(token, format!("fp_{}", "07".repeat(32)));
        for text in [token.as_str(), &"g".repeat(64), "", "+f", &format!("{}é", "a".repeat(62))] {
            let error = TokenDigest::parse(text).unwrap_err();
            assert!(error.message.contains("64 hexadecimal digits"), "{error}");
            assert!(text.len() < 3 || !error.message.contains(text), "{error}");
        }
    }
}
