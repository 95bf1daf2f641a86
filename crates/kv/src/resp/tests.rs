//! Tests of the parser of requests of the Redis protocol: all ways to split the bytes into packets, errors, limits, and
//! the cost of parsing.

mod numbers;
mod replies;
mod value;

use super::*;
use proptest::prelude::*;

/// The arguments of the parsed requests, and the protocol error after them, if there is one.
type Parsed = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Parses bytes that arrive in pieces of the given lengths, and the rest in one piece.
fn parse_in_pieces(bytes: &[u8], pieces: &[usize], limits: &ParserLimits) -> Parsed {
    let (mut parser, mut buffer, mut requests) = (Parser::new(), Vec::new(), Vec::new());
    let mut rest = bytes;
    for &piece in pieces.iter().chain([&bytes.len()]) {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        buffer.extend_from_slice(now);
        rest = later;
        loop {
            match parser.parse(&mut buffer, limits) {
                Ok(Step::NeedMore { bytes }) => {
                    assert!(bytes > 0);
                    break;
                }
                Ok(Step::Request(Request { bytes, arguments })) => {
                    requests.push(arguments.iter().map(|range| buffer[range.clone()].to_vec()).collect());
                    buffer.drain(..bytes);
                }
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fn parse_whole(bytes: &[u8]) -> Parsed {
    parse_in_pieces(bytes, &[], &ParserLimits::AUTHENTICATED)
}

/// Parses all requests in `bytes`; returns the protocol error at which parsing ends, if there is one.
fn error_of(bytes: &[u8], limits: &ParserLimits) -> Option<ProtocolError> {
    parse_in_pieces(bytes, &[], limits).1
}

fn array_of(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Encodes an inline command with all its bytes escaped.
fn inline_of(arguments: &[Vec<u8>]) -> Vec<u8> {
    let escaped = |byte: &u8| format!("\\x{byte:02x}");
    let quoted = |argument: &Vec<u8>| format!("\"{}\"", argument.iter().map(escaped).collect::<String>());
    let words: Vec<String> = arguments.iter().map(quoted).collect();
    format!("{}\r\n", words.join(" ")).into_bytes()
}

fn requests() -> impl Strategy<Value = Vec<(bool, Vec<Vec<u8>>)>> {
    let argument = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20),
        proptest::collection::vec(any::<u8>(), 90..110),
    ];
    let arguments = proptest::collection::vec(argument, 0..12);
    proptest::collection::vec((any::<bool>(), arguments), 0..8)
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![Just(1_usize), 0..8_usize, 0..200_usize], 0..60)
}

proptest! {
    #[test]
    fn requests_parse_the_same_however_they_are_cut(requests in requests(), pieces in pieces()) {
        let write = |(is_inline, arguments): &(bool, Vec<Vec<u8>>)| {
            if *is_inline { inline_of(arguments) } else { array_of(arguments) }
        };
        let bytes: Vec<u8> = requests.iter().flat_map(write).collect();
        let expected: Vec<_> = requests.into_iter().map(|(_, arguments)| arguments).collect();
        prop_assert_eq!(parse_whole(&bytes), (expected.clone(), None));
        prop_assert_eq!(parse_in_pieces(&bytes, &pieces, &ParserLimits::AUTHENTICATED), (expected, None));
    }

    #[test]
    fn any_bytes_parse_the_same_however_they_are_cut(
        tokens in proptest::collection::vec(0..TOKENS.len(), 0..40),
        pieces in pieces(),
        inline_bytes_max in prop_oneof![Just(0_usize), Just(18)],
        is_authenticated in any::<bool>(),
    ) {
        let bytes: Vec<u8> = tokens.into_iter().flat_map(|token| TOKENS[token].iter().copied()).collect();
        let limits = ParserLimits { arguments_max: 3, argument_bytes_max: 20, inline_bytes_max, is_authenticated };
        let whole = parse_in_pieces(&bytes, &[], &limits);
        prop_assert_eq!(parse_in_pieces(&bytes, &pieces, &limits), whole);
    }
}

/// Building blocks of random input that is nearly a request.
const TOKENS: &[&[u8]] = &[
    b"*1\r\n",
    b"*2\r\n",
    b"*-1\r\n",
    b"*00\r\n",
    b"*000000000000000001\r\n",
    b"*",
    b"$",
    b"$0\r\n",
    b"$1\r\n",
    b"$21\r\n",
    b"\r",
    b"\n",
    b"\r\n",
    b"0",
    b"1",
    b"12345678901234567890",
    b" ",
    b"\"",
    b"'",
    b"\\",
    b"\\x41",
    b"a",
    b"post ",
];

#[test]
fn pipelined_requests_of_both_kinds() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n*0\r\n*-1\r\nset k 'v w'\n*1\r\n$0\r\n\r\n";
    let words = |text: &[&[u8]]| text.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    let expected = vec![
        words(&[b"GET", b"a"]),
        words(&[b"PING"]),
        vec![],
        vec![],
        vec![],
        words(&[b"set", b"k", b"v w"]),
        words(&[b""]),
    ];
    assert_eq!(parse_whole(bytes), (expected, None));
}

#[test]
fn inline_commands_are_split_as_redis_does() {
    for (line, expected) in [
        (&b"  a\tb  "[..], Some(&[&b"a"[..], b"b"][..])),
        (b"", Some(&[])),
        (b" \t\x0b\x0c ", Some(&[])),
        (b"\"\" ''", Some(&[b"", b""])),
        (b"a\"b c\" d", Some(&[b"ab c", b"d"])),
        (b"a'b\"c' d", Some(&[b"ab\"c", b"d"])),
        (b"\"\\n\\r\\t\\b\\a\\\\\\\"\\q\"", Some(&[b"\n\r\t\x08\x07\\\"q"])),
        (b"\"\\x00\\xfF\\xg0\\x4\"", Some(&[b"\x00\xffxg0x4"])),
        (b"'\\n\\'\\\\ '", Some(&[b"\\n'\\\\ "])),
        (b"\\x41 \\n", Some(&[b"\\x41", b"\\n"])),
        (b"\xc3\xa4\x00", Some(&[b"\xc3\xa4\x00"])),
        (b"a\x0bb", Some(&[b"a\x0bb"])),
        (b"\"a\"\x0bb", Some(&[b"a", b"b"])),
        (b"\"a", None),
        (b"'a", None),
        (b"\"a\"b", None),
        (b"'a'b", None),
        (b"\"a\\\"", None),
        (b"\"a\\", None),
        (b"'a\\'", None),
    ] {
        for end in [&b"\n"[..], b"\r\n"] {
            let parsed = parse_whole(&[line, end].concat());
            let expected = match expected {
                Some(words) => (vec![words.iter().map(|word| word.to_vec()).collect()], None),
                None => (vec![], Some(ProtocolError::UnbalancedQuotes)),
            };
            assert_eq!(parsed, expected, "{}", String::from_utf8_lossy(line));
        }
    }
}

#[test]
fn errors_have_the_texts_of_redis() {
    let (known, unknown) = (ParserLimits::AUTHENTICATED, ParserLimits::UNAUTHENTICATED);
    let long = |first: &str| [first.as_bytes(), &vec![b'1'; 64 << 10]].concat();
    for (bytes, limits, text) in [
        (b"*a\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*+1\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*01\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*1048577\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*3000000000\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*99999999999999999999\r\n".to_vec(), known, "invalid multibulk length"),
        (b"*3000000000\r\n".to_vec(), unknown, "invalid multibulk length"),
        (b"*11\r\n".to_vec(), unknown, "unauthenticated multibulk length"),
        (b"a b c d e f g h i j k\r\n".to_vec(), unknown, "unauthenticated multibulk length"),
        (b"*1\r\nfooz\r\n".to_vec(), known, "expected '$', got 'f'"),
        (b"*1\r\n$-1\r\n".to_vec(), known, "invalid bulk length"),
        (b"*1\r\n$\r\n".to_vec(), known, "invalid bulk length"),
        (b"*1\r\n$1 \r\n".to_vec(), known, "invalid bulk length"),
        (b"*1\r\n$536870913\r\n".to_vec(), known, "invalid bulk length"),
        (b"*1\r\n$2000000000\r\n".to_vec(), unknown, "invalid bulk length"),
        (b"*1\r\n$16385\r\n".to_vec(), unknown, "unauthenticated bulk length"),
        (long("*"), known, "too big mbulk count string"),
        (long("*1\r\n$"), known, "too big bulk count string"),
        (long("1"), known, "too big inline request"),
        (b"get \"a\r\n".to_vec(), known, "unbalanced quotes in request"),
    ] {
        let error = error_of(&bytes, &limits).expect(text);
        assert_eq!(error.to_string(), format!("Protocol error: {text}"));
        assert_eq!(error.reply(), Some(format!("ERR Protocol error: {text}")));
    }
}

#[test]
fn requests_at_the_limits_are_taken() {
    let (known, unknown) = (ParserLimits::AUTHENTICATED, ParserLimits::UNAUTHENTICATED);
    let ten = vec![vec![b'x'; 16 << 10]; 10];
    assert_eq!(parse_in_pieces(&array_of(&ten), &[], &unknown), (vec![ten], None));
    for (limits, bytes) in [(known, 64 << 10), (unknown, 16 << 10)] {
        let mut line = vec![b'x'; bytes];
        line.push(b'\n');
        assert_eq!(error_of(&line, &limits), None);
        line.insert(0, b'x');
        assert_eq!(error_of(&line, &limits), Some(ProtocolError::InlineTooLong));
    }
    for announced in ["*1048576\r\n", "*1\r\n$536870912\r\n"] {
        assert_eq!(error_of(announced.as_bytes(), &known), None);
    }
}

#[test]
fn http_gets_no_reply() {
    for bytes in ["POST / HTTP/1.1\r\n", "post\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n", "\"host:\"\n"] {
        let error = error_of(bytes.as_bytes(), &ParserLimits::AUTHENTICATED);
        assert_eq!(error.map(|error| error.reply()), Some(None), "{bytes}");
    }
    for bytes in ["posts\r\n", "Host\r\n", "get host: post\r\n"] {
        assert_eq!(error_of(bytes.as_bytes(), &ParserLimits::AUTHENTICATED), None, "{bytes}");
    }
}

#[test]
fn what_is_missing_is_told() {
    for (bytes, missing, open) in [
        (&b""[..], 1, None),
        (b"get a", 1, None),
        (b"*", 1, None),
        (b"*2\r", 1, None),
        (b"*2\r\n", 1, None),
        (b"*2\r\n$3\r\nGET\r\n$1000", 1, None),
        (b"*2\r\n$3\r\nGET\r\n$1000\r\n", 1002, Some(20..1020)),
        (b"*2\r\n$3\r\nGET\r\n$1000\r\nab", 1000, Some(20..1020)),
        (b"*2\r\n$3\r\nGET\r\n$0\r\n\r", 1, Some(17..17)),
    ] {
        let mut parser = Parser::new();
        let step = parser.parse(&mut bytes.to_vec(), &ParserLimits::AUTHENTICATED);
        assert_eq!(step, Ok(Step::NeedMore { bytes: missing }), "{}", String::from_utf8_lossy(bytes));
        assert_eq!(parser.open_argument(), open);
    }
}

#[test]
fn a_request_sent_byte_by_byte_takes_linear_work() {
    let many = array_of(&vec![b"x".to_vec(); 20_000]);
    let large = array_of(&[vec![b'x'; 100_000]]);
    let line = [&vec![b'x'; 60_000][..], b"\n"].concat();
    let header = [b"*", &vec![b'1'; 60_000][..]].concat();
    for bytes in [many, large, line, header] {
        let (mut parser, mut bytes) = (Parser::new(), bytes);
        for end in 1..=bytes.len() {
            let step = parser.parse(&mut bytes[..end], &ParserLimits::AUTHENTICATED).unwrap();
            assert_eq!(matches!(step, Step::Request(_)), end == bytes.len() && bytes[end - 1] == b'\n');
        }
        assert!(parser.steps < 20 * bytes.len(), "{} steps for {} bytes", parser.steps, bytes.len());
    }
}

#[test]
fn the_bytes_of_arguments_are_not_looked_at() {
    let mut bytes = array_of(&[b"set".to_vec(), b"k".to_vec(), vec![b'x'; 1 << 20]]);
    let mut parser = Parser::new();
    assert!(matches!(parser.parse(&mut bytes, &ParserLimits::AUTHENTICATED), Ok(Step::Request(_))));
    assert!(parser.steps < 100);
}

#[test]
fn memory_is_taken_for_what_has_arrived() {
    let mut parser = Parser::new();
    let mut begun = b"*1048576\r\n$3\r\nSET\r\n$536870912\r\n".to_vec();
    parser.parse(&mut begun, &ParserLimits::AUTHENTICATED).unwrap();
    assert!(parser.arguments.capacity() < 10);
    let mut parser = Parser::new();
    let mut many = array_of(&vec![vec![]; 100_000]);
    parser.parse(&mut many, &ParserLimits::AUTHENTICATED).unwrap();
    assert_eq!(parser.arguments().len(), 100_000);
    parser.parse(&mut b"PING\r\n".to_vec(), &ParserLimits::AUTHENTICATED).unwrap();
    assert!(parser.arguments.capacity() < 1_000);
}
