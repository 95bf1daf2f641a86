//! The access file (`farpool serve --access`): TOML with a table for each tenant and one for each access token.
//!
//! Invariants: a file with any mistake is rejected as a whole, with the line and advice. Error messages never contain
//! text that could be a token, because they are logged.

use super::scram::Verifier;
use super::token::PREFIX;
use super::{Access, EndDate, Grant, TenantLimits, TokenDigest};
use crate::follow::open_regular;
use crate::rights::Right;
use farpool_memory::parse_size;
use farpool_model::{Error, ErrorKind, Result, TenantName, cast, limits};
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZero;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;

/// Advice that most error messages about the access file contain.
const ADVICE: &str =
    "'farpool serve --help' shows what the file may have; `farpool token new` prints lines for it";

/// The contents of the file, deserialized and not validated yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    tenant: BTreeMap<TenantName, TenantTable>,
    #[serde(default)]
    token: Vec<TokenTable>,
}

/// A table `[tenant.NAME]` of the file: the limits of a tenant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantTable {
    weight: Option<NonZero<u32>>,
    pool_memory: Option<Size>,
    disk: Option<Size>,
    work_memory: Option<Size>,
    programs: Option<NonZero<usize>>,
    programs_waiting: Option<usize>,
    result_bytes: Option<Size>,
    connections: Option<NonZero<usize>>,
}

/// A table `[[token]]` of the file: an access token by its digest, with its tenant and right.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    tenant: Spanned<TenantName>,
    #[serde(deserialize_with = "role")]
    role: Right,
    sha256: Spanned<TokenDigest>,
    name: Option<Spanned<String>>,
    until: Option<EndDate>,
    scram: Option<Spanned<Verifier>>,
}

/// A size in bytes, written as a number or with a unit, as `"4GiB"`.
struct Size(usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size such as \"4GiB\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                let advised =
                    |error: Error| format!("{}: {}", error.message, error.advice.unwrap_or_default());
                parse_size(text).map(Size).map_err(|error| E::custom(advised(error)))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                self.visit_str(&bytes.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Right, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|error: Error| de::Error::custom(error.message))
}

impl Access {
    /// Checks that at least one token exists. Called at the start of a node only, because removing the last token later
    /// must take effect.
    ///
    /// # Errors
    /// `Invalid` when there is no token.
    pub fn check_not_empty(&self) -> Result<()> {
        match self.is_of_nobody() {
            true => Err(Error::invalid("there is no token, so nobody could connect").advise(ADVICE)),
            false => Ok(()),
        }
    }

    /// Reads and parses an access file. A file without tokens is valid, because removing the last token must take
    /// effect.
    ///
    /// # Errors
    /// `NotFound` or `Invalid` when the file cannot be read; `Invalid` for mistakes in it, with the line.
    pub fn read(path: &Path) -> Result<Self> {
        let cannot = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Invalid,
            };
            Error::new(kind, format!("cannot read who may connect from {}: {error}", path.display()))
                .advise("check the path, and who may read the file")
        };
        let most = cast::u64_from(limits::ACCESS_FILE_BYTES_MAX);
        let mut bytes = Vec::new();
        let file = open_regular(path).map_err(cannot)?;
        file.take(most + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if cast::u64_from(bytes.len()) > most {
            return Err(Error::over_limit(format!("it has more than {most} bytes")).at(path.display()));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            Error::invalid(format!("line {line}: this is not UTF-8"))
                .advise("save the file as plain text")
                .at(path.display())
        })?;
        Access::parse(&text).map_err(|error| error.at(path.display()))
    }

    /// Parses the text of an access file.
    ///
    /// # Errors
    /// `Invalid` with the line of the mistake.
    pub fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|error| {
            let message = without_tokens(error.message());
            at_line(text, error.span().unwrap_or_default(), Error::invalid(message).advise(ADVICE))
        })?;
        let tenants = tenants(file.tenant);
        let tokens = tokens(text, file.token, &tenants)?;
        Ok(Access { tokens: Some(tokens), tenants })
    }
}

fn tenants(tables: BTreeMap<TenantName, TenantTable>) -> BTreeMap<TenantName, TenantLimits> {
    let limits = |table: TenantTable| {
        let default = TenantLimits::default();
        TenantLimits {
            weight: table.weight.map_or(default.weight, NonZero::get),
            pool_bytes_max: table.pool_memory.map(|size| size.0),
            disk_bytes_max: table.disk.map(|size| cast::u64_from(size.0)),
            work_bytes_max: table.work_memory.map(|size| size.0),
            programs_max: table.programs,
            programs_waiting_max: table.programs_waiting.unwrap_or(default.programs_waiting_max),
            result_bytes_max: table.result_bytes.map(|size| cast::u64_from(size.0)),
            connections_max: table.connections,
        }
    };
    tables.into_iter().map(|(name, table)| (name, limits(table))).collect()
}

fn tokens(
    text: &str,
    tables: Vec<TokenTable>,
    tenants: &BTreeMap<TenantName, TenantLimits>,
) -> Result<Vec<Grant>> {
    let mut tokens: Vec<Grant> = Vec::with_capacity(tables.len());
    for TokenTable { tenant, role, sha256, name, until, scram } in tables {
        if !tenants.contains_key(tenant.get_ref()) {
            let name = tenant.get_ref().as_str();
            let error = Error::invalid(format!("there is no tenant {:?}", without_tokens(name))).advise(
                format!("correct the name, or add the line [tenant.{}]", without_tokens(&toml_key(name))),
            );
            return Err(at_line(text, tenant.span(), error));
        }
        let digest = *sha256.get_ref();
        if tokens.iter().any(|known| known.digest == Some(digest)) {
            let error = Error::invalid("this token stands above already")
                .advise("make another one with `farpool token new`, or remove one of the two");
            return Err(at_line(text, sha256.span(), error));
        }
        if let Some(name) = &name
            && tokens.iter().any(|known| known.name.as_ref() == Some(name.get_ref()))
        {
            let error =
                Error::invalid(format!("a token above is called {:?} too", without_tokens(name.get_ref())))
                    .advise("names of tokens tell them apart in the log and in `farpool queries`");
            return Err(at_line(text, name.span(), error));
        }
        if let Some(scram) = scram.as_ref().filter(|_| name.is_none()) {
            let error = Error::invalid("a token with a SCRAM verifier needs a name")
                .advise("add the line name = \"…\": clients of PostgreSQL's protocol give it as their user");
            return Err(at_line(text, scram.span(), error));
        }
        tokens.push(Grant {
            digest: Some(digest),
            name: name.map(Spanned::into_inner),
            tenant: tenant.into_inner(),
            right: role,
            until,
            verifier: scram.map(Spanned::into_inner),
        });
    }
    Ok(tokens)
}

/// Returns a name as a TOML key, in quotes if TOML requires them.
pub fn toml_key(name: &str) -> String {
    let is_bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    match is_bare {
        true => name.to_string(),
        // Other characters that need escapes are control characters, which names do not have.
        false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Adds the line on which `span` of `text` begins to an error.
fn at_line(text: &str, span: Range<usize>, error: Error) -> Error {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    error.at(format!("line {}", 1 + before.iter().filter(|b| **b == b'\n').count()))
}

/// Returns the text with everything that looks like a token shortened.
fn without_tokens(text: &str) -> String {
    let mut parts = text.split(PREFIX);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        out.push_str(PREFIX);
        out.push('…');
        out.push_str(rest);
    }
    out
}
