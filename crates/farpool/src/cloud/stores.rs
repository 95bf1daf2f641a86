//! Creation of object store clients from URLs. Credentials, endpoints and time limits come from the environment
//! variables that other tools also read: `AWS_…`, `GOOGLE_…`, `AZURE_…`; docs/object-stores.md lists them.

use super::errors;
use farpool_model::{Error, ErrorKind, Result};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use url::Url;

/// Time limit of a connection attempt, and time without a byte after which a request is retried. A request may take any
/// time as long as bytes arrive.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const READ_TIME: Duration = Duration::from_secs(15);

/// Maximum number of retries of a request, at increasing intervals, and their time limit.
const RETRIES: usize = 4;
const RETRY_TIME: Duration = Duration::from_secs(45);

/// Address of the service from which machines in a cloud get their credentials, and the time limit to reach it.
const METADATA_SERVICE: ([u8; 4], u16) = ([169, 254, 169, 254], 80);
const METADATA_TIME: Duration = Duration::from_millis(300);

/// The kind of an object store or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Google,
    Azure,
    Web,
}

/// An object store and a path in it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub store: Arc<dyn ObjectStore>,
    pub path: Path,
    pub kind: Kind,
    /// The URL up to the path, without secrets: `s3://bucket/`.
    pub origin: String,
}

impl Place {
    /// Returns the URL of a path in this store.
    pub fn url_of(&self, path: &Path) -> String {
        format!("{}{path}", self.origin)
    }

    /// Returns the URL of the path.
    pub fn url(&self) -> String {
        self.url_of(&self.path)
    }

    /// Returns another path in the same store.
    pub fn at(&self, path: Path) -> Place {
        Place { path, ..self.clone() }
    }
}

/// Checks that files can be written to a URL, which is so for object stores.
///
/// # Errors
/// `Invalid` for an unknown scheme, and for web servers.
pub(crate) fn is_written(url: &str) -> Result<()> {
    match kind_of(url)? {
        Kind::S3 | Kind::Google | Kind::Azure => Ok(()),
        Kind::Web => {
            Err(Error::invalid(format!("{}: a web server is only read from", errors::scrubbed(url)))
                .advise("write to s3://, gs:// or az://, or to a file"))
        }
    }
}

fn kind_of(url: &str) -> Result<Kind> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme.to_ascii_lowercase().as_str() {
        "s3" | "s3a" => Ok(Kind::S3),
        "gs" | "gcs" => Ok(Kind::Google),
        "az" | "azure" | "abfs" | "abfss" | "adl" => Ok(Kind::Azure),
        "http" | "https" => Ok(Kind::Web),
        _ => Err(Error::invalid(format!("{}: {scheme:?} is no scheme of files", errors::scrubbed(url)))
            .advise("files are paths, or begin with s3://, gs://, az://, https:// or http://")),
    }
}

/// Returns the object store and path of a URL.
///
/// # Errors
/// `Invalid` if the URL cannot be parsed, or the environment lacks a variable that the store needs.
pub(crate) fn of_url(text: &str) -> Result<Place> {
    let kind = kind_of(text)?;
    let invalid = |what: &str| Error::invalid(format!("{}: {what}", errors::scrubbed(text)));
    if kind == Kind::Web {
        let url = Url::parse(text).map_err(|error| invalid(&format!("no URL: {error}")))?;
        let path = Path::from_url_path(url.path()).map_err(|error| invalid(&error.to_string()))?;
        let mut base = url.clone();
        base.set_path("/");
        base.set_fragment(None);
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        let origin = format!("{}://{}{port}/", url.scheme(), url.host_str().unwrap_or_default());
        let store = kept(base.as_str(), || web(&base))?;
        return Ok(Place { store, path, kind, origin });
    }
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(invalid("the bucket is missing").advise("write s3://BUCKET/PATH"));
    }
    // Keys are used literally: no character is special in them.
    let path = Path::parse(path.trim_end_matches('/')).map_err(|error| invalid(&error.to_string()))?;
    let origin = format!("{scheme}://{bucket}/");
    let store = kept(&origin, || match kind {
        Kind::S3 => s3(bucket),
        Kind::Google => google(bucket),
        Kind::Azure => azure(&origin),
        Kind::Web => Err(Error::internal("a web server is no bucket")),
    });
    Ok(Place { store: store.map_err(|error| error.at(errors::scrubbed(text)))?, path, kind, origin })
}

/// Returns the client kept under `key`, which `make` creates at first use. The key is the scheme and bucket or, for web
/// servers, the URL without its path: user, password and query belong to it, so that URLs with other credentials share no
/// client.
fn kept(key: &str, make: impl FnOnce() -> Result<Arc<dyn ObjectStore>>) -> Result<Arc<dyn ObjectStore>> {
    static KEPT: OnceLock<Mutex<HashMap<String, Arc<dyn ObjectStore>>>> = OnceLock::new();
    let mut kept = KEPT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = kept.get(key) {
        return Ok(store.clone());
    }
    let store = make()?;
    kept.insert(key.to_string(), store.clone());
    Ok(store)
}

fn options() -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(CONNECT_TIME)
        .with_read_timeout(READ_TIME)
        .with_timeout_disabled()
}

fn retry() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRY_TIME }
}

/// Returns the environment variables with a prefix, with names in lower case, and their values.
fn variables(prefix: &'static str) -> impl Iterator<Item = (String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let variables = std::env::vars_os().filter_map(text);
    let is_ours = move |(name, value): &(String, String)| name.starts_with(prefix) && !value.is_empty();
    variables.filter(is_ours).map(|(name, value)| (name.to_ascii_lowercase(), value))
}

fn is_set(names: &[&str]) -> bool {
    names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Returns whether this machine may have credentials of its own, because it is in a cloud. Tries to reach the metadata
/// service.
#[expect(clippy::disallowed_methods, reason = "only a connection tells whether the service is there")]
fn has_metadata_service() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| TcpStream::connect_timeout(&METADATA_SERVICE.into(), METADATA_TIME).is_ok())
}

fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::new().with_bucket_name(bucket).with_client_options(options());
    for (name, value) in variables("AWS_") {
        if let Ok(key) = name.parse() {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let endpoint =
        endpoint.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint);
        if endpoint.starts_with("http://") && !is_set(&["AWS_ALLOW_HTTP"]) {
            let message = format!("the endpoint {} is reached without TLS", errors::scrubbed(endpoint));
            return Err(Error::invalid(message).advise("if that is meant, set AWS_ALLOW_HTTP=true"));
        }
    }
    let credentials = [
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_METADATA_ENDPOINT",
        "AWS_SKIP_SIGNATURE",
    ];
    if !is_set(&credentials) && (endpoint.is_some() || !has_metadata_service()) {
        builder = builder.with_skip_signature(true);
    }
    finished(builder.with_retry(retry()).build(), "see AWS_ENDPOINT_URL, AWS_REGION and AWS_ACCESS_KEY_ID")
}

fn google(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder =
        GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_client_options(options());
    for (name, value) in variables("GOOGLE_") {
        if let Ok(key) = name.parse() {
            builder = builder.with_config(key, value);
        }
    }
    let credentials = [
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SKIP_SIGNATURE",
    ];
    let home = std::env::home_dir().unwrap_or_default();
    let is_logged_in = home.join(".config/gcloud/application_default_credentials.json").exists();
    if !is_set(&credentials) && !is_logged_in && !has_metadata_service() {
        builder = builder.with_skip_signature(true);
    }
    finished(builder.with_retry(retry()).build(), "see GOOGLE_APPLICATION_CREDENTIALS")
}

fn azure(origin: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::new().with_client_options(options()).with_url(origin);
    for (name, value) in variables("AZURE_") {
        if let Ok(key) = name.parse() {
            builder = builder.with_config(key, value);
        }
    }
    let advice = "see AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY";
    finished(builder.with_retry(retry()).build(), advice)
}

fn web(base: &Url) -> Result<Arc<dyn ObjectStore>> {
    // An explicit http:// is allowed.
    let options = options().with_allow_http(true);
    finished(
        HttpBuilder::new().with_url(base.as_str()).with_client_options(options).with_retry(retry()).build(),
        "",
    )
}

fn finished(store: object_store::Result<impl ObjectStore>, advice: &str) -> Result<Arc<dyn ObjectStore>> {
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => {
            let error = Error::new(ErrorKind::Invalid, errors::cause(&error));
            Err(if advice.is_empty() { error } else { error.advise(advice) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let place = of_url("https://user:secret@host:81/a%20b/c.csv?sign=secret#x").unwrap();
        assert_eq!((place.kind, place.url().as_str()), (Kind::Web, "https://host:81/a b/c.csv"));
        for (url, expected) in [
            ("s3:///x", "the bucket is missing"),
            ("ftp://h/x", "\"ftp\" is no scheme"),
            ("http://[::1", "no URL"),
            ("https://h/x?sign=secret", "only read from"),
        ] {
            let error = of_url(url).map(|_| ()).and_then(|()| is_written(url)).unwrap_err();
            assert!(error.message.contains(expected) && !error.message.contains("secret"), "{error}");
        }
        is_written("gs://b/x").unwrap();
    }
}
