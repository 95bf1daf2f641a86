//! Names of tenants, schemas and tables, and versions of tables.

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
            /// Creates a name. Only its length and control characters are checked; any other text is a valid name.
            pub fn new(name: impl Into<String>) -> Result<Self> {
                let name = name.into();
                check($what, &name)?;
                Ok($name(name))
            }

            /// Returns the text of the name.
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
    /// The name of a schema, unique within its tenant. Case matters.
    SchemaName,
    "schema"
);

impl SchemaName {
    /// Name of the schema that every tenant has, and that table names without a schema refer to.
    pub const PUBLIC: &str = "public";

    /// Returns whether it is the schema `public`.
    pub fn is_public(&self) -> bool {
        self.0 == SchemaName::PUBLIC
    }
}

/// The name of a table or view: a schema, and a name within the schema, each of at most [`limits::NAME_BYTES_MAX`]
/// bytes. Unique within its tenant. Case matters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    /// The name within the schema for `public`, otherwise the schema, a dot and the name.
    text: String,
    /// Bytes of the schema at the beginning of `text`; 0 for `public`.
    schema_bytes: usize,
}

/// Separator of schema and name in [`TableName::encoded`]: the ASCII unit separator. Names have no control characters,
/// so that no name contains it.
const SEPARATOR: char = '\u{1f}';

impl TableName {
    /// Creates a name in the schema `public`. Only its length and control characters are checked; any other text is a
    /// valid name, dots included.
    ///
    /// # Errors
    /// `Invalid` if the name is empty, too long, or has control characters.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let text = name.into();
        check("table", &text)?;
        Ok(TableName { text, schema_bytes: 0 })
    }

    /// Creates a name in `schema`.
    ///
    /// # Errors
    /// As [`TableName::new`].
    pub fn in_schema(schema: &SchemaName, name: &str) -> Result<Self> {
        if schema.is_public() {
            return TableName::new(name);
        }
        check("table", name)?;
        Ok(TableName { text: format!("{schema}.{name}"), schema_bytes: schema.as_str().len() })
    }

    /// Reads a name as a person writes it: `TABLE` or `SCHEMA.TABLE`. A part that contains dots or quotes
    /// stands in double quotes, as in SQL; case is kept with and without them.
    ///
    /// ```
    /// use farpool_model::TableName;
    /// assert_eq!(TableName::parse("staging.orders")?.schema().as_str(), "staging");
    /// assert_eq!(TableName::parse(r#""a.b""#)?, TableName::new("a.b")?);
    /// # Ok::<(), farpool_model::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if the text is not such a name.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = parts(text);
        let parts: Option<Vec<&str>> = parts.as_ref().map(|parts| parts.iter().map(String::as_str).collect());
        match parts.as_deref() {
            Some([table]) => TableName::new(*table),
            Some([schema, table]) => TableName::in_schema(&SchemaName::new(*schema)?, table),
            _ => Err(Error::invalid(format!("{text:?} is not the name of a table"))
                .advise(r#"write TABLE or SCHEMA.TABLE, and a part that has dots in double quotes ("a.b")"#)),
        }
    }

    /// Returns the name in the form that [`TableName::parse`] reads: parts with dots or quotes are in double quotes.
    pub fn written(&self) -> String {
        let part = |part: &str| match part.contains(['.', '"']) {
            true => quoted(part),
            false => part.to_string(),
        };
        match self.is_public() {
            true => part(self.table()),
            false => format!("{}.{}", part(self.schema().as_str()), part(self.table())),
        }
    }

    /// Returns the name in SQL, each part in double quotes.
    pub fn to_sql(&self) -> String {
        match self.is_public() {
            true => quoted(self.table()),
            false => format!("{}.{}", quoted(self.schema().as_str()), quoted(self.table())),
        }
    }

    /// Returns the name for messages: `TABLE` in the schema `public`, otherwise `SCHEMA.TABLE`. Ambiguous, because a
    /// part may contain dots.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the schema.
    pub fn schema(&self) -> SchemaName {
        match self.schema_bytes {
            0 => SchemaName(SchemaName::PUBLIC.to_string()),
            bytes => SchemaName(self.text[..bytes].to_string()),
        }
    }

    /// Returns whether the name is in the schema `public`.
    pub fn is_public(&self) -> bool {
        self.schema_bytes == 0
    }

    /// Returns the name within its schema.
    pub fn table(&self) -> &str {
        match self.schema_bytes {
            0 => &self.text,
            bytes => &self.text[bytes + 1..],
        }
    }

    /// Returns the name as one unambiguous text for protocols and files: `TABLE` in the schema `public`, otherwise the
    /// schema, the character U+001F and the name.
    pub fn encoded(&self) -> String {
        match self.schema_bytes {
            0 => self.text.clone(),
            bytes => format!("{}{SEPARATOR}{}", &self.text[..bytes], self.table()),
        }
    }

    /// Decodes the output of [`TableName::encoded`].
    ///
    /// # Errors
    /// `Invalid` if a part is empty, too long, or has control characters.
    pub fn decode(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        match text.split_once(SEPARATOR) {
            None => TableName::new(text),
            Some((SchemaName::PUBLIC, _)) => {
                Err(Error::invalid("the name of a table in public that comes with its schema"))
            }
            Some((schema, table)) => TableName::in_schema(&SchemaName::new(schema)?, table),
        }
    }
}

fn quoted(part: &str) -> String {
    format!("\"{}\"", part.replace('"', "\"\""))
}

/// Splits a name at the dots outside of quotes; `None` if a quote is not closed or is within a part.
fn parts(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let (part, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].to_string(), &rest[end..])
            }
        };
        parts.push(part);
        match behind.strip_prefix('.') {
            Some(next) => rest = next,
            None => return behind.is_empty().then_some(parts),
        }
    }
}

/// Reads a part up to its closing quote; doubled quotes stand for one. Returns the part and the text after it; `None`
/// if the quote is not closed.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let (mut part, mut rest) = (String::new(), text);
    loop {
        let end = rest.find('"')?;
        part.push_str(&rest[..end]);
        match rest[end + 1..].strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Some((part, &rest[end + 1..])),
        }
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableName").field(&self.encoded()).finish()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for TableName {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        TableName::decode(name)
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> String {
        name.encoded()
    }
}

name_type!(
    /// The name of a tenant: the owner of tables, and the unit of accounting.
    TenantName,
    "tenant"
);

impl Default for TenantName {
    /// Returns the tenant of every client that presents no token.
    fn default() -> Self {
        TenantName("default".to_string())
    }
}

/// The version of a table's contents. Every load, append or replacement creates a greater one. Versions from
/// [`Version::FIRST_MOMENT`] on are points in time at which the entries of a keyspace are read as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// First version that stands for a point in time of a keyspace (a namespace of key-value entries).
    pub const FIRST_MOMENT: Version = Version(1 << 40);

    /// Returns whether the version stands for a point in time at which the entries of a keyspace are read.
    pub fn is_moment(self) -> bool {
        self >= Version::FIRST_MOMENT
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}
