//! Substrait plans made by hand, byte by byte, with contents that no honest encoder would produce.

use farpool_wire::Request;

/// A field of a message: its number and its bytes.
type Field = (u32, Vec<u8>);

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Encodes a message of length-delimited fields.
fn message(fields: &[Field]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, bytes) in fields {
        message.extend(varint(u64::from(number << 3 | 2)));
        message.extend(varint(bytes.len() as u64));
        message.extend_from_slice(bytes);
    }
    message
}

/// Encodes a field with an integer; negative ones take ten bytes.
fn number(field: u32, value: i64) -> Vec<u8> {
    [varint(u64::from(field << 3)), varint(value as u64)].concat()
}

/// Returns a reference to column `index` of the input.
pub fn field(index: i64) -> Vec<u8> {
    let place = message(&[(2, number(1, index))]);
    message(&[(2, message(&[(1, place)]))])
}

/// Returns a constant string.
pub fn text(text: &str) -> Vec<u8> {
    message(&[(1, message(&[(12, text.as_bytes().to_vec())]))])
}

/// Returns constant bytes.
pub fn bytes(bytes: &[u8]) -> Vec<u8> {
    message(&[(1, message(&[(13, bytes.to_vec())]))])
}

/// Returns a decimal constant of any precision and scale.
pub fn decimal(precision: i64, scale: i64) -> Vec<u8> {
    let value = [message(&[(1, vec![1; 16])]), number(2, precision), number(3, scale)].concat();
    message(&[(1, message(&[(24, value)]))])
}

/// Returns a cast to a decimal of any precision and scale.
pub fn cast_to_decimal(precision: i64, scale: i64, input: Vec<u8>) -> Vec<u8> {
    let decimal = [number(1, scale), number(2, precision)].concat();
    message(&[(11, message(&[(1, message(&[(24, decimal)])), (2, input)]))])
}

/// Returns a call of the function with this anchor.
pub fn call(function: i64, arguments: &[Vec<u8>]) -> Vec<u8> {
    let arguments: Vec<Field> =
        arguments.iter().map(|argument| (4, message(&[(3, argument.clone())]))).collect();
    message(&[(3, [number(1, function), message(&arguments)].concat())])
}

/// Returns the rows of table `t`.
pub fn table() -> Vec<u8> {
    message(&[(1, message(&[(7, message(&[(1, b"t".to_vec())]))]))])
}

/// Returns a filter of the rows of `input`.
pub fn filter(condition: Vec<u8>, input: Vec<u8>) -> Vec<u8> {
    message(&[(2, message(&[(2, input), (3, condition)]))])
}

/// Returns a projection that appends `expressions` to the columns of `input`; `mapping` selects from all of these by
/// index.
pub fn project(expressions: Vec<Vec<u8>>, mapping: Option<Vec<i64>>, input: Vec<u8>) -> Vec<u8> {
    let mut fields: Vec<Field> = Vec::new();
    if let Some(mapping) = mapping {
        let places = mapping.into_iter().flat_map(|place| number(1, place)).collect();
        fields.push((1, message(&[(2, places)])));
    }
    fields.push((2, input));
    fields.extend(expressions.into_iter().map(|expression| (3, expression)));
    message(&[(7, message(&fields))])
}

/// Returns a plan of the relation `top`, with functions that get the anchors from 1 on.
pub fn plan(top: Vec<u8>, functions: &[&str]) -> Request {
    let mut fields = vec![(3, message(&[(1, top)]))];
    for (anchor, name) in (1..).zip(functions) {
        let urn = [number(1, anchor), message(&[(2, b"extension:io.farpool:functions".to_vec())])].concat();
        fields.push((8, urn));
        let declared = [number(4, anchor), number(2, anchor), message(&[(3, name.as_bytes().to_vec())])];
        fields.push((2, message(&[(3, declared.concat())])));
    }
    Request::Execute { plan: message(&fields), schema: None, results: farpool_model::ResultForm::Plain }
}
