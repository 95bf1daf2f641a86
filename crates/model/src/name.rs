//! Identifiers of tenants, tables and table versions.

use crate::{Error, Result, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

fn check(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid(format!("a {what} name may not be empty")));
    }
    if name.len() > limits::NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a {what} name may have {} bytes, this one has {}",
            limits::NAME_BYTES_MAX,
            name.len()
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!("a {what} name may not contain control characters: {name:?}")));
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Creates a name. Only its length and control characters are checked; any other text is a valid
            /// name.
            pub fn new(name: impl Into<String>) -> Result<Self> {
                let name = name.into();
                check($what, &name)?;
                Ok($name(name))
            }

            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(name: String) -> Result<Self> {
                $name::new(name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

name_type!(
    /// The name of a table, unique within its tenant. Case matters.
    TableName,
    "table"
);
name_type!(
    /// The name of a tenant: the owner of tables, and the unit of accounting.
    TenantName,
    "tenant"
);

impl Default for TenantName {
    /// The tenant of every client that presents no token.
    fn default() -> Self {
        TenantName("default".to_string())
    }
}

/// The version of a table's contents. Every load, append or replacement makes a greater one. Numbers from
/// [`Version::FIRST_MOMENT`] on stand for the moments at which the keys of a space are read as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// The first number of a moment.
    pub const FIRST_MOMENT: Version = Version(1 << 40);

    /// Whether it stands for a moment at which the keys of a space are read.
    pub fn is_moment(self) -> bool {
        self >= Version::FIRST_MOMENT
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}
