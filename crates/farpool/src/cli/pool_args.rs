//! The arguments that tell a command which pool to connect to.

use super::stop::{Outcome, Stop, file_error};
use clap::Args;
use farpool::model::limits;
use farpool::{
    ClientOptions, ClientTls, Error, Pool, PoolUrl, Proof, PublicKey, RemotePool, ResultForm, TokenKey,
};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The environment variable that holds the token, so that it need not be on a command line.
const TOKEN_VARIABLE: &str = "FARPOOL_TOKEN";

/// The pool that a command connects to.
#[derive(Args, Clone, Debug)]
pub struct PoolArgs {
    /// The memory node [default: farpool://127.0.0.1:9797]
    #[arg(long, value_name = "URL")]
    pub pool: Option<PoolUrl>,

    #[command(flatten)]
    client: ClientArgs,
}

/// How the client and the pool authenticate each other.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Read the token that the node asks for from this file [default: the environment variable FARPOOL_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The token itself; others on this machine can see it in the list of processes
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,

    /// Believe a node at farpools:// whose certificate was signed by the authority in this PEM file, and no other
    /// [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

/// Whether results come encrypted, and how the client knows whom they are from.
#[derive(Args, Clone, Debug)]
pub struct SealArgs {
    /// Have the node encrypt its answers for this command alone, so that nobody between can read or change them, not
    /// even where TLS ends. Needs --node-key, or a token of 'farpool token new' over farpools://
    #[arg(long)]
    encrypt_results: bool,

    /// With --encrypt-results: the public key of the node, as it says when it starts: 64 hexadecimal digits, or a file
    /// with them
    #[arg(long, value_name = "FILE|HEX", requires = "encrypt_results")]
    node_key: Option<String>,
}

impl SealArgs {
    /// Returns how the node at `url` has to prove who it is, if its answers are to be encrypted.
    pub fn proof(&self, url: &PoolUrl, token: Option<&str>) -> Outcome<Option<Proof>> {
        if !self.encrypt_results {
            return Ok(None);
        }
        match (&self.node_key, token) {
            (Some(key), _) => Ok(Some(Proof::NodeKey(public_key(key)?))),
            (None, Some(token)) if url.is_encrypted() => {
                Ok(Some(Proof::Token(Arc::new(TokenKey::of(token)?))))
            }
            (None, Some(_)) => Err(Stop::usage(
                format!("--encrypt-results by the token alone: over {url} the token is sent in the clear"),
                "name the node's key with --node-key, which 'farpool serve' prints when it starts\n\
                 or connect to farpools://",
            )),
            (None, None) => Err(Stop::usage(
                "--encrypt-results needs to know who the node is: anybody between could answer in its place",
                "name the node's key with --node-key, which 'farpool serve' prints when it starts",
            )),
        }
    }

    /// Refuses options that mean nothing where no node is asked.
    pub fn refuse_without_pool(&self) -> Outcome {
        match self.encrypt_results {
            false => Ok(()),
            true => Err(Stop::usage(
                "--encrypt-results is for results of a node, and without --pool none leaves this process",
                "name the node with --pool, or leave --encrypt-results away",
            )),
        }
    }
}

/// Reads a public key, given as it is or as a file that has it.
fn public_key(given: &str) -> Outcome<PublicKey> {
    if let Some(key) = PublicKey::from_hex(given) {
        return Ok(key);
    }
    let path = Path::new(given);
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(limits::TOKEN_FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| file_error("read the node's public key in", path, &error))?;
    PublicKey::from_hex(text.trim()).ok_or_else(|| {
        Error::invalid(format!("{} has no public key in it", path.display()))
            .advise("a public key has 64 hexadecimal digits: 'farpool node-key FILE' prints that of a private one")
            .into()
    })
}

impl ClientArgs {
    /// Returns the options for a client of the node at `url`: its token and the authorities that it trusts.
    pub fn options(&self, url: &PoolUrl) -> Outcome<ClientOptions> {
        let token = self.token()?;
        let tls = self.tls_ca.as_deref().map(read_authorities).transpose()?;
        if tls.is_some() && !url.is_encrypted() {
            return Err(Stop::usage(
                format!("--tls-ca says whose certificates count, and {url} has none"),
                "write farpools:// for a node that has a certificate, or leave --tls-ca away",
            ));
        }
        Ok(ClientOptions { token, tls, ..ClientOptions::default() })
    }

    /// Returns the token from the file, the command line or the environment.
    fn token(&self) -> Outcome<Option<String>> {
        if let Some(path) = &self.token_file {
            return read_token(path).map(Some);
        }
        let given = self.token.clone().or_else(|| std::env::var(TOKEN_VARIABLE).ok());
        Ok(given.filter(|token| !token.is_empty()))
    }
}

/// Reads a file of one line. Errors do not repeat its contents.
fn read_token(path: &Path) -> Outcome<String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(limits::TOKEN_FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| file_error("read the token in", path, &error))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        let what = format!("{} is not a file with a token in it and nothing else", path.display());
        return Err(Error::invalid(what)
            .advise("`farpool token new` prints the token on a line of its own")
            .into());
    }
    Ok(token.to_string())
}

fn read_authorities(path: &Path) -> Outcome<ClientTls> {
    let mut pem = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limits::PEM_BYTES_MAX).read_to_end(&mut pem))
        .map_err(|error| file_error("read the authorities in", path, &error))?;
    Ok(ClientTls::trusting(&pem).map_err(|error| error.at(path.display()))?)
}

impl PoolArgs {
    /// Returns the URL of the pool.
    pub fn url(&self) -> String {
        self.pool.as_ref().map_or_else(|| "farpool://127.0.0.1:9797".to_string(), ToString::to_string)
    }

    /// Connects to the node.
    pub async fn connect_remote(&self) -> Outcome<RemotePool> {
        let url: PoolUrl = self.url().parse()?;
        Ok(RemotePool::connect(&url, self.client.options(&url)?).await?)
    }

    /// Connects to the pool.
    pub async fn connect(&self) -> Outcome<Arc<dyn Pool>> {
        let url = self.url();
        let options = self.client.options(&url.parse()?)?;
        Ok(farpool::connect_for(&url, options, ResultForm::default()).await?)
    }
}
