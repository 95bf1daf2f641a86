//! Certificates for tests of TLS: a certificate authority that is created for the test run, and certificates that it
//! signs.

use farpool_transfer::ClientTls;
use farpool_wire::ServerTls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::LazyLock;

/// A certificate authority that is created for one test run.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The certificate authority that clients of these tests trust.
pub static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { pem, issuer: Issuer::new(params, key) }
});

impl Authority {
    /// Returns a new certificate for `name` and its private key, both as PEM text.
    pub fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_string()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Returns the TLS configuration of a node with a certificate for `name`.
    pub fn node(&self, name: &str) -> ServerTls {
        let (certificate, key) = self.sign(name);
        let chain = ServerTls::chain(certificate.as_bytes()).unwrap();
        ServerTls::new(chain, ServerTls::key(key.as_bytes()).unwrap()).unwrap()
    }

    /// Returns the TLS configuration of clients that trust this authority.
    pub fn clients(&self) -> ClientTls {
        ClientTls::trusting(self.pem.as_bytes()).unwrap()
    }
}
