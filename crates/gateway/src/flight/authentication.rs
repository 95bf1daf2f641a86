//! Authentication: the client's token for the pool, which comes with every request (`authorization: Bearer`), or
//! as the password of a name (`Basic`), which is only shown.
//!
//! A token is asked for only if the pool asks for one, and accepted in the clear only from this machine. The answer to a
//! password is the token again as the bearer's, so that the server keeps nothing for it.

use super::connection::Connection;
use super::service::Service;
use super::status;
use super::users::User;
use arrow_flight::{BasicAuth, HandshakeRequest, HandshakeResponse};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use farpool_model::{Error, ErrorKind, limits};
use prost::Message;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Extensions, Response, Status};

/// The header in which clients of the first kind of handshake send what it has returned.
const HANDSHAKE_TOKEN: &str = "auth-token-bin";

/// Returns the token in the headers of a request; `None` if there is none.
fn token(headers: &MetadataMap) -> Result<Option<String>, Status> {
    if let Some(token) = headers.get_bin(HANDSHAKE_TOKEN) {
        let token = token.to_bytes().map_err(|_| refused("the token cannot be read"))?;
        return text(&token).map(Some);
    }
    let Some(value) = headers.get("authorization") else { return Ok(None) };
    let value = value.to_str().map_err(|_| refused("the header authorization is no text"))?;
    let (scheme, credentials) = value.split_once(' ').unwrap_or((value, ""));
    let credentials = credentials.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(credentials.to_string()).filter(|token| !token.is_empty()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(refused("the header authorization is neither Bearer nor Basic"));
    }
    // Some clients leave the padding out.
    let decoded = BASE64_STANDARD_NO_PAD
        .decode(credentials.trim_end_matches('='))
        .map_err(|_| refused("name and password are not base64"))?;
    let decoded = text(&decoded)?;
    let (_, password) = decoded.split_once(':').ok_or_else(|| refused("there is no password"))?;
    Ok(Some(password.to_string()).filter(|token| !token.is_empty()))
}

fn text(bytes: &[u8]) -> Result<String, Status> {
    std::str::from_utf8(bytes).map(str::to_string).map_err(|_| refused("the token is no text"))
}

/// Returns the status of a client that is refused.
fn refused(message: &str) -> Status {
    let error = Error::new(ErrorKind::Denied, message)
        .advise("send 'authorization: Bearer TOKEN', or the token as the password; it is the token that whoever runs the pool gave you");
    status::of_code(Code::Unauthenticated, &error)
}

impl Service {
    /// Returns the user who sends a request.
    pub(super) async fn user(
        &self,
        headers: &MetadataMap,
        extensions: &Extensions,
    ) -> Result<Arc<User>, Status> {
        let token = token(headers)?;
        self.user_with(token.as_deref(), extensions).await
    }

    async fn user_with(&self, token: Option<&str>, extensions: &Extensions) -> Result<Arc<User>, Status> {
        let connection = extensions.get::<Arc<Connection>>();
        let connection = connection.ok_or_else(|| status::defect("a request without a connection"))?;
        // No token has no digest, rather than that of an empty text.
        let digest: [u8; 32] = token.map_or([0; 32], |token| Sha256::digest(token.as_bytes()).into());
        if let Some(user) = connection.user(&digest) {
            return Ok(user);
        }
        let outcome = self.checked(token, connection).await;
        if let Err(status) = &outcome {
            tracing::info!(peer = connection.peer(), error = status.message(), "a client is refused");
        }
        let user = outcome?;
        match connection.admit(digest, &user, || self.gateway().connect()) {
            true => Ok(user),
            false => Err(status::status(
                &Error::over_limit("too many clients are connected").advise("try again later"),
            )),
        }
    }

    async fn checked(&self, token: Option<&str>, connection: &Connection) -> Result<Arc<User>, Status> {
        let failed = |error: Error| status::status(&error);
        if let Some(engine) = self.gateway().open_engine(0).await.map_err(failed)? {
            return Ok(self.users().of(engine));
        }
        let token = token.ok_or_else(|| refused("the pool asks for a token"))?;
        if connection.is_open_to_others {
            let error = Error::new(ErrorKind::Denied, "the token was sent in the clear")
                .advise("give the gateway a certificate, and connect with TLS (grpc+tls://)");
            return Err(status::of_code(Code::Unauthenticated, &error));
        }
        match self.gateway().engine(Some(token), 0).await {
            Ok(engine) => Ok(self.users().of(engine)),
            Err(error) if error.kind == ErrorKind::Denied => {
                // Whoever guesses gets few tries: there are few places for clients that are not known yet.
                sleep(Duration::from_millis(limits::POSTGRES_REFUSAL_MS)).await;
                Err(refused("the token is wrong"))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Answers a handshake: returns the token with which later requests come.
    pub(super) async fn handshake_answer(
        &self,
        headers: &MetadataMap,
        extensions: &Extensions,
        first: Option<HandshakeRequest>,
    ) -> Result<Response<HandshakeResponse>, Status> {
        let given = token(headers)?.or_else(|| first.and_then(|first| password(&first)));
        self.user_with(given.as_deref(), extensions).await?;
        let token = given.unwrap_or_default();
        let payload = token.clone().into_bytes().into();
        let mut response = Response::new(HandshakeResponse { protocol_version: 0, payload });
        let bearer = AsciiMetadataValue::try_from(format!("Bearer {token}"));
        if let Ok(bearer) = bearer {
            response.metadata_mut().insert("authorization", bearer);
        }
        Ok(response)
    }
}

/// Returns the password in the message of a handshake; `None` if there is none.
fn password(request: &HandshakeRequest) -> Option<String> {
    let auth = BasicAuth::decode(request.payload.clone()).ok()?;
    Some(auth.password).filter(|password| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &'static str) -> Result<Option<String>, Status> {
        let mut headers = MetadataMap::new();
        headers.insert("authorization", AsciiMetadataValue::from_static(value));
        token(&headers)
    }

    #[test]
    fn tokens_come_as_a_bearer_s_or_as_a_password() {
        assert_eq!(of("Bearer abc").unwrap().as_deref(), Some("abc"));
        assert_eq!(of("bearer  abc ").unwrap().as_deref(), Some("abc"));
        // ann:a:b
        assert_eq!(of("Basic YW5uOmE6Yg==").unwrap().as_deref(), Some("a:b"));
        assert_eq!(of("Basic YW5uOmE6Yg").unwrap().as_deref(), Some("a:b"), "as Go's clients send it");
        assert_eq!(of("Basic YW5uOg==").unwrap(), None, "an empty password is none");
        for wrong in ["Basic YW5u", "Basic !", "Digest x", ""] {
            assert_eq!(of(wrong).unwrap_err().code(), Code::Unauthenticated, "{wrong}");
        }
        assert_eq!(token(&MetadataMap::new()).unwrap(), None);
    }
}
