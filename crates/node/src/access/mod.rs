//! Access to a node: who may connect, for which tenant, with which right, and the limits of each tenant, as
//! read from the file of `farpool serve --access`.
//!
//! Invariant: only digests of tokens are kept; the time of a look-up does not reveal which token a client
//! showed, or whether it is known.

mod end_date;
mod file;
mod token;

pub use end_date::EndDate;
pub use file::toml_key;
pub(crate) use token::{REDACTED, without_tokens};
pub use token::{TokenDigest, new_token};

use crate::rights::Right;
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use std::collections::BTreeMap;
use std::num::NonZero;

/// The tokens and tenant limits that a node enforces.
#[derive(Clone, Debug)]
pub struct Access {
    /// `None`: no token is needed, and everybody acts for the default tenant with every right.
    tokens: Option<Vec<Grant>>,
    tenants: BTreeMap<TenantName, TenantLimits>,
}

/// The tenant and right of a client, and the token that granted them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Digest of the client's token; `None` where no token is needed.
    digest: Option<TokenDigest>,
    /// Name of the token, for display.
    pub name: Option<String>,
    /// The tenant whose tables are accessible.
    pub tenant: TenantName,
    /// The right that the token grants.
    pub right: Right,
    /// When the token expires, if it does.
    pub until: Option<EndDate>,
}

/// Limits of one tenant. Where a limit is not set, that of the node applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Weight of the tenant in the division of the workers' time.
    pub weight: u32,
    /// Maximum bytes of its tables in the pool.
    pub pool_bytes_max: Option<usize>,
    /// Maximum encoded bytes of its tables in a data directory.
    pub disk_bytes_max: Option<u64>,
    /// Maximum bytes that it may have reserved of the memory for work.
    pub work_bytes_max: Option<usize>,
    /// Maximum number of programs that run at the same time.
    pub programs_max: Option<NonZero<usize>>,
    /// Maximum number of programs that wait for others to end; a further one is refused. Has no effect
    /// without `programs_max`.
    pub programs_waiting_max: usize,
    /// Maximum bytes that are sent as the result of one program.
    pub result_bytes_max: Option<u64>,
    /// Maximum number of concurrent connections.
    pub connections_max: Option<NonZero<usize>>,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits {
            weight: 1,
            pool_bytes_max: None,
            disk_bytes_max: None,
            work_bytes_max: None,
            programs_max: None,
            programs_waiting_max: limits::PROGRAMS_WAITING_DEFAULT,
            result_bytes_max: None,
            connections_max: None,
        }
    }
}

impl Access {
    /// Lets everybody connect as the default tenant, with every right.
    pub fn of_everybody() -> Self {
        Access { tokens: None, tenants: BTreeMap::new() }
    }

    /// Lets nobody connect until tokens are added.
    pub fn of_nobody() -> Self {
        Access { tokens: Some(Vec::new()), tenants: BTreeMap::new() }
    }

    /// Returns whether a token is required but none exists.
    pub fn is_of_nobody(&self) -> bool {
        self.tokens.as_ref().is_some_and(Vec::is_empty)
    }

    /// Adds a token that never expires.
    #[must_use]
    pub fn with_token(mut self, token: &str, tenant: TenantName, right: Right) -> Self {
        let grant = Grant { digest: Some(TokenDigest::of(token)), name: None, tenant, right, until: None };
        self.tokens.get_or_insert_default().push(grant);
        self
    }

    /// Sets the limits of a tenant.
    #[must_use]
    pub fn with_limits(mut self, tenant: TenantName, limits: TenantLimits) -> Self {
        self.tenants.insert(tenant, limits);
        self
    }

    /// Returns whether no token is required.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_none()
    }

    /// Returns whether a text is a valid or expired token.
    pub(crate) fn has_token(&self, text: &str) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| find(tokens, &TokenDigest::of(text)).is_some())
    }

    /// Returns the limits of a tenant.
    pub fn limits(&self, tenant: &TenantName) -> TenantLimits {
        self.tenants.get(tenant).cloned().unwrap_or_default()
    }

    /// Iterates over the tenants that have limits of their own.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &TenantName> {
        self.tenants.keys()
    }

    /// Returns what the holder of `token` may do, at `now_s` seconds since 1970.
    ///
    /// # Errors
    /// `Denied` when the token is missing, unknown or expired.
    pub fn admit(&self, token: Option<&str>, now_s: u64) -> Result<Grant> {
        let Some(tokens) = &self.tokens else {
            let (tenant, right) = (TenantName::default(), Right::Admin);
            return Ok(Grant { digest: None, name: None, tenant, right, until: None });
        };
        let Some(token) = token else {
            return Err(denied("the pool asks for a token"));
        };
        let found = find(tokens, &TokenDigest::of(token));
        let grant = found.ok_or_else(|| denied("the pool does not know this token"))?;
        grant.check_end(now_s)?;
        Ok(grant.clone())
    }

    /// Checks that an earlier grant is still valid.
    ///
    /// # Errors
    /// `Denied` when the token was removed or has expired; `Unavailable` when it now grants something else,
    /// so that its client reconnects.
    pub(crate) fn confirm(&self, grant: &Grant, now_s: u64) -> Result<()> {
        let found = match (&self.tokens, &grant.digest) {
            (None, _) => return Ok(()),
            (Some(tokens), Some(digest)) => find(tokens, digest),
            (Some(_), None) => None,
        };
        let Some(found) = found else {
            return Err(denied(format!("{} was removed: the pool no longer knows it", grant.label())));
        };
        found.check_end(now_s)?;
        match (&found.tenant, found.right) == (&grant.tenant, grant.right) {
            true => Ok(()),
            false => Err(Error::unavailable(format!("{} allows something else by now", grant.label()))
                .advise("connect again")),
        }
    }
}

impl Grant {
    /// Returns the token's name as used in messages.
    fn label(&self) -> String {
        self.name.as_ref().map_or_else(|| "the token".to_string(), |name| format!("token {name:?}"))
    }

    fn check_end(&self, now_s: u64) -> Result<()> {
        match &self.until {
            Some(until) if until.is_over(now_s) => {
                Err(denied(format!("the time of {} is over: it was for use until {until}", self.label())))
            }
            _ => Ok(()),
        }
    }
}

/// Finds a token by its digest. Compares with every token, so that the time does not depend on which matches.
fn find<'t>(tokens: &'t [Grant], digest: &TokenDigest) -> Option<&'t Grant> {
    tokens.iter().fold(None, |found, grant| match &grant.digest {
        Some(known) if known.equals(digest) => Some(grant),
        _ => found,
    })
}

fn denied(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, message).advise(
        "give the token that whoever runs the pool gave you: --token-file FILE, or the variable FARPOOL_TOKEN",
    )
}

#[cfg(test)]
mod tests;
