//! Requests and responses of HTTP/1.1 for the test server.

use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::TcpStream;

pub struct Request {
    pub method: String,
    /// The path of the request's URL, percent-decoded.
    pub path: String,
    queries: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Whether the request's body is the content of an object.
    pub is_object: bool,
}

impl Request {
    /// Reads the next request; `None` when the client has gone.
    pub fn read(connection: &mut TcpStream) -> Option<Request> {
        let mut from = BufReader::with_capacity(1, connection);
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|count| *count > 0)?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let queries = query.split('&').filter(|query| !query.is_empty()).map(|query| {
            let (name, value) = query.split_once('=').unwrap_or((query, ""));
            (decoded(name), decoded(value))
        });
        let (path, queries) = (decoded(path), queries.collect());
        let mut request = Request { method, path, queries, headers, body: Vec::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        request.body = vec![0; length];
        let mut body = std::mem::take(&mut request.body);
        from.into_inner().read_exact(&mut body).ok()?;
        request.body = body;
        Some(request)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn query(&self, name: &str) -> Option<String> {
        self.queries.iter().find(|(query, _)| query == name).map(|(_, value)| value.clone())
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.query(name)?.parse().ok()
    }
}

impl Response {
    fn new(status: u16, body: Vec<u8>) -> Response {
        Response { status, headers: Vec::new(), body, is_object: false }
    }

    pub fn empty(status: u16) -> Response {
        Response::new(status, Vec::new())
    }

    pub fn xml(text: &str) -> Response {
        Response::new(200, format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}").into_bytes())
    }

    pub fn error(status: u16, code: &str, message: &str) -> Response {
        let error = Response::xml(&format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>"));
        Response { status, ..error }
    }

    pub fn object(status: u16, body: Vec<u8>, tag: &str, range: Option<String>) -> Response {
        let mut response = Response { is_object: true, ..Response::new(status, body) }.with_tag(tag);
        response.headers.push(("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT".to_string()));
        response.headers.extend(range.map(|range| ("Content-Range", range)));
        response
    }

    pub fn with_tag(mut self, tag: &str) -> Response {
        self.headers.push(("ETag", tag.to_string()));
        self
    }

    /// Writes the response with the first `bytes` bytes of the body.
    pub fn write(&self, connection: &mut TcpStream, request: &Request, bytes: usize) -> Result<()> {
        let mut head = format!("HTTP/1.1 {} x\r\nContent-Length: {}\r\n", self.status, self.body.len());
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        connection.write_all((head + "\r\n").as_bytes())?;
        match request.method.as_str() {
            "HEAD" => Ok(()),
            _ => connection.write_all(&self.body[..bytes]),
        }
    }
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [byte, behind @ ..] = rest {
        rest = behind;
        let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *byte == b'%') {
            Some(code) => {
                bytes.push(code);
                rest = &behind[2..];
            }
            None => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}
