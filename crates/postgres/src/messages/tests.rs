//! Tests of the decoder of messages: whole, cut, and with lengths that lie.

use super::*;
use bytes::BufMut;
use proptest::prelude::*;

fn framed(kind: &[u8], body: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::from(kind);
    bytes.put_u32(u32::try_from(body.len() + LENGTH_BYTES).unwrap());
    bytes.put_slice(body);
    bytes
}

fn decoded(kind: u8, body: &[u8]) -> Result<Message> {
    let mut bytes = framed(&[kind], body);
    let message = message(&mut bytes, 1 << 20).map(Option::unwrap);
    assert!(message.is_err() || bytes.is_empty(), "a message is taken whole");
    message
}

/// A message of each kind: its kind, its body, and what it means.
fn examples() -> Vec<(u8, Vec<u8>, Message)> {
    let text = String::from;
    let bind = Bind {
        portal: text("p"),
        statement: text("s"),
        formats: vec![Format::Binary],
        values: vec![Some(Bytes::from_static(b"\0\x01")), None, Some(Bytes::new())],
        results: vec![Format::Text, Format::Binary],
    };
    let bound = b"p\0s\0\0\x01\0\x01\0\x03\0\0\0\x02\0\x01\xff\xff\xff\xff\0\0\0\0\0\x02\0\0\0\x01";
    let parse = Message::Parse { name: text("s"), text: text("select $1"), types: vec![23, 0] };
    vec![
        (b'Q', b"select 'x'\0".to_vec(), Message::Query(text("select 'x'"))),
        (b'P', b"s\0select $1\0\0\x02\0\0\0\x17\0\0\0\0".to_vec(), parse),
        (b'B', bound.to_vec(), Message::Bind(bind)),
        (b'D', b"Ss\0".to_vec(), Message::Describe(Target::Statement(text("s")))),
        (b'C', b"P\0".to_vec(), Message::Close(Target::Portal(text("")))),
        (b'E', b"p\0\0\0\0\x05".to_vec(), Message::Execute { portal: text("p"), rows_max: 5 }),
        (b'E', b"\0\xff\xff\xff\xff".to_vec(), Message::Execute { portal: text(""), rows_max: 0 }),
        (b'H', vec![], Message::Flush),
        (b'S', vec![], Message::Sync),
        (b'F', b"whatever".to_vec(), Message::FunctionCall),
        (b'd', b"1\t2\n".to_vec(), Message::CopyData(Bytes::from_static(b"1\t2\n"))),
        (b'c', vec![], Message::CopyDone),
        (b'f', b"why\0".to_vec(), Message::CopyFail(text("why"))),
        (b'p', b"secret\0".to_vec(), Message::Authentication(Bytes::from_static(b"secret\0"))),
        (b'X', vec![], Message::Terminate),
    ]
}

#[test]
fn messages_mean_what_the_protocol_says() {
    for (kind, body, expected) in examples() {
        assert_eq!(decoded(kind, &body).unwrap(), expected);
    }
}

#[test]
fn every_cut_is_incomplete_and_every_short_body_an_error() {
    for (kind, body, _) in examples() {
        let whole = framed(&[kind], &body);
        for cut in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..cut]);
            assert_eq!(message(&mut part, 1 << 20).unwrap(), None);
            assert_eq!(part, whole[..cut], "an incomplete message stays");
        }
        // A body that ends early, or has a byte too many. Bodies without fields of their own take all bytes.
        let takes_all = matches!(kind, b'd' | b'p' | b'F');
        for cut in 0..body.len() {
            assert!(takes_all || decoded(kind, &body[..cut]).is_err(), "{kind} cut at {cut}");
        }
        let longer = [body.as_slice(), b"x"].concat();
        assert!(takes_all || decoded(kind, &longer).is_err(), "{kind} and a byte");
    }
}

#[test]
fn lengths_that_lie_are_errors() {
    for length in [0_u32, 3] {
        let mut bytes = BytesMut::from(&b"S"[..]);
        bytes.put_u32(length);
        assert_eq!(message(&mut bytes, 1 << 20).unwrap_err().kind, farpool_model::ErrorKind::Corrupt);
    }
    let mut bytes = BytesMut::from(&b"Q"[..]);
    bytes.put_u32(u32::MAX);
    assert_eq!(message(&mut bytes, 1 << 20).unwrap_err().kind, farpool_model::ErrorKind::OverLimit);
    assert!(bytes.capacity() < 64, "nothing is reserved for what is only announced");
    // A list of 65,535 values of which none is there, and a value of 2 GiB.
    for body in [&b"\0\0\0\0\xff\xff"[..], b"\0\0\0\0\0\x01\x7f\xff\xff\xff", b"\0\0\0\0\0\x01\x80\0\0\0"] {
        assert!(decoded(b'B', body).is_err());
    }
    assert!(decoded(b'Q', b"no end").is_err());
    assert!(decoded(b'Q', b"\xff\xfe\0").is_err(), "not UTF-8");
    assert!(message(&mut BytesMut::from(&b"?\0\0\0\x04"[..]), 1 << 20).is_err());
}

#[test]
fn connections_open_in_four_ways() {
    let open = |body: &[u8]| opening(&mut framed(b"", body)).map(Option::unwrap);
    assert_eq!(open(&SSL_REQUEST.to_be_bytes()).unwrap(), Opening::Tls);
    assert_eq!(open(&GSS_REQUEST.to_be_bytes()).unwrap(), Opening::Gss);
    let cancel = [&CANCEL_REQUEST.to_be_bytes()[..], &7_u32.to_be_bytes(), b"secret"].concat();
    let secret = Bytes::from_static(b"secret");
    assert_eq!(open(&cancel).unwrap(), Opening::Cancel { session: 7, secret });
    let startup = b"\0\x03\0\0user\0ann\0database\0d\0\0";
    let parameters =
        [("user", "ann"), ("database", "d")].map(|(name, value)| (name.to_string(), value.to_string()));
    assert_eq!(open(startup).unwrap(), Opening::Startup { version: (3, 0), parameters: parameters.to_vec() });
    assert_eq!(open(b"\0\x02\0\0old").unwrap(), Opening::Startup { version: (2, 0), parameters: vec![] });
    assert!(open(b"\0\x03\0\0user\0ann\0").is_err(), "without the end of the list");
    let long = [b"\0\x03\0\0user\0".to_vec(), vec![b'x'; limits::POSTGRES_STARTUP_BYTES_MAX]].concat();
    assert!(opening(&mut framed(b"", &long)).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_messages_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut received = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = message(&mut received, 1 << 20) {}
        let _ = opening(&mut BytesMut::from(&bytes[..]));
    }

    #[test]
    fn any_body_is_a_message_or_an_error(
        kind in prop::sample::select(&b"QPBDCEHSFdcfpX"[..]),
        body in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..60),
    ) {
        let _ = decoded(kind, &body);
    }
}
