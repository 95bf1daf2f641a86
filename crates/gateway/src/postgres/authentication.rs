//! The beginning of a session: encryption, the client's settings, and who the client is.
//!
//! The password is the client's token for the pool. It is asked for only if the pool asks for one. Within a node, a client
//! proves that it has the token where the access file has the means to check that; otherwise it sends the token, in the
//! clear only from this machine.

use super::cancels::{Cancels, Entry};
use super::link::{Gone, Link};
use super::settings::Settings;
use crate::Gateway;
use crate::engines::Engine;
use bytes::Bytes;
use farpool_model::{Error, ErrorKind, limits};
use farpool_node::access::Proof;
use farpool_node::access::scram::{Exchange, MECHANISM};
use farpool_postgres::failure::{Failure, code};
use farpool_postgres::messages::{Message, Opening};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Minor versions of the protocol that are spoken: of 3.0, and of 3.2, which only has longer secrets.
const MINOR_MAX: u16 = 0;

/// The application protocol of a TLS connection (ALPN, RFC 7301), which clients name that begin with TLS at once.
const PROTOCOL: &[u8] = b"postgresql";

/// The result of the beginning of a connection.
pub(super) enum Greeting {
    /// A session begins, with this engine and these settings.
    Welcome(Box<(Arc<Engine>, Settings, Entry)>),
    /// The connection was there to cancel a statement.
    Cancel,
}

/// Performs the beginning of a connection.
pub(super) async fn greet(
    gateway: &Gateway,
    link: &mut Link,
    cancels: &Arc<Cancels>,
) -> Result<Greeting, Gone> {
    let tls = gateway.tls().map(|tls| tls.of_protocol(PROTOCOL));
    let mut requests = 0;
    let (version, parameters) = loop {
        match link.opening(tls.as_ref()).await? {
            Opening::Tls | Opening::Gss if requests == limits::POSTGRES_REQUESTS_MAX => {
                return Err(refused(code::PROTOCOL_VIOLATION, "encryption is asked for again and again"));
            }
            wanted @ (Opening::Tls | Opening::Gss) => {
                requests += 1;
                let tls = tls.as_ref().filter(|_| wanted == Opening::Tls && !link.is_encrypted());
                // Bytes behind the request came in the clear, from whoever is between.
                if tls.is_some() && link.has_input() {
                    return Err(refused(
                        code::PROTOCOL_VIOLATION,
                        "received unencrypted data after SSL request",
                    ));
                }
                link.output.encryption(tls.is_some());
                link.flush().await?;
                if let Some(tls) = tls {
                    link.encrypt(tls).await?;
                }
            }
            Opening::Cancel { session, secret } => {
                cancels.cancel(session, &secret);
                return Ok(Greeting::Cancel);
            }
            Opening::Startup { version, parameters } => break (version, parameters),
        }
    };
    if tls.is_some() && !link.is_encrypted() {
        let failure = Failure::new(code::INVALID_AUTHORIZATION, "this server speaks to nobody in the clear");
        return Err(Gone::Refused(failure.hint("connect with sslmode=require").fatal()));
    }
    if version.0 != 3 {
        let message =
            format!("unsupported frontend protocol {}.{}: server supports 3.0", version.0, version.1);
        return Err(refused(code::FEATURE_NOT_SUPPORTED, &message));
    }
    let options: Vec<&str> =
        parameters.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("_pq_.")).collect();
    if version.1 > MINOR_MAX || !options.is_empty() {
        link.output.negotiate_version((3, MINOR_MAX), &options);
    }
    let value =
        |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let user = value("user").filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| refused(code::INVALID_AUTHORIZATION, "no user name is given"))?;
    let mut settings = Settings::of(user);
    let failed = |failure: Failure| Gone::Refused(failure.fatal());
    for (name, value) in &parameters {
        match name.as_str() {
            "user" | "database" => {}
            "replication" if ["false", "off", "no", "0"].contains(&value.as_str()) => {}
            "replication" => return Err(refused(code::FEATURE_NOT_SUPPORTED, "replication is not done")),
            "options" => {
                for (name, value) in options_of(value).map_err(failed)? {
                    settings.set(&name, Some(&value)).map_err(failed)?;
                }
            }
            name if name.starts_with("_pq_.") => {}
            name => settings.set(name, Some(value)).map_err(failed)?,
        }
    }
    if settings.bytes() > limits::POSTGRES_SETTINGS_BYTES_MAX {
        return Err(refused(code::PROGRAM_LIMIT_EXCEEDED, "the settings are too long"));
    }
    settings.begin();
    let engine = authenticate(gateway, link, user, value("database")).await?;
    let entry = cancels.enter()?;
    Ok(Greeting::Welcome(Box::new((engine, settings, entry))))
}

fn refused(code: &'static str, message: &str) -> Gone {
    Gone::Refused(Failure::new(code, message).fatal())
}

/// Finds out who the client is; returns the client's engine.
async fn authenticate(
    gateway: &Gateway,
    link: &mut Link,
    user: &str,
    database: Option<&str>,
) -> Result<Arc<Engine>, Gone> {
    // As in PostgreSQL, the database has the name of the user if none is given. Which there are is told to everybody.
    let database = gateway.database(Some(database.unwrap_or(user))).map_err(|error| {
        let failure = Failure::new(code::INVALID_CATALOG_NAME, error.message);
        Gone::Refused(failure.hint(error.advice.unwrap_or_default()).fatal())
    })?;
    if let Some(engine) = gateway.open_engine(database).await? {
        return Ok(engine);
    }
    let token = match gateway.proof(user, database)? {
        Some(proof) => proven(link, proof).await?,
        None => Some(sent(link).await?),
    };
    let engine = match &token {
        Some(token) => gateway.engine(Some(token), database).await.map(Some),
        None => Ok(None),
    };
    match engine {
        Ok(Some(engine)) => Ok(engine),
        Err(error) if error.kind != ErrorKind::Denied => Err(error.into()),
        Ok(None) | Err(_) => {
            // Whoever guesses gets few tries: there are few places for clients that are not known yet.
            sleep(Duration::from_millis(limits::POSTGRES_REFUSAL_MS)).await;
            let message = format!("password authentication failed for user \"{user}\"");
            let failure = Failure::new(code::INVALID_PASSWORD, message);
            Err(Gone::Refused(
                failure.hint("the password is the token that whoever runs the pool gave you").fatal(),
            ))
        }
    }
}

/// Asks for the token itself.
async fn sent(link: &mut Link) -> Result<String, Gone> {
    if link.is_open_to_others() {
        let failure = Failure::new(code::INVALID_AUTHORIZATION, "the token would be sent in the clear");
        return Err(Gone::Refused(
            failure.hint("give the gateway a certificate, and connect with TLS").fatal(),
        ));
    }
    link.output.ask_password();
    let password = answer(link).await?;
    let password = password.strip_suffix(b"\0").and_then(|password| std::str::from_utf8(password).ok());
    password.map(str::to_string).ok_or_else(|| refused(code::PROTOCOL_VIOLATION, "the password is not UTF-8"))
}

/// Asks for a proof that the client has its token (SCRAM-SHA-256); returns the ticket in place of it. `None` if the proof
/// is wrong.
async fn proven(link: &mut Link, proof: Proof) -> Result<Option<String>, Gone> {
    link.output.ask_sasl(&[MECHANISM]);
    let first = answer(link).await?;
    // The name of the mechanism, and the client's first message behind its length.
    let parts = first.iter().position(|byte| *byte == 0).map(|end| (&first[..end], &first[end + 1..]));
    let first = match parts {
        Some((mechanism, rest)) if mechanism == MECHANISM.as_bytes() => match rest.split_first_chunk() {
            Some((length, message)) if u32::from_be_bytes(*length).try_into() == Ok(message.len()) => message,
            _ => return Err(malformed()),
        },
        _ => {
            return Err(refused(
                code::PROTOCOL_VIOLATION,
                "client selected an invalid SASL authentication mechanism",
            ));
        }
    };
    let told =
        |error: Error| Gone::Refused(Failure { code: code::PROTOCOL_VIOLATION, ..error.into() }.fatal());
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| malformed());
    let (exchange, challenge) =
        Exchange::begin(proof.verifier, text(first)?, rand::random()).map_err(told)?;
    link.output.sasl(&challenge, false);
    let last = answer(link).await?;
    match exchange.finish(text(&last)?).map_err(told)? {
        // Without a ticket, nobody has this name.
        Some(signature) if proof.ticket.is_some() => {
            link.output.sasl(&signature, true);
            Ok(proof.ticket)
        }
        Some(_) | None => Ok(None),
    }
}

fn malformed() -> Gone {
    refused(code::PROTOCOL_VIOLATION, "malformed SCRAM message")
}

/// Sends what waits, and waits for the answer to a request for authentication.
async fn answer(link: &mut Link) -> Result<Bytes, Gone> {
    match link.next_within(limits::POSTGRES_STARTUP_BYTES_MAX).await? {
        Message::Authentication(answer) => Ok(answer),
        _ => Err(refused(code::PROTOCOL_VIOLATION, "expected a password")),
    }
}

/// Returns the settings in the `options` of a startup message: `-c name=value` and `--name=value`, of which `\` escapes
/// a character.
fn options_of(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => words.last_mut().into_iter().for_each(|word| word.extend(chars.next())),
            c if c.is_whitespace() => words.push(String::new()),
            c => words.last_mut().into_iter().for_each(|word| word.push(c)),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting.to_string()),
            None => word.strip_prefix("--").map(|setting| setting.replace('-', "_")),
        };
        let parts = setting.as_deref().and_then(|setting| setting.split_once('='));
        let (name, value) = parts.ok_or_else(|| {
            Failure::new(
                code::INVALID_PARAMETER_VALUE,
                format!("invalid command-line argument for server process: {word}"),
            )
        })?;
        options.push((name.to_string(), value.to_string()));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let options = options_of(r"-c geqo=off -csearch_path=a\ b --statement-timeout=5s").unwrap();
        let options: Vec<_> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(options, [("geqo", "off"), ("search_path", "a b"), ("statement_timeout", "5s")]);
        assert!(options_of("").unwrap().is_empty());
        for wrong in ["-c", "-c x", "x=1", "--x"] {
            assert!(options_of(wrong).is_err(), "{wrong}");
        }
    }
}
