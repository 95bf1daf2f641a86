//! Who may connect to a node, as whom, with which right, and what each tenant may take of it: what the file of
//! `farpool serve --access` says.
//!
//! Invariant: tokens are never kept, only their digests; which of them a client showed, if any, does not show in the
//! time that it takes to find out.

mod end_date;
mod file;
mod token;

pub use end_date::EndDate;
pub use file::toml_key;
pub use token::{TokenDigest, new_token};

use crate::rights::Right;
use farpool_model::{Error, ErrorKind, Result, TenantName, limits};
use std::collections::BTreeMap;
use std::num::NonZero;

/// See the file's comment.
#[derive(Clone, Debug)]
pub struct Access {
    /// `None`: whoever connects acts for the default tenant and may do everything.
    tokens: Option<Vec<Grant>>,
    tenants: BTreeMap<TenantName, TenantLimits>,
}

/// What a client may do, and by what it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Of the token that was shown; `None` where nobody is asked for one.
    digest: Option<TokenDigest>,
    /// For people: what the token is called.
    pub name: Option<String>,
    /// Whose tables it leads to.
    pub tenant: TenantName,
    /// What it allows.
    pub right: Right,
    /// Until when.
    pub until: Option<EndDate>,
}

/// What one tenant may take of a node. Without a bound of its own it has the bounds of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// How many times the share of another it gets of the node's time.
    pub weight: u32,
    /// Bytes that its tables may take in the pool.
    pub pool_bytes_max: Option<usize>,
    /// Bytes of memory for work that it may have reserved.
    pub work_bytes_max: Option<usize>,
    /// Programs that may run at once.
    pub programs_max: Option<NonZero<usize>>,
    /// Programs that may wait for others to end; one more is refused. Where any number may run, none waits.
    pub programs_waiting_max: usize,
    /// Bytes that the result of one program may have on its way to the client.
    pub result_bytes_max: Option<u64>,
    /// Connections at once.
    pub connections_max: Option<NonZero<usize>>,
}

impl Default for TenantLimits {
    fn default() -> Self {
        TenantLimits {
            weight: 1,
            pool_bytes_max: None,
            work_bytes_max: None,
            programs_max: None,
            programs_waiting_max: limits::PROGRAMS_WAITING_DEFAULT,
            result_bytes_max: None,
            connections_max: None,
        }
    }
}

impl Access {
    /// Everybody may connect, acts for the default tenant and may do everything.
    pub fn of_everybody() -> Self {
        Access { tokens: None, tenants: BTreeMap::new() }
    }

    /// Nobody may connect, until there are tokens.
    pub fn of_nobody() -> Self {
        Access { tokens: Some(Vec::new()), tenants: BTreeMap::new() }
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

    /// What a tenant may take.
    pub fn limits(&self, tenant: &TenantName) -> TenantLimits {
        self.tenants.get(tenant).cloned().unwrap_or_default()
    }

    /// The tenants that have limits of their own.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &TenantName> {
        self.tenants.keys()
    }

    /// What whoever shows `token` may do, at a time in seconds since 1970.
    ///
    /// # Errors
    /// `Denied` when there is no token, it is unknown, or its time is over.
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

    /// Whether what was granted before still is.
    ///
    /// # Errors
    /// `Denied` when the token was removed or its time is over; `Unavailable` when it now allows something else, so
    /// that its client connects anew.
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
    /// How messages call the token.
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

/// Looks at every token whatever was found, so that the time tells nothing.
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
