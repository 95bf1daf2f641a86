//! SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it has its token without sending it. A server stores a
//! [`Verifier`], from which the token does not follow.
//!
//! Channel binding is not done: a client that insists on it is refused.

use super::TokenDigest;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use farpool_model::{Error, Result, limits};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, de};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// The name of the mechanism, with which verifiers begin, too.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// Rounds of the hash that makes the key of a token. Reason: the least of RFC 7677; more would not protect tokens, which
/// are random, any better.
const ITERATIONS: u32 = 4096;

/// Bytes of the salt of a new verifier.
pub const SALT_BYTES: usize = 16;

type Key = [u8; 32];

/// The means by which a server checks that a client has a token, in the form that PostgreSQL has for passwords:
/// `SCRAM-SHA-256$4096:SALT$STORED_KEY:SERVER_KEY`.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

fn hmac(key: &[u8], message: &[u8]) -> Result<Key> {
    let mac = Hmac::<Sha256>::new_from_slice(key);
    let mut mac = mac.map_err(|error| Error::internal(format!("a key of SCRAM: {error}")))?;
    mac.update(message);
    Ok(mac.finalize().into_bytes().into())
}

fn xor(one: &Key, other: &Key) -> Key {
    std::array::from_fn(|at| one[at] ^ other[at])
}

impl Verifier {
    /// Makes the verifier of a token.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    pub fn of(token: &str, salt: [u8; SALT_BYTES]) -> Result<Self> {
        // The function Hi of RFC 5802, section 2.2.
        let mut round = hmac(token.as_bytes(), &[salt.as_slice(), &[0, 0, 0, 1]].concat())?;
        let mut salted = round;
        for _ in 1..ITERATIONS {
            round = hmac(token.as_bytes(), &round)?;
            salted = xor(&salted, &round);
        }
        let stored_key = Sha256::digest(hmac(&salted, b"Client Key")?).into();
        let server_key = hmac(&salted, b"Server Key")?;
        Ok(Verifier { iterations: ITERATIONS, salt: salt.to_vec(), stored_key, server_key })
    }

    /// Reads a verifier.
    ///
    /// # Errors
    /// `Invalid` for another text, which the message does not repeat.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid("this is not a SCRAM-SHA-256 verifier: paste what `farpool token new` prints");
        let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| wrong());
        let key = |text: &str| decoded(text)?.try_into().map_err(|_| wrong());
        let rest = text.strip_prefix(MECHANISM).and_then(|rest| rest.strip_prefix('$')).ok_or_else(wrong)?;
        let (salted, keys) = rest.split_once('$').ok_or_else(wrong)?;
        let (iterations, salt) = salted.split_once(':').ok_or_else(wrong)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or_else(wrong)?;
        let iterations = iterations.parse().map_err(|_| wrong())?;
        let salt = decoded(salt)?;
        if !(ITERATIONS..=limits::SCRAM_ITERATIONS_MAX).contains(&iterations)
            || !(1..=limits::SCRAM_SALT_BYTES_MAX).contains(&salt.len())
        {
            return Err(wrong());
        }
        Ok(Verifier { iterations, salt, stored_key: key(stored_key)?, server_key: key(server_key)? })
    }

    /// Returns a verifier that no token fits, for a user whom nobody knows: the same one whenever `name` is asked for, so
    /// that it cannot be told from that of a user. It follows from the verifiers of the users, which nobody else has.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    pub(super) fn of_nobody<'v>(name: &str, known: impl Iterator<Item = &'v Verifier>) -> Result<Self> {
        let mut secret = Sha256::new();
        known.for_each(|verifier| secret.update(verifier.server_key));
        let secret = secret.finalize();
        let part = |label: &str| hmac(&secret, format!("{label} {name}").as_bytes());
        let salt = part("salt")?[..SALT_BYTES].to_vec();
        Ok(Verifier {
            iterations: ITERATIONS,
            salt,
            stored_key: part("stored")?,
            server_key: part("server")?,
        })
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verifier { iterations, salt, stored_key, server_key } = self;
        let [salt, stored_key, server_key] =
            [salt.as_slice(), stored_key, server_key].map(|bytes| BASE64_STANDARD.encode(bytes));
        write!(f, "{MECHANISM}${iterations}:{salt}${stored_key}:{server_key}")
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MECHANISM)
    }
}

impl<'de> Deserialize<'de> for Verifier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Verifier::parse(&text).map_err(|error| de::Error::custom(error.message))
    }
}

/// Returns the text by which a server in this process is let in for the client with the token of this digest. It cannot
/// be guessed without `key`.
///
/// # Errors
/// `Internal` only on a bug.
pub(super) fn ticket(key: &Key, digest: &TokenDigest) -> Result<String> {
    let digest = digest.to_string();
    let mac = hmac(key, digest.as_bytes())?;
    Ok(format!("{digest} {}", BASE64_STANDARD.encode(mac)))
}

/// Returns the digest of the token for which a text is a ticket; `None` if it is none.
pub(super) fn read_ticket(key: &Key, text: &str) -> Result<Option<TokenDigest>> {
    let named = text.split_once(' ').and_then(|(digest, _)| TokenDigest::parse(digest).ok());
    let Some(digest) = named else { return Ok(None) };
    let is_ticket = ticket(key, &digest)?.as_bytes().ct_eq(text.as_bytes());
    Ok(bool::from(is_ticket).then_some(digest))
}

/// The proof that is asked of a client, which has begun.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// The header by which the client tells of channel binding.
    header: String,
    nonce: String,
    /// The first messages, which the proof covers.
    covered: String,
}

impl Exchange {
    /// Reads the client's first message; returns the answer to it. `random` makes the server's part of the nonce.
    ///
    /// # Errors
    /// `Invalid` if the message is not one of RFC 5802, or the client insists on channel binding or acts for another user.
    pub fn begin(verifier: Verifier, message: &str, random: [u8; 18]) -> Result<(Self, String)> {
        let (binding, rest) = message.split_once(',').ok_or_else(malformed)?;
        match binding {
            // The client has none, or believes that the server has none.
            "n" | "y" => {}
            _ if binding.starts_with("p=") => {
                return Err(Error::invalid("SCRAM with channel binding is not done")
                    .advise("connect with channel_binding=disable"));
            }
            _ => return Err(malformed()),
        }
        let (other, bare) = rest.split_once(',').ok_or_else(malformed)?;
        if !other.is_empty() {
            return Err(Error::invalid("nobody may act for another user"));
        }
        // The name here is empty, or that of the user once more, which the protocol around this has told already.
        let (name, nonce) = bare.split_once(',').ok_or_else(malformed)?;
        let client = nonce.strip_prefix("r=").filter(|_| name.starts_with("n=")).ok_or_else(malformed)?;
        if client.is_empty()
            || client.len() > limits::SCRAM_NONCE_BYTES_MAX
            || !client.bytes().all(is_of_nonce)
        {
            return Err(malformed());
        }
        let nonce = format!("{client}{}", BASE64_STANDARD.encode(random));
        let salt = BASE64_STANDARD.encode(&verifier.salt);
        let answer = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let covered = format!("{bare},{answer}");
        let header = format!("{binding},{other},");
        Ok((Exchange { verifier, header, nonce, covered }, answer))
    }

    /// Reads the client's proof; returns the server's own, by which the client knows the server. `None` if the client does
    /// not have the token.
    ///
    /// # Errors
    /// `Invalid` if the message is not one of RFC 5802.
    pub fn finish(self, message: &str) -> Result<Option<String>> {
        let Exchange { verifier, header, nonce, covered } = self;
        let (unproved, proof) = message.rsplit_once(",p=").ok_or_else(malformed)?;
        let (bound, repeated) = unproved.split_once(",r=").ok_or_else(malformed)?;
        let bound = bound.strip_prefix("c=").ok_or_else(malformed)?;
        if bound != BASE64_STANDARD.encode(header) || repeated != nonce {
            return Err(malformed());
        }
        let proof: Key = BASE64_STANDARD
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or_else(malformed)?;
        let covered = format!("{covered},{unproved}");
        let client_key = xor(&proof, &hmac(&verifier.stored_key, covered.as_bytes())?);
        let stored_key: Key = Sha256::digest(client_key).into();
        if !bool::from(stored_key.ct_eq(&verifier.stored_key)) {
            return Ok(None);
        }
        let signature = hmac(&verifier.server_key, covered.as_bytes())?;
        Ok(Some(format!("v={}", BASE64_STANDARD.encode(signature))))
    }
}

fn is_of_nonce(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b','
}

fn malformed() -> Error {
    Error::invalid("malformed SCRAM message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3, for the password "pencil".
    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> Verifier {
        let salt = BASE64_STANDARD.decode(SALT).unwrap();
        Verifier::of("pencil", salt.try_into().unwrap()).unwrap()
    }

    /// Returns the exchange of the example, in which the server's part of the nonce is no base 64.
    fn example() -> Exchange {
        let (mut exchange, answer) = Exchange::begin(pencil(), FIRST, [7; 18]).unwrap();
        let ours = exchange.nonce.clone();
        assert!(
            answer.starts_with("r=rOprNGfwEbeRWgbNEkqO") && answer.ends_with(&format!(",s={SALT},i=4096"))
        );
        exchange.covered = exchange.covered.replace(&ours, NONCE);
        exchange.nonce = NONCE.to_string();
        exchange
    }

    #[test]
    fn the_example_of_the_standard_is_proved() {
        let message = format!("c=biws,r={NONCE},p={PROOF}");
        let signed = example().finish(&message).unwrap();
        assert_eq!(signed.as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        let other = Verifier::of("pencils", [1; SALT_BYTES]).unwrap();
        assert_eq!(Exchange { verifier: other, ..example() }.finish(&message).unwrap(), None);
        let flipped = message.replace("p=dH", "p=dI");
        assert_eq!(example().finish(&flipped).unwrap(), None);
    }

    #[test]
    fn messages_that_are_cut_or_of_another_exchange_are_errors() {
        let message = format!("c=biws,r={NONCE},p={PROOF}");
        for end in 0..message.len() {
            assert!(example().finish(&message[..end]).is_err(), "{end}");
        }
        for wrong in ["biws,r=x", "eSws,r=r"] {
            assert!(example().finish(&message.replacen("biws,r=r", wrong, 1)).is_err(), "{wrong}");
        }
        for end in 0..FIRST.len() - 19 {
            assert!(Exchange::begin(pencil(), &FIRST[..end], [0; 18]).is_err(), "{end}");
        }
        for wrong in ["p=tls-unique,,n=,r=x", "n,a=root,n=,r=x", "n,,n=,r=", "n,,n=,r=a,b", "m=1,,n=,r=x", ""]
        {
            assert!(Exchange::begin(pencil(), wrong, [0; 18]).is_err(), "{wrong}");
        }
        let long = format!("n,,n=,r={}", "x".repeat(limits::SCRAM_NONCE_BYTES_MAX + 1));
        assert!(Exchange::begin(pencil(), &long, [0; 18]).is_err());
    }

    #[test]
    fn verifiers_are_read_as_they_are_written_and_nothing_else_is() {
        let verifier = pencil();
        let text = verifier.to_string();
        assert!(text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"));
        assert_eq!(Verifier::parse(&text).unwrap(), verifier);
        for end in 0..text.len() {
            assert!(Verifier::parse(&text[..end]).is_err(), "{end}");
        }
        for (from, to) in [("4096", "0"), ("4096", "4294967295"), ("SHA-256", "SHA-1"), ("W22Z", "")] {
            let error = Verifier::parse(&text.replace(from, to));
            assert!(error.is_err() || from == "W22Z", "{to}");
        }
        assert!(Verifier::parse(&text.replace(SALT, "")).is_err());
    }

    #[test]
    fn a_user_whom_nobody_knows_is_asked_as_others_are() {
        let known = [pencil()];
        let nobody = |name| Verifier::of_nobody(name, known.iter()).unwrap();
        assert_eq!(nobody("eve"), nobody("eve"));
        assert_ne!(nobody("eve").salt, nobody("eva").salt);
        assert_eq!((nobody("eve").salt.len(), nobody("eve").iterations), (SALT_BYTES, ITERATIONS));
    }
}
