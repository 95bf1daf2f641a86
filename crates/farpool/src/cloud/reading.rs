//! Reading of files in object stores and on web servers for the readers of `farpool_files`: byte ranges, many at a
//! time.
//!
//! Invariant: all bytes that are read of a file belong to the version that existed when it was opened, or reading
//! fails.

use super::errors::{changed, explained};
use super::stores::{Kind, Place, of_url};
use super::{Running, blocking};
use bytes::Bytes;
use farpool_files::{Fetch, Remote, RemoteFile, Remotes};
use farpool_model::cast::usize_saturating;
use farpool_model::{Error, ErrorKind, Result, limits};
use futures::{StreamExt, TryStreamExt};
use object_store::{GetOptions, ObjectMeta, ObjectStoreExt};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 16;

/// Maximum number of retries of a request whose connection broke, in addition to those of the store's client, and their
/// time limit.
const RETRIES: u32 = 3;
const RETRY_TIME: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// An opener of URLs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebFiles;

/// An object in a store.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub place: Place,
    pub meta: ObjectMeta,
}

impl Remotes for WebFiles {
    fn file(&self, url: &str) -> Result<RemoteFile> {
        let place = of_url(url)?;
        if place.path.as_ref().is_empty() && place.kind != Kind::Web {
            return Err(Error::not_found(format!("{url} names no file")).advise("write s3://BUCKET/PATH"));
        }
        let path = PathBuf::from(place.url());
        match opened(&place)? {
            Some(entry) => Ok(RemoteFile { path, file: Arc::new(entry) }),
            // Without support for ranges, reading a few bytes would transfer the whole file each time.
            None => Ok(RemoteFile { path, file: Arc::new(Copied::of(&place)?) }),
        }
    }

    fn list(&self, prefix: &str, is_deep: bool) -> Result<Vec<RemoteFile>> {
        let file =
            |entry: Entry| RemoteFile { path: PathBuf::from(entry.place.url()), file: Arc::new(entry) };
        Ok(Entry::list(&of_url(prefix)?, is_deep)?.into_iter().map(file).collect())
    }
}

/// Requests the metadata of a URL; `None` if the server does not support byte ranges.
fn opened(place: &Place) -> Result<Option<Entry>> {
    let place = place.clone();
    blocking(async move {
        let explain = |error| explained(&place, &place.url(), &error);
        let meta = match place.kind {
            Kind::S3 | Kind::Google | Kind::Azure => match place.store.head(&place.path).await {
                Ok(meta) => meta,
                // The response to HEAD has no body, and therefore no text that explains an error.
                Err(error) if is_answer(&error) => {
                    let again =
                        place.store.get_opts(&place.path, GetOptions::new().with_range(Some(0..1))).await;
                    return Err(explain(again.err().unwrap_or(error)));
                }
                Err(error) => return Err(explain(error)),
            },
            Kind::Web => {
                // Signed URLs are valid for GET only.
                match place.store.get_opts(&place.path, GetOptions::new().with_range(Some(0..1))).await {
                    Ok(found) => found.meta,
                    Err(object_store::Error::NotSupported { .. }) => return Ok(None),
                    Err(error @ object_store::Error::NotFound { .. }) => return Err(explain(error)),
                    // An empty file has no first byte, so that the request for it fails.
                    Err(error) => place.store.head(&place.path).await.map_err(|_| explain(error))?,
                }
            }
        };
        Ok(Some(Entry { place: place.clone(), meta }))
    })?
}

/// Returns whether a store answered a request with an error, as opposed to being unreachable.
fn is_answer(error: &object_store::Error) -> bool {
    use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};
    matches!(error, NotFound { .. } | PermissionDenied { .. } | Unauthenticated { .. })
}

impl Entry {
    /// Lists the objects with a prefix: with `is_deep` all, otherwise only those without another slash after the
    /// prefix.
    ///
    /// # Errors
    /// `OverLimit` if there are too many; errors of the store.
    pub fn list(prefix: &Place, is_deep: bool) -> Result<Vec<Entry>> {
        if prefix.kind == Kind::Web {
            let message = format!("{}: files of web servers cannot be listed", prefix.url());
            return Err(Error::invalid(message).advise("name each file"));
        }
        let prefix = prefix.clone();
        let found: Result<Vec<ObjectMeta>> = blocking({
            let prefix = prefix.clone();
            async move {
                let explain = |error| explained(&prefix, &prefix.url(), &error);
                if !is_deep {
                    let found =
                        prefix.store.list_with_delimiter(Some(&prefix.path)).await.map_err(explain)?;
                    return Ok(found.objects);
                }
                let found = prefix.store.list(Some(&prefix.path)).take(limits::OBJECTS_LISTED_MAX + 1);
                found.try_collect().await.map_err(explain)
            }
        })?;
        let found = found?;
        if found.len() > limits::OBJECTS_LISTED_MAX {
            let message =
                format!("there are more than {} files below {}", limits::OBJECTS_LISTED_MAX, prefix.url());
            return Err(Error::over_limit(message).advise("name a longer prefix"));
        }
        Ok(found.into_iter().map(|meta| Entry { place: prefix.at(meta.location.clone()), meta }).collect())
    }

    async fn get(self, range: Range<u64>) -> Result<Bytes> {
        static REQUESTS: OnceLock<Semaphore> = OnceLock::new();
        let requests = REQUESTS.get_or_init(|| Semaphore::new(REQUESTS_MAX));
        let _turn = requests.acquire().await.map_err(|error| Error::internal(error.to_string()))?;
        let (start, mut tried) = (Instant::now(), 0);
        loop {
            match self.get_once(range.clone()).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tried < RETRIES => {
                    tried += 1;
                    if start.elapsed() > RETRY_TIME {
                        return Err(error);
                    }
                    tokio::time::sleep(RETRY_AFTER * 2_u32.pow(tried)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn get_once(&self, range: Range<u64>) -> Result<Bytes> {
        let url = self.place.url();
        let explain = |error| explained(&self.place, &url, &error);
        // The entity tag is not used with web servers, which may treat weak tags as strong ones, or ignore the
        // condition.
        let tag = self.meta.e_tag.clone().filter(|_| self.place.kind != Kind::Web);
        let options = GetOptions::new().with_range(Some(range)).with_if_match(tag);
        let found = self.place.store.get_opts(&self.place.path, options).await.map_err(explain)?;
        if !is_same(&self.meta, &found.meta) {
            return Err(changed(&url));
        }
        found.bytes().await.map_err(explain)
    }
}

/// Returns whether two responses describe the same version of an object.
fn is_same(opened: &ObjectMeta, now: &ObjectMeta) -> bool {
    let is_tagged_alike = match (&opened.e_tag, &now.e_tag) {
        (Some(opened), Some(now)) => opened == now,
        _ => opened.last_modified == now.last_modified,
    };
    opened.size == now.size && is_tagged_alike
}

impl Remote for Entry {
    fn bytes(&self) -> u64 {
        self.meta.size
    }

    fn stamp(&self) -> String {
        self.meta.e_tag.clone().unwrap_or_else(|| self.meta.last_modified.to_rfc3339())
    }

    fn fetch(&self, range: Range<u64>) -> Fetch {
        match Running::start(self.clone().get(range)) {
            Ok(running) => Fetch::new(move || running.wait()?),
            Err(error) => Fetch::new(move || Err(error)),
        }
    }
}

/// The content of a file from a server without byte ranges, copied to a temporary file, which has no name and
/// disappears with the process.
#[derive(Debug)]
struct Copied {
    file: Arc<std::fs::File>,
    bytes: u64,
    stamp: String,
}

impl Copied {
    fn of(place: &Place) -> Result<Self> {
        let place = place.clone();
        blocking(async move {
            let url = place.url();
            let explain = |error| explained(&place, &url, &error);
            let failed =
                |error: std::io::Error| Error::over_limit(format!("{url}: no room for a copy: {error}"));
            let mut file = tempfile::tempfile().map_err(failed)?;
            let found = place.store.get(&place.path).await.map_err(explain)?;
            let meta = found.meta.clone();
            let mut pieces = found.into_stream();
            let mut bytes = 0;
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(explain)?;
                bytes += farpool_model::cast::u64_from(piece.len());
                file.write_all(&piece).map_err(failed)?;
            }
            let stamp = meta.e_tag.unwrap_or_else(|| meta.last_modified.to_rfc3339());
            Ok(Copied { file: Arc::new(file), bytes, stamp })
        })?
    }
}

impl Remote for Copied {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn stamp(&self) -> String {
        self.stamp.clone()
    }

    fn fetch(&self, range: Range<u64>) -> Fetch {
        let file = self.file.clone();
        Fetch::new(move || {
            let mut bytes = vec![0; usize_saturating(range.end - range.start)];
            let read = file.read_exact_at(&mut bytes, range.start);
            read.map_err(|error| Error::unavailable(format!("a temporary file cannot be read: {error}")))?;
            Ok(Bytes::from(bytes))
        })
    }
}
