//! A small server that implements the part of S3 that the program uses, and HTTP of a web server: objects in memory,
//! with entity tags, ranges, paged lists and uploads in parts; it counts the bytes that it serves and fails on demand.
//! Signatures are not computed; the access key is compared.

#![expect(clippy::disallowed_methods, reason = "a server has threads and sockets")]

use super::s3_request::{Request, Response};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The access key that may read and write.
pub const KEY: &str = "key-of-the-tests";

/// Number of objects in a page of a list: few, so that tests have several pages.
const PAGE: usize = 3;

/// The failure mode of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// Every third request is answered with status 500.
    EveryThird,
    /// Connections of requests for more than this many bytes are closed in the middle of the response; every third one
    /// is not.
    CutOff(u64),
    /// Requests are not answered.
    Silence,
    /// Each object is replaced by another one after it was read once.
    Changes,
}

/// A server on a free port, which ends with the test.
pub struct S3 {
    pub address: String,
    state: Arc<State>,
}

struct State {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    uploads: Mutex<BTreeMap<u64, BTreeMap<u64, Vec<u8>>>>,
    fault: Mutex<Fault>,
    is_without_ranges: AtomicBool,
    has_ended: AtomicBool,
    requests: AtomicU64,
    bytes_served: AtomicU64,
}

impl S3 {
    pub fn start() -> S3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State {
            objects: Mutex::default(),
            uploads: Mutex::default(),
            fault: Mutex::new(Fault::Nothing),
            is_without_ranges: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            bytes_served: AtomicU64::new(0),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let state = shared.clone();
                if state.has_ended.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || connection.map(|connection| state.serve(connection)));
            }
        });
        S3 { address, state }
    }

    /// Stores an object under its name `bucket/key`.
    pub fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.state.objects.lock().unwrap().insert(name.to_string(), bytes.into());
    }

    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.state.objects.lock().unwrap().get(name).cloned()
    }

    pub fn names(&self) -> Vec<String> {
        self.state.objects.lock().unwrap().keys().cloned().collect()
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.state.objects.lock().unwrap().get_mut(name).unwrap());
    }

    /// Returns the number of uploads in parts that are neither complete nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.state.uploads.lock().unwrap().len()
    }

    pub fn set_fault(&self, fault: Fault) {
        *self.state.fault.lock().unwrap() = fault;
    }

    pub fn serve_no_ranges(&self) {
        self.state.is_without_ranges.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes of objects that were sent since the last call.
    pub fn bytes_served(&self) -> u64 {
        self.state.bytes_served.swap(0, Ordering::Relaxed)
    }

    /// Returns the number of requests since the last call.
    pub fn requests(&self) -> u64 {
        self.state.requests.swap(0, Ordering::Relaxed)
    }

    /// Returns the environment variables that lead to this server.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_string()),
            ("AWS_REGION", "us-east-1".to_string()),
            ("AWS_ACCESS_KEY_ID", KEY.to_string()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_string()),
        ]
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

impl State {
    fn serve(&self, connection: TcpStream) {
        let mut connection = connection;
        while let Some(request) = Request::read(&mut connection) {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let fault = *self.fault.lock().unwrap();
            if fault == Fault::Silence {
                // Waits until the client has given up, without a response.
                let _ = Request::read(&mut connection);
                return;
            }
            let response = match fault {
                Fault::EveryThird if number % 3 == 2 => Response::error(500, "InternalError", "not now"),
                _ => self.answer(&request),
            };
            let is_cut = match fault {
                Fault::CutOff(bytes) => response.body.len() as u64 > bytes && number % 3 != 2,
                _ => false,
            };
            let sent = if is_cut { response.body.len() / 2 } else { response.body.len() };
            self.bytes_served.fetch_add(if response.is_object { sent as u64 } else { 0 }, Ordering::Relaxed);
            if response.write(&mut connection, &request, sent).is_err() || is_cut {
                return;
            }
            if fault == Fault::Changes && response.is_object {
                self.objects.lock().unwrap().values_mut().for_each(|object| object.push(b'\n'));
            }
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let is_signed_wrong = request.header("authorization").is_some_and(|header| !header.contains(KEY));
        if is_signed_wrong {
            return Response::error(403, "InvalidAccessKeyId", "The key does not exist.");
        }
        let name = request.path.trim_start_matches('/').to_string();
        let bucket = name.split('/').next().unwrap_or_default().to_string();
        let has_bucket = bucket.starts_with("bucket");
        match request.method.as_str() {
            _ if bucket == "private" => Response::error(403, "AccessDenied", "Access denied."),
            _ if !has_bucket => Response::error(404, "NoSuchBucket", "There is no such bucket."),
            "GET" if request.query("list-type").is_some() => self.list(&bucket, request),
            "GET" | "HEAD" => self.object(&name, request),
            "PUT" | "POST" | "DELETE" if request.header("authorization").is_none() => {
                Response::error(403, "AccessDenied", "Anonymous.")
            }
            "PUT" | "POST" => self.write(&name, request),
            "DELETE" => {
                match request.number("uploadId") {
                    Some(upload) => drop(self.uploads.lock().unwrap().remove(&upload)),
                    None => drop(self.objects.lock().unwrap().remove(&name)),
                }
                Response::empty(204)
            }
            _ => Response::error(405, "MethodNotAllowed", "no"),
        }
    }

    fn object(&self, name: &str, request: &Request) -> Response {
        let objects = self.objects.lock().unwrap();
        let Some(bytes) = objects.get(name) else {
            return Response::error(404, "NoSuchKey", "There is no such key.");
        };
        let tag = tag(bytes);
        if request.header("if-match").is_some_and(|wanted| wanted != tag) {
            return Response::error(412, "PreconditionFailed", "It has changed.");
        }
        let range = request.header("range").filter(|_| !self.is_without_ranges.load(Ordering::Relaxed));
        let Some(range) = range else { return Response::object(200, bytes.clone(), &tag, None) };
        let (start, end) = range.trim_start_matches("bytes=").split_once('-').unwrap();
        let length = bytes.len();
        let (start, end) = match (start.parse::<usize>(), end.parse::<usize>()) {
            (Ok(start), Ok(end)) => (start, (end + 1).min(length)),
            (Ok(start), Err(_)) => (start, length),
            (Err(_), Ok(last)) => (length.saturating_sub(last), length),
            (Err(_), Err(_)) => return Response::error(400, "InvalidRange", "no"),
        };
        if start >= end {
            return Response::error(416, "InvalidRange", "There are no such bytes.");
        }
        let place = format!("bytes {start}-{}/{length}", end - 1);
        Response::object(206, bytes[start..end].to_vec(), &tag, Some(place))
    }

    fn write(&self, name: &str, request: &Request) -> Response {
        match (request.method.as_str(), request.number("uploadId"), request.number("partNumber")) {
            ("POST", None, _) => {
                let mut uploads = self.uploads.lock().unwrap();
                let upload = uploads.keys().last().map_or(1, |last| last + 1);
                uploads.insert(upload, BTreeMap::new());
                Response::xml(&format!(
                    "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>{upload}</UploadId>\
                     </InitiateMultipartUploadResult>"
                ))
            }
            ("POST", Some(upload), _) => {
                let Some(parts) = self.uploads.lock().unwrap().remove(&upload) else {
                    return Response::error(404, "NoSuchUpload", "no");
                };
                let whole: Vec<u8> = parts.into_values().flatten().collect();
                let tag = tag(&whole);
                self.objects.lock().unwrap().insert(name.to_string(), whole);
                Response::xml(&format!(
                    "<CompleteMultipartUploadResult><Location>l</Location><Bucket>b</Bucket><Key>k</Key>\
                     <ETag>{tag}</ETag></CompleteMultipartUploadResult>"
                ))
            }
            (_, Some(upload), Some(part)) => {
                let tag = tag(&request.body);
                // A part may arrive after its upload was completed or aborted.
                match self.uploads.lock().unwrap().get_mut(&upload) {
                    Some(parts) => drop(parts.insert(part, request.body.clone())),
                    None => return Response::error(404, "NoSuchUpload", "no"),
                }
                Response::empty(200).with_tag(&tag)
            }
            _ => {
                let tag = tag(&request.body);
                self.objects.lock().unwrap().insert(name.to_string(), request.body.clone());
                Response::empty(200).with_tag(&tag)
            }
        }
    }

    fn list(&self, bucket: &str, request: &Request) -> Response {
        let (prefix, delimiter) = (request.query("prefix").unwrap_or_default(), request.query("delimiter"));
        let after = request.query("continuation-token").unwrap_or_default();
        let objects = self.objects.lock().unwrap();
        let own = format!("{bucket}/");
        let keys = objects.iter().filter_map(|(name, bytes)| Some((name.strip_prefix(&own)?, bytes)));
        let is_direct =
            |key: &str| delimiter.is_none() || !key.get(prefix.len()..).unwrap_or_default().contains('/');
        let is_listed =
            |(key, _): &(&str, &Vec<u8>)| key.starts_with(&prefix) && *key > after.as_str() && is_direct(key);
        let found: Vec<_> = keys.filter(is_listed).take(PAGE + 1).collect();
        let mut xml = format!(
            "<ListBucketResult><Name>{bucket}</Name><IsTruncated>{}</IsTruncated>",
            found.len() > PAGE
        );
        for (key, bytes) in found.iter().take(PAGE) {
            xml += &format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-25T12:00:00.000Z</LastModified><ETag>{}</ETag>\
                 <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                tag(bytes).replace('"', "&quot;"),
                bytes.len()
            );
        }
        if found.len() > PAGE {
            xml += &format!("<NextContinuationToken>{}</NextContinuationToken>", found[PAGE - 1].0);
        }
        Response::xml(&(xml + "</ListBucketResult>"))
    }
}

/// Returns an entity tag.
fn tag(bytes: &[u8]) -> String {
    use md5::Digest;
    let digest = md5::Md5::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}
