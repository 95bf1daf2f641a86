//! The arguments that select the pool that a command connects to.

use super::config::Config;
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

/// The environment variable that names the pool.
const POOL_VARIABLE: &str = "FARPOOL_POOL";

/// The default pool.
pub const POOL_DEFAULT: &str = "farpool://127.0.0.1:9797";

/// A pool, and where it was named.
#[derive(Clone, Debug)]
pub struct NamedPool {
    pub url: PoolUrl,
    /// Setting that the user must correct if there is no such pool; `None` if it was named on the command line, or is
    /// the default.
    place: Option<String>,
}

impl NamedPool {
    /// Returns the pool named on the command line (`option`), in the environment or in the configuration file, in this
    /// order of precedence; `None` if there is none.
    pub fn find(option: Option<&PoolUrl>, config: &Config) -> Outcome<Option<Self>> {
        if let Some(url) = option {
            return Ok(Some(NamedPool { url: url.clone(), place: None }));
        }
        if let Some(text) = std::env::var_os(POOL_VARIABLE).filter(|text| !text.is_empty()) {
            let place = format!("the variable {POOL_VARIABLE}");
            let url: Result<PoolUrl, Error> = text.to_string_lossy().parse();
            let url = url.map_err(|error| Stop::Usage(error.at(&place)))?;
            return Ok(Some(NamedPool { url, place: Some(place) }));
        }
        let place = Some(config.path.display().to_string());
        Ok(config.pool.clone().map(|url| NamedPool { url, place }))
    }

    /// Connects to the pool.
    pub async fn connect(&self, options: ClientOptions) -> Outcome<RemotePool> {
        let connected = RemotePool::connect(&self.url, options).await;
        Ok(connected.map_err(|error| match &self.place {
            Some(place) => {
                let advice = error.advice.clone().map_or_else(String::new, |advice| format!("{advice}\n"));
                error.advise(format!("{advice}{place} names this node"))
            }
            None => error,
        })?)
    }
}

/// The pool that a command connects to.
#[derive(Args, Clone, Debug)]
pub struct PoolArgs {
    /// URL of the memory node [default: the variable FARPOOL_POOL, then the configuration file, then
    /// farpool://127.0.0.1:9797]
    #[arg(long, value_name = "URL")]
    pub pool: Option<PoolUrl>,

    #[command(flatten)]
    client: ClientArgs,
}

/// The authentication of the client and the pool.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// File with the token for the node [default: the variable FARPOOL_TOKEN, then the configuration file]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The token itself; other users of this machine can see it in the process list
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,

    /// PEM file with the only certificate authority that is trusted for farpools:// [default: the system's authorities]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

/// The encryption of results, and the client's proof of their origin.
#[derive(Args, Clone, Debug)]
pub struct SealArgs {
    /// Encrypt the node's answers end to end for this command, so that nobody in between can read or change them, not
    /// even a proxy that ends TLS. Requires --node-key, or a token of 'farpool token new' over farpools://
    #[arg(long)]
    encrypt_results: bool,

    /// The node's public key for --encrypt-results, printed when it starts: 64 hexadecimal digits, or a file with them
    #[arg(long, value_name = "FILE|HEX", requires = "encrypt_results")]
    node_key: Option<String>,
}

impl SealArgs {
    /// Returns the proof of identity that the node at `url` must give; `None` if its answers need not be encrypted.
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

    /// Refuses options that have no effect without a node.
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

/// Reads a public key, which is given as digits or as the name of a file that contains them.
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
    pub fn options(&self, url: &PoolUrl, config: &Config) -> Outcome<ClientOptions> {
        let of_config = PoolConfig::of(config, url);
        let token = self.token(&of_config)?;
        let tls_ca = self.tls_ca.as_deref().or(of_config.tls_ca.filter(|_| url.is_encrypted()));
        let tls = tls_ca.map(read_authorities).transpose()?;
        if self.tls_ca.is_some() && !url.is_encrypted() {
            return Err(Stop::usage(
                format!("--tls-ca says whose certificates count, and {url} has none"),
                "write farpools:// for a node that has a certificate, or leave --tls-ca away",
            ));
        }
        Ok(ClientOptions { token, tls, ..ClientOptions::default() })
    }

    /// Returns the token from the command line, the environment or the configuration file, in this order of precedence.
    fn token(&self, config: &PoolConfig<'_>) -> Outcome<Option<String>> {
        if let Some(path) = &self.token_file {
            return read_token(path).map(Some);
        }
        let given = |text: Option<String>| text.filter(|token| !token.is_empty());
        let variable = || given(std::env::var(TOKEN_VARIABLE).ok());
        if let Some(token) = given(self.token.clone()).or_else(variable) {
            return Ok(Some(token));
        }
        match (config.token, config.token_file) {
            (Some(token), _) => Ok(given(Some(token.to_string()))),
            (None, Some(path)) => read_token(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// The settings for one pool in the configuration file. Empty for pools that the file does not name, so that its token
/// is sent to no other node.
#[derive(Default)]
struct PoolConfig<'a> {
    token: Option<&'a str>,
    token_file: Option<&'a Path>,
    tls_ca: Option<&'a Path>,
}

impl<'a> PoolConfig<'a> {
    fn of(config: &'a Config, url: &PoolUrl) -> Self {
        let is_named = match &config.pool {
            Some(named) => named == url,
            None => url.to_string() == POOL_DEFAULT,
        };
        match is_named {
            true => PoolConfig {
                token: config.token.as_deref(),
                token_file: config.token_file.as_deref(),
                tls_ca: config.tls_ca.as_deref(),
            },
            false => PoolConfig::default(),
        }
    }
}

/// Reads a token from a file of one line. Errors do not show the contents, which are secret.
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

pub fn read_authorities(path: &Path) -> Outcome<ClientTls> {
    let mut pem = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limits::PEM_BYTES_MAX).read_to_end(&mut pem))
        .map_err(|error| file_error("read the authorities in", path, &error))?;
    Ok(ClientTls::trusting(&pem).map_err(|error| error.at(path.display()))?)
}

impl PoolArgs {
    /// Returns the pool and the options for a client of it.
    fn client(&self) -> Outcome<(NamedPool, ClientOptions)> {
        let config = Config::read()?;
        let pool = match NamedPool::find(self.pool.as_ref(), &config)? {
            Some(pool) => pool,
            None => NamedPool { url: POOL_DEFAULT.parse()?, place: None },
        };
        let options = self.client.options(&pool.url, &config)?;
        Ok((pool, options))
    }

    /// Connects to the node.
    pub async fn connect_remote(&self) -> Outcome<RemotePool> {
        let (pool, options) = self.client()?;
        pool.connect(options).await
    }

    /// Connects to the pool.
    pub async fn connect(&self) -> Outcome<Arc<dyn Pool>> {
        let (pool, options) = self.client()?;
        Ok(Arc::new(pool.connect(options).await?.with_results(ResultForm::default())))
    }
}
