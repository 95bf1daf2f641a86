//! Tests of TLS (`farpools://`) from the command line: certificates in files, and the error messages for invalid ones.

use crate::cli_support::{Done, Server, Tokens, farpool, signal, text, trips_parquet, until};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A certificate authority in a folder, as `ca.pem`, and the certificates that it signs.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the files `name.pem` and `name.key` of a node at `host`, whose certificate expires at the end
    /// of `year`.
    fn sign(&self, name: &str, host: &str, year: i32) {
        let mut params = CertificateParams::new([host.to_string()]).unwrap();
        params.not_after = date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        std::fs::write(self.file(&format!("{name}.pem")), certificate).unwrap();
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn serve(&self, name: &str, more: &[&str]) -> Server {
        let (certificate, key) = (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")));
        Server::start(&[&["--tls-cert", text(&certificate), "--tls-key", text(&key)], more].concat())
    }
}

/// Runs `farpool tables` for a node whose certificate is to be verified with `ca`.
fn tables(url: &str, ca: &Path) -> Done {
    farpool(&["tables", "--pool", url, "--tls-ca", text(ca)])
}

#[test]
fn commands_reach_a_node_with_a_certificate_and_a_token() {
    let authority = Authority::new("ours");
    authority.sign("node", "127.0.0.1", 3000);
    let access = Tokens::new(authority.folder.path());
    let token = access.add("ann", "write");
    let file = trips_parquet(authority.folder.path(), "t.parquet", 5000);
    std::fs::write(authority.file("token"), format!("{token}\n")).unwrap();
    let server = authority.serve("node", &["--access", text(&access.path)]);
    assert!(server.url.starts_with("farpools://127.0.0.1:"), "{}", server.url);
    let (ca, token_file) = (authority.file("ca.pem"), authority.file("token"));
    let credentials = ["--tls-ca", text(&ca), "--token-file", text(&token_file)];
    let run = |args: &[&str]| server.run(&[args, &credentials].concat()).ok();
    run(&["load", "t", text(&file)]);
    assert_eq!(run(&["sql", "--format", "csv", "-c", "select count(*) as n from t"]), "n\n5000\n");
    assert!(run(&["status"]).contains(&server.url));
    assert!(run(&["profile", "t"]).contains("5,000 rows"));
}

#[test]
fn each_mistake_of_a_client_has_its_words() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    ours.sign("node", "127.0.0.1", 3000);
    ours.sign("late", "127.0.0.1", 2020);
    let server = ours.serve("node", &[]);
    let late = ours.serve("late", &[]);
    let plain = Server::start(&[]);
    let (ca, other_ca) = (ours.file("ca.pem"), others.file("ca.pem"));
    let at = |host: &str| format!("farpools://{host}:{}", server.url.rsplit(':').next().unwrap());
    assert_eq!(tables(&server.url, &ca).ok(), "");
    tables(&at("localhost"), &ca).fails(3, &["localhost", "not for", "127.0.0.1"]);
    tables(&server.url, &other_ca).fails(3, &[&server.url, "nobody whom this program trusts", "--tls-ca"]);
    tables(&late.url, &ca).fails(3, &[&late.url, "has expired", "new certificate"]);
    tables(&plain.url.replace("farpool:", "farpools:"), &ca).fails(3, &["speaks no TLS", "farpool://"]);
    farpool(&["tables", "--pool", &server.url.replace("farpools:", "farpool:")])
        .fails(3, &["in the clear", "farpools://"]);
    tables(&plain.url, &ca).fails(2, &["--tls-ca", "farpools://"]);
    tables(&server.url, Path::new("/nonexistent/ca.pem")).fails(1, &["/nonexistent/ca.pem"]);
    tables(&server.url, &ours.file("node.key")).fails(1, &["node.key", "no certificate", "private key"]);
    // The node's log shows why the handshakes failed from the node's side.
    for (server, said) in [(&server, "does not trust"), (&server, "another name"), (&late, "has expired")] {
        until(said, || server.said().contains(said));
    }
    until("the plain one's", || plain.said().contains("the peer speaks TLS"));
}

#[test]
fn each_mistake_of_a_node_has_its_words() {
    let authority = Authority::new("ours");
    authority.sign("node", "127.0.0.1", 3000);
    authority.sign("other", "127.0.0.1", 3000);
    std::fs::write(authority.file("garbled.pem"), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
    let serve = |certificate: &str, key: &str| {
        let (certificate, key) = (authority.file(certificate), authority.file(key));
        farpool(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            text(&certificate),
            "--tls-key",
            text(&key),
        ])
    };
    serve("node.pem", "other.key").fails(1, &["node.pem", "other.key", "does not belong"]);
    serve("missing.pem", "node.key").fails(1, &["missing.pem", "cannot read"]);
    serve("garbled.pem", "node.key").fails(1, &["garbled.pem", "PEM"]);
    serve("node.key", "node.pem").fails(1, &["node.key", "--tls-cert", "--tls-key"]);
    farpool(&["serve", "--tls-cert", text(&authority.file("node.pem"))]).fails(2, &["--tls-key"]);
}

#[test]
fn a_certificate_is_replaced_while_the_node_runs() {
    let authority = Authority::new("ours");
    authority.sign("node", "127.0.0.1", 3000);
    let server = authority.serve("node", &[]);
    let ca = authority.file("ca.pem");
    let good = std::fs::read(authority.file("node.pem")).unwrap();
    std::fs::write(authority.file("node.pem"), &good[..good.len() / 2]).unwrap();
    signal(&server.child, "HUP");
    until("the half of a file is named", || server.said().contains("the certificate stays as it was"));
    assert!(server.said().contains("node.pem"), "{}", server.said());
    assert_eq!(tables(&server.url, &ca).ok(), "");
    // The node notices the new certificate files without a signal.
    authority.sign("node", "localhost", 3000);
    let localhost = server.url.replace("127.0.0.1", "localhost");
    until("the new one", || tables(&localhost, &ca).status == Some(0));
    let (status, stderr) = server.stop("TERM");
    assert_eq!(status, Some(0), "{stderr}");
}
