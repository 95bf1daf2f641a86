//! Fuzz body that reads requests of the Redis protocol, and the numbers in them.

use farpool_kv::resp::{
    ExtendedFloat, INTEGER_TEXT_BYTES, Parser, ParserLimits, ProtocolError, Request, Step, integer_text,
    parse_integer,
};

/// The arguments of each request, and the error that ends the input.
type Parsed = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Parses requests whole and in pieces; the first byte selects the limits and the size of the pieces. Both ways must
/// give the same requests and the same error, and a number must give the same text when it is read again.
pub fn resp_decoder(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let limits = if choice & 16 == 0 { ParserLimits::AUTHENTICATED } else { ParserLimits::UNAUTHENTICATED };
    let whole = requests(bytes, bytes.len(), &limits);
    assert_eq!(whole, requests(bytes, usize::from(choice & 15) + 1, &limits));
    whole.0.iter().flatten().for_each(|argument| read_numbers(argument));
}

fn requests(bytes: &[u8], piece: usize, limits: &ParserLimits) -> Parsed {
    let (mut parser, mut buffer, mut requests) = (Parser::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
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

fn read_numbers(text: &[u8]) {
    if let Some(number) = parse_integer(text) {
        assert_eq!(integer_text(number, &mut [0; INTEGER_TEXT_BYTES]), text);
        assert_eq!(ExtendedFloat::parse(text), Some(ExtendedFloat::of_integer(number)));
    }
    let Some(number) = ExtendedFloat::parse(text) else { return };
    let text = number.text();
    let again = ExtendedFloat::parse(text.as_bytes()).expect("it is a number");
    assert_eq!(again.text(), text);
}
