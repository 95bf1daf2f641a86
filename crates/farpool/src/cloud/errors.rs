//! Conversion of object store errors to messages: the store's own message, without the XML around it, and advice.

use super::stores::{Kind, Place};
use farpool_model::{Error, ErrorKind, brief};
use std::error::Error as StdError;

/// Returns the error of an operation on `url`, a URL of the object store of `place`.
pub(super) fn explained(place: &Place, url: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Store;
    let cause = cause(error);
    let is_denied = cause.contains("AccessDenied") || cause.contains("403 Forbidden");
    // Some requests have a specific error kind for a missing bucket, others a generic one.
    if cause.contains("NoSuchBucket") || cause.contains("bucket does not exist") {
        return Error::not_found(format!("there is no bucket {}", place.origin)).advise(match place.kind {
            Kind::S3 => "check its name, AWS_REGION and AWS_ENDPOINT_URL",
            Kind::Google | Kind::Azure | Kind::Web => "check its name",
        });
    }
    match error {
        Store::NotFound { .. } => {
            Error::not_found(format!("there is no file {url}")).advise(match place.kind {
                Kind::S3 | Kind::Google | Kind::Azure => "check the bucket and the path",
                Kind::Web => "check the URL",
            })
        }
        Store::Precondition { .. } => changed(url),
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => denied(place, url, &cause),
        _ if is_denied => denied(place, url, &cause),
        Store::InvalidPath { .. } | Store::NotSupported { .. } | Store::NotImplemented { .. } => {
            Error::invalid(format!("{url}: {cause}"))
        }
        _ => Error::unavailable(format!("{url} cannot be reached: {cause}")).advise(match place.kind {
            Kind::S3 => "check AWS_ENDPOINT_URL, AWS_REGION and the network, or try again",
            Kind::Google | Kind::Azure | Kind::Web => "check the network, or try again",
        }),
    }
}

fn denied(place: &Place, url: &str, cause: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("{url}: the store denies access: {cause}")).advise(match place.kind {
        Kind::S3 => {
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; what is public is read with \
             AWS_SKIP_SIGNATURE=true"
        }
        Kind::Google => {
            "check GOOGLE_APPLICATION_CREDENTIALS; what is public is read with GOOGLE_SKIP_SIGNATURE=true"
        }
        Kind::Azure => {
            "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; what is public is read with \
             AZURE_SKIP_SIGNATURE=true"
        }
        Kind::Web => "check the URL: a signed one may have expired",
    })
}

/// Returns the error for a file that has changed since it was opened.
pub(super) fn changed(url: &str) -> Error {
    Error::unavailable(format!("{url} has changed while it was read")).advise("run the statement again")
}

/// Returns the message of the innermost error, or the response of a server.
pub(super) fn cause(error: &dyn StdError) -> String {
    let (mut texts, mut next) = (Vec::new(), Some(error));
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    if let Some(said) = texts.iter().find_map(|text| of_xml(text)) {
        return scrubbed(&said);
    }
    // Each message often contains those of its causes.
    let innermost = texts.pop().unwrap_or_default();
    let outer = texts.pop().filter(|outer| !outer.contains(&innermost) && outer.len() < 200);
    let retries = texts.iter().find_map(|text| {
        let (_, rest) = text.split_once("after ")?;
        rest.split_once(" retries").map(|(count, _)| count.to_string())
    });
    let mut cause =
        scrubbed(&outer.map_or_else(|| innermost.clone(), |outer| format!("{outer}: {innermost}")));
    if let Some(count) =
        retries.filter(|count| count != "0" && count.bytes().all(|byte| byte.is_ascii_digit()))
    {
        cause = format!("{cause} (tried again {count} times)");
    }
    brief(&cause).to_string()
}

/// Returns the code and the message of an XML response; `None` if it has none.
fn of_xml(text: &str) -> Option<String> {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| brief(value.trim()).to_string())
    };
    match (element("Code")?, element("Message")) {
        (code, Some(message)) if !message.is_empty() => Some(format!("{code}: {message}")),
        (code, _) => Some(code),
    }
}

/// Returns the text without the queries and passwords of URLs, which may be secret.
pub(super) fn scrubbed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let end = behind.find([' ', ')', '"', '\'', '\n']).unwrap_or(behind.len());
        let (url, others) = behind.split_at(end);
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        out.push_str(host.rsplit_once('@').map_or(host, |(_, host)| host));
        out.push_str(path);
        rest = others;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_urls_are_not_told() {
        assert_eq!(scrubbed("for url (https://u:p@h/x?sign=1#2): no"), "for url (https://h/x): no");
        assert_eq!(scrubbed("s3://b/x and http://a@h"), "s3://b/x and http://h");
        assert_eq!(scrubbed("plain ? text"), "plain ? text");
    }

    #[test]
    fn answers_in_xml_are_read() {
        let answer = "403: <Error><Code>AccessDenied</Code><Message>No.</Message></Error>";
        assert_eq!(of_xml(answer).unwrap(), "AccessDenied: No.");
        assert_eq!(of_xml("<Code>A</Code>").unwrap(), "A");
        assert_eq!(of_xml("<html>no</html>"), None);
    }
}
