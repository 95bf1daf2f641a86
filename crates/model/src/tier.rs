//! Encryption tiers, by name.

use std::fmt;
use std::str::FromStr;

/// Tier of encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// AES-128-CTR: confidential against readers, without protection against modification. Does not authenticate.
    Fast,
    /// AES-128-GCM.
    Standard,
    /// AES-256-GCM; names and schemas are encrypted, too, wherever they are stored.
    Strict,
}

impl Tier {
    /// All tiers, the weakest first.
    pub const ALL: [Tier; 3] = [Tier::Fast, Tier::Standard, Tier::Strict];

    /// Bytes of its keys.
    pub const fn key_bytes(self) -> usize {
        match self {
            Tier::Fast | Tier::Standard => 16,
            Tier::Strict => 32,
        }
    }

    /// Returns whether changes of the bytes are noticed.
    pub const fn authenticates(self) -> bool {
        match self {
            Tier::Fast => false,
            Tier::Standard | Tier::Strict => true,
        }
    }

    /// Returns the name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Fast => "fast",
            Tier::Standard => "standard",
            Tier::Strict => "strict",
        }
    }

    /// Describes the guarantees of the tier, in a sentence.
    pub const fn describe(self) -> &'static str {
        match self {
            Tier::Fast => {
                "AES-128-CTR, which does not authenticate: who can write the bytes can change the data unnoticed"
            }
            Tier::Standard => "AES-128-GCM: encrypted and authenticated",
            Tier::Strict => "AES-256-GCM: encrypted and authenticated, names and schemas too",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Tier, String> {
        let named = Tier::ALL.into_iter().find(|tier| tier.name() == text);
        named.ok_or_else(|| format!("{text:?} is none of {}", Tier::ALL.map(Tier::name).join(", ")))
    }
}
