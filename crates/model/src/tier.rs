//! Encryption tiers and their names.

use std::fmt;
use std::str::FromStr;

/// Encryption tier: which cipher protects data, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// AES-128-CTR: protects against reading the data, but changes are not noticed, because the data are not
    /// authenticated.
    Fast,
    /// AES-128-GCM: encrypted and authenticated.
    Standard,
    /// AES-256-GCM: encrypted and authenticated; names and schemas are encrypted, too, wherever they are stored.
    Strict,
}

impl Tier {
    /// All tiers, the weakest first.
    pub const ALL: [Tier; 3] = [Tier::Fast, Tier::Standard, Tier::Strict];

    /// Returns the bytes of an encryption key of the tier.
    pub const fn key_bytes(self) -> usize {
        match self {
            Tier::Fast | Tier::Standard => 16,
            Tier::Strict => 32,
        }
    }

    /// Returns whether the cipher authenticates data, so that changes are noticed.
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
