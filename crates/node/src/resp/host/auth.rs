//! Authentication of clients of the Redis protocol (`AUTH`, `HELLO`), and the names of connections.
//!
//! Invariants: a failed login changes nothing. A login with a token of another tenant drops queued commands and watched
//! keys (`Session::leave`). No token becomes visible to other clients.
//!
//! Example: a client of tenant A sends `WATCH k`, then `AUTH` with a token of tenant B, then `MULTI`, `GET k`, `EXEC`.
//! The client watched the `k` of A, which says nothing about the `k` of B, so `EXEC` replies null.

use super::state::AdmittedClient;
use super::{Client, Done, REDIS_VERSION};
use crate::access::without_tokens;
use crate::resp::tenants::TenantState;
use crate::shares::Port;
use farpool_kv::resp::{Protocol, Replies, parse_integer};
use farpool_kv::{Args, HostCommand, Refusal};
use farpool_model::{Error, ErrorKind, Result, limits};
use std::borrow::Cow;

/// Redis' error for a password where none is configured.
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                           your configuration is correct?";

/// Redis' error when the node has reached its limit of clients.
pub(in crate::resp) const TOO_MANY: &str = "ERR max number of clients reached";

impl Client {
    /// Authenticates the client with a token, or as the default user without one.
    ///
    /// # Errors
    /// `Denied` when the node does not know the token; `OverLimit` when there are too many clients.
    pub fn admit(&mut self, token: Option<&str>) -> Result<()> {
        let (caller, pass) = self.node.admit(token)?;
        let keys = caller.keys()?;
        // With a token of the same tenant, queued commands and watched keys stay, as after `AUTH` in Redis.
        if let Some(admitted) = &mut self.identity.admitted
            && admitted.caller.tenant() == caller.tenant()
        {
            admitted.caller = caller;
            self.identity.record.set_user(pass.token_name().unwrap_or("default"));
            self.identity.pass = Some(pass);
            return Ok(());
        }
        let guard = self.node.connect(caller.tenant(), Port::Redis)?;
        let buffers = self.node.account(caller.tenant()).empty();
        let TenantState { clients, slow } = self.tenants.of(caller.tenant(), self.node.key_controls());
        self.identity.record.set_user(pass.token_name().unwrap_or("default"));
        // Published before the change, because the commands counted so far belong to the previous tenant.
        self.settle_now();
        self.orders.has_moved |= self.identity.admitted.is_some();
        self.identity.admitted = None;
        let member = clients.enter(&self.identity.record);
        self.identity.admitted =
            Some(AdmittedClient { caller, keys, slow, buffers, clients, _member: member, _guard: guard });
        self.identity.pass = Some(pass);
        Ok(())
    }

    pub(super) fn auth(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        match args {
            [_, token] => self.log_in(None, token)?,
            [_, user, token] => self.log_in(Some(user), token)?,
            _ => return Err("ERR syntax error".into()),
        }
        replies.ok();
        Ok(())
    }

    /// Authenticates the client with a token in place of its previous one. If that fails, the client keeps its previous
    /// identity.
    fn log_in(&mut self, user: Option<&[u8]>, token: &[u8]) -> Done {
        if self.node.is_open() {
            return match user {
                None => Err(NO_PASSWORD.into()),
                Some(b"default") => Ok(()),
                Some(_) => Err("WRONGPASS invalid username-password pair or user is disabled.".into()),
            };
        }
        let token = std::str::from_utf8(token).map_err(|_| "WRONGPASS a token is text")?;
        self.check_stays(token)?;
        self.admit(Some(token)).map_err(|error| match error.kind {
            ErrorKind::OverLimit => TOO_MANY.into(),
            _ => refused("WRONGPASS", &error),
        })
    }

    /// Fails inside a transaction if `token` is a token of another tenant, because the keys of a transaction belong to
    /// one tenant.
    pub(super) fn check_stays(&self, token: &str) -> Done {
        let Some(admitted) = self.identity.admitted.as_ref().filter(|_| self.transaction.is_queueing) else {
            return Ok(());
        };
        match self.node.admit(Some(token)) {
            Ok((caller, _)) if caller.tenant() != admitted.caller.tenant() => {
                Err("ERR this token is one of another tenant: AUTH with it before MULTI".into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn hello(&mut self, args: &Args<'_>, replies: &mut Replies<'_>) -> Done {
        let protocol = match args.get(1).map(|version| parse_integer(version)) {
            None => self.protocol.version,
            Some(None) => return Err("ERR Protocol version is not an integer or out of range".into()),
            Some(Some(number)) => {
                Protocol::of_number(number).ok_or("NOPROTO unsupported protocol version")?
            }
        };
        let (mut name, mut login) = (None, None);
        let mut options = args.get(2..).unwrap_or_default();
        while let [option, rest @ ..] = options {
            options = match (option.to_ascii_lowercase().as_slice(), rest) {
                (b"auth", [user, given, rest @ ..]) => {
                    login = Some((*user, *given));
                    rest
                }
                (b"setname", [given, rest @ ..]) => {
                    name = Some(self.name_of(given)?);
                    rest
                }
                _ => {
                    return Err(Refusal(Cow::Owned(format!(
                        "ERR Syntax error in HELLO option '{}'",
                        option.escape_ascii()
                    ))));
                }
            };
        }
        if let Some((user, token)) = login {
            self.log_in(Some(user), token)?;
        }
        if self.identity.admitted.is_none() {
            return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                        AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                        version at the same time"
                .into());
        }
        if let Some(name) = name {
            self.set_name(name);
        }
        self.protocol.version = protocol;
        replies.set_protocol(protocol);
        replies.map(7);
        replies.bulk(b"server");
        replies.bulk(b"redis");
        replies.bulk(b"version");
        replies.bulk(REDIS_VERSION.as_bytes());
        replies.bulk(b"proto");
        replies.integer(protocol.number());
        replies.bulk(b"id");
        replies.integer(self.identity.record.number as i64);
        replies.bulk(b"mode");
        replies.bulk(b"standalone");
        replies.bulk(b"role");
        replies.bulk(b"master");
        replies.bulk(b"modules");
        replies.array(0);
        Ok(())
    }

    /// Returns whether `text` is an access token of the node.
    pub(super) fn is_token(&self, text: &[u8]) -> bool {
        std::str::from_utf8(text).is_ok_and(|text| self.node.has_token(text))
    }

    /// Parses the name of a connection. Fails if it contains an access token, because other clients of the tenant can
    /// see names.
    pub(in crate::resp) fn name_of(&self, text: &[u8]) -> std::result::Result<String, Refusal> {
        if self.is_token(text) || matches!(without_tokens(text), Cow::Owned(_)) {
            return Err("ERR this name has a token in it, and others see names: choose another one".into());
        }
        client_name(text)
    }
}

/// Returns the access token among the arguments of `AUTH` or `HELLO`; `None` if there is none.
pub(super) fn token_of<'a>(command: HostCommand, args: &Args<'a>) -> Option<&'a [u8]> {
    match command {
        HostCommand::Auth => args.last().copied(),
        HostCommand::Hello => {
            let at = args.iter().skip(2).position(|option| option.eq_ignore_ascii_case(b"auth"))?;
            args.get(at + 4).copied()
        }
        _ => None,
    }
}

fn client_name(name: &[u8]) -> std::result::Result<String, Refusal> {
    let (bytes, most) = (name.len(), limits::RESP_CLIENT_NAME_BYTES_MAX);
    if bytes > most {
        let text = format!("ERR a client name of {bytes} bytes: names have at most {most}");
        return Err(Refusal(Cow::Owned(text)));
    }
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Converts an error of the node to a Redis error with the given code.
fn refused(code: &str, error: &Error) -> Refusal {
    Refusal(Cow::Owned(format!("{code} {}", error.message)))
}
