//! Access control of a node: which access tokens are valid, for which tenant and with which right, and the limits of
//! each tenant, as read from the file of `farpool serve --access`.
//!
//! Invariants: the node stores only digests of tokens. The time of looking up a token reveals neither which token it is
//! nor whether it is known.

mod end_date;
mod file;
pub mod scram;
mod token;

pub use end_date::EndDate;
pub use file::toml_key;
pub(crate) use token::{REDACTED, without_tokens};
pub use token::{TokenDigest, new_token};

use crate::rights::Right;
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use scram::Verifier;
use std::collections::BTreeMap;
use std::num::NonZero;

/// The tokens that a node accepts, and the limits of its tenants.
#[derive(Clone, Debug)]
pub struct Access {
    /// The tokens. `None` means that no token is needed, and that every client acts for the default tenant with every
    /// right.
    tokens: Option<Vec<Grant>>,
    tenants: BTreeMap<TenantName, TenantLimits>,
}

/// Grant of an access token: the tenant and the right of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Digest of the token; `None` if the node needs no tokens.
    digest: Option<TokenDigest>,
    /// Name of the token in the access file, for display.
    pub name: Option<String>,
    /// The tenant that the client acts for.
    pub tenant: TenantName,
    /// The right that the token grants.
    pub right: Right,
    /// When the token expires; `None` if it does not.
    pub until: Option<EndDate>,
    /// The means to check that a client has the token, without seeing it.
    verifier: Option<Verifier>,
}

/// The proof that a client has its token, which is asked of it in place of the token.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The means to check it.
    pub verifier: Verifier,
    /// The text that lets a server in this process in for the client, in place of the token; `None` if nobody has the
    /// client's name, so that no proof is right.
    pub ticket: Option<String>,
}

/// The limits of one tenant. `None` means that only the limits of the node apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Weight of the tenant when the workers' time is divided among tenants.
    pub weight: u32,
    /// Maximum bytes of the tenant's tables and keys in the memory pool.
    pub pool_bytes_max: Option<usize>,
    /// Maximum encoded bytes of the tenant's tables in the data directory.
    pub disk_bytes_max: Option<u64>,
    /// Maximum bytes of memory outside the pool, for executing requests, that the tenant may have reserved.
    pub work_bytes_max: Option<usize>,
    /// Maximum number of the tenant's programs that run at the same time.
    pub programs_max: Option<NonZero<usize>>,
    /// Maximum number of the tenant's programs that wait for their turn; further programs are refused. Has no effect
    /// without `programs_max`.
    pub programs_waiting_max: usize,
    /// Maximum bytes of the result of one program, as sent.
    pub result_bytes_max: Option<u64>,
    /// Maximum number of open connections of the tenant.
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
    /// Returns the access settings of a node without tokens: every client acts for the default tenant with every right.
    pub fn of_everybody() -> Self {
        Access { tokens: None, tenants: BTreeMap::new() }
    }

    /// Returns access settings that require a token and have none yet, so that no client can connect.
    pub fn of_nobody() -> Self {
        Access { tokens: Some(Vec::new()), tenants: BTreeMap::new() }
    }

    /// Returns whether a token is required but none exists.
    pub fn is_of_nobody(&self) -> bool {
        self.tokens.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns these settings with an additional token, which has no name and never expires.
    #[must_use]
    pub fn with_token(mut self, token: &str, tenant: TenantName, right: Right) -> Self {
        let grant = Grant {
            digest: Some(TokenDigest::of(token)),
            name: None,
            tenant,
            right,
            until: None,
            verifier: None,
        };
        self.tokens.get_or_insert_default().push(grant);
        self
    }

    /// Returns these settings with `limits` as the limits of a tenant.
    #[must_use]
    pub fn with_limits(mut self, tenant: TenantName, limits: TenantLimits) -> Self {
        self.tenants.insert(tenant, limits);
        self
    }

    /// Returns whether clients need no token.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_none()
    }

    /// Returns whether `text` is one of these tokens, expired or not.
    pub(crate) fn has_token(&self, text: &str) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| find(tokens, &TokenDigest::of(text)).is_some())
    }

    /// Returns the limits of a tenant; the default limits if none are set.
    pub fn limits(&self, tenant: &TenantName) -> TenantLimits {
        self.tenants.get(tenant).cloned().unwrap_or_default()
    }

    /// Iterates over the tenants for which limits are set.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &TenantName> {
        self.tenants.keys()
    }

    /// Returns what `token` grants at `now_s` seconds since 1970.
    ///
    /// # Errors
    /// `Denied` when the token is missing, unknown or expired.
    pub fn admit(&self, token: Option<&str>, now_s: u64) -> Result<Grant> {
        let Some(tokens) = &self.tokens else {
            let (tenant, right) = (TenantName::default(), Right::Admin);
            return Ok(Grant { digest: None, name: None, tenant, right, until: None, verifier: None });
        };
        let Some(token) = token else {
            return Err(denied("the pool asks for a token"));
        };
        let found = find(tokens, &TokenDigest::of(token));
        let grant = found.ok_or_else(|| denied("the pool does not know this token"))?;
        grant.check_end(now_s)?;
        Ok(grant.clone())
    }

    /// Returns the grant for which a server in this process has this ticket; `None` if it is none.
    pub(crate) fn admit_ticket(&self, ticket: &str, key: &[u8; 32], now_s: u64) -> Result<Option<Grant>> {
        let Some(digest) = scram::read_ticket(key, ticket)? else { return Ok(None) };
        let grant = self.tokens.as_ref().and_then(|tokens| find(tokens, &digest));
        grant.map(|grant| grant.check_end(now_s).map(|()| grant.clone())).transpose()
    }

    /// Returns the proof that is asked of the client with the token of this name; `None` if it has to send the token.
    /// Where any token has a verifier, a proof is asked of clients with an unknown name, too.
    ///
    /// # Errors
    /// `Internal` only on a bug.
    pub(crate) fn proof(&self, name: &str, key: &[u8; 32]) -> Result<Option<Proof>> {
        let grants = || self.tokens.iter().flatten();
        let mut known = grants().filter_map(|grant| grant.verifier.as_ref()).peekable();
        if known.peek().is_none() {
            return Ok(None);
        }
        let Some(grant) = grants().find(|grant| grant.name.as_deref() == Some(name)) else {
            return Ok(Some(Proof { verifier: Verifier::of_nobody(name, known)?, ticket: None }));
        };
        let (Some(verifier), Some(digest)) = (&grant.verifier, &grant.digest) else { return Ok(None) };
        Ok(Some(Proof { verifier: verifier.clone(), ticket: Some(scram::ticket(key, digest)?) }))
    }

    /// Checks that the token of an earlier grant still grants the same.
    ///
    /// # Errors
    /// `Denied` when the token was removed or has expired; `Unavailable` when it grants something else now, which makes
    /// the client connect again.
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
    /// Returns the name of the token for messages.
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

/// Returns the grant of the token with this digest; `None` if there is none. Compares the digest with all tokens, so
/// that the time does not reveal which one matches.
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
