//! The configuration of each end of a TLS connection, read from PEM files (RFC 7468).
//!
//! Ciphers are those of aws-lc-rs, AES-128-GCM first: it takes two thirds of the time of AES-256 and is not known to be
//! broken. Sessions are not resumed, because connections live long, and a node should keep nothing for clients that
//! have left. Clients are identified by their tokens, not by certificates.

use farpool_model::{Error, Result};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::sync::Arc;

/// The application protocol to negotiate (ALPN, RFC 7301). It protects from confusion: a server of another protocol
/// with the same certificate is not taken for a node, nor a node for it.
const PROTOCOL: &[u8] = b"farpool/1";

const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// A node's certificate chain and private key.
#[derive(Clone, Debug)]
pub struct ServerTls(pub(super) Arc<ServerConfig>);

impl ServerTls {
    /// Creates the configuration from the certificates of [`ServerTls::chain`] (the node's own first) and the private
    /// key of [`ServerTls::key`].
    ///
    /// # Errors
    /// `Invalid` if the key does not belong to the first certificate, or one of them cannot be used.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| Error::internal(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(ServerTls(Arc::new(config)))
    }

    /// Returns the configuration for a server of another protocol, with its name for ALPN.
    #[must_use]
    pub fn of_protocol(&self, protocol: &[u8]) -> Self {
        let mut config = ServerConfig::clone(&self.0);
        config.alpn_protocols = vec![protocol.to_vec()];
        ServerTls(Arc::new(config))
    }

    /// Parses the certificates in the bytes of a PEM file.
    ///
    /// # Errors
    /// `Invalid` if there is none, or the bytes are not PEM.
    pub fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
        certificates(pem)
    }

    /// Parses the private key in the bytes of a PEM file. Errors contain no part of the key.
    ///
    /// # Errors
    /// `Invalid` if there is no key that can be read.
    pub fn key(pem: &[u8]) -> Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
            pem::Error::NoItemsFound if has(pem, "ENCRYPTED PRIVATE KEY") => {
                Error::invalid("the private key is encrypted, and nobody is there to give its password")
                    .advise(
                        "write it without: openssl pkey -in FILE -out PLAIN-FILE, readable by the node only",
                    )
            }
            pem::Error::NoItemsFound if has(pem, "CERTIFICATE") => {
                Error::invalid("there is no private key in this file but a certificate")
                    .advise("give the certificate with --tls-cert and its private key with --tls-key")
            }
            pem::Error::NoItemsFound => Error::invalid("there is no private key in this file")
                .advise("give a file in PEM form: -----BEGIN PRIVATE KEY-----"),
            _ => unreadable(),
        })
    }
}

/// The certificate authorities that a client trusts.
#[derive(Clone, Debug)]
pub struct ClientTls(pub(super) Arc<ClientConfig>);

impl ClientTls {
    /// Returns a configuration that trusts the certificate authorities in the bytes of a PEM file, and no others.
    ///
    /// # Errors
    /// `Invalid` if there is none, or the bytes are not PEM.
    pub fn trusting(pem: &[u8]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
        Self::of(roots)
    }

    /// Returns a configuration that trusts these certificate authorities. Skips those that cannot be parsed, because
    /// one such may be among the hundred that a system trusts.
    ///
    /// # Errors
    /// `Invalid` if none is left.
    pub fn trusting_those_of(system: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(system);
        if roots.is_empty() {
            return Err(Error::invalid("this system trusts no authority for certificates").advise(
                "install the package ca-certificates, or give the node's authority with --tls-ca FILE",
            ));
        }
        Self::of(roots)
    }

    /// Returns the configuration for clients of another protocol, with its name for ALPN.
    #[must_use]
    pub fn of_protocol(&self, protocol: &[u8]) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![protocol.to_vec()];
        ClientTls(Arc::new(config))
    }

    fn of(roots: RootCertStore) -> Result<Self> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| Error::internal(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(ClientTls(Arc::new(config)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        !matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    });
    Arc::new(provider)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|_| unreadable())?;
    if !found.is_empty() {
        return Ok(found);
    }
    Err(match has(pem, "PRIVATE KEY") {
        true => Error::invalid("there is no certificate in this file but a private key")
            .advise("give the certificate with --tls-cert and its private key with --tls-key"),
        false => Error::invalid("there is no certificate in this file")
            .advise("give a file in PEM form: -----BEGIN CERTIFICATE-----"),
    })
}

fn has(pem: &[u8], label: &str) -> bool {
    String::from_utf8_lossy(pem).contains(&format!("-----BEGIN {label}"))
        || String::from_utf8_lossy(pem).contains(&format!("{label}-----"))
}

fn unreadable() -> Error {
    Error::invalid("this cannot be read as PEM: a part of the file is cut off or garbled")
        .advise("copy the file anew, in PEM form: lines of base64 between -----BEGIN … and -----END …")
}

fn unusable(error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InconsistentKeys(_) => Error::invalid("the private key does not belong to the certificate")
            .advise("give the key that the certificate was made for; the node's own certificate comes first in its file"),
        rustls::Error::InvalidCertificate(why) => Error::invalid(format!("a certificate cannot be used: {why}"))
            .advise("make it anew: a node needs an X.509 certificate of version 3"),
        other => Error::invalid(format!("the private key cannot be used: {other}"))
            .advise("use a key for ECDSA (P-256, P-384, P-521), Ed25519 or RSA (2048 bits or more)"),
    }
}
