//! Builders of Substrait plans for tests. They write protocol buffers byte by byte, so that a plan may have contents
//! that no honest encoder would produce.

use farpool_wire::Request;

/// A field of a protocol buffer message: the field number, and the encoded value.
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

/// Encodes a protocol buffer message whose fields are all length-delimited.
fn message(fields: &[Field]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, bytes) in fields {
        message.extend(varint(u64::from(number << 3 | 2)));
        message.extend(varint(bytes.len() as u64));
        message.extend_from_slice(bytes);
    }
    message
}

/// Encodes an integer field of a protocol buffer message, as a varint; negative integers take ten bytes.
fn number(field: u32, value: i64) -> Vec<u8> {
    [varint(u64::from(field << 3)), varint(value as u64)].concat()
}

/// Returns an expression that refers to column `index` of the input relation.
pub fn field(index: i64) -> Vec<u8> {
    let place = message(&[(2, number(1, index))]);
    message(&[(2, message(&[(1, place)]))])
}

/// Returns an expression: a string constant.
pub fn text(text: &str) -> Vec<u8> {
    message(&[(1, message(&[(12, text.as_bytes().to_vec())]))])
}

/// Returns an expression: a constant of bytes.
pub fn bytes(bytes: &[u8]) -> Vec<u8> {
    message(&[(1, message(&[(13, bytes.to_vec())]))])
}

/// Returns an expression: a decimal constant of any precision and scale, valid or not.
pub fn decimal(precision: i64, scale: i64) -> Vec<u8> {
    let value = [message(&[(1, vec![1; 16])]), number(2, precision), number(3, scale)].concat();
    message(&[(1, message(&[(24, value)]))])
}

/// Returns an expression: `input` cast to a decimal of any precision and scale, valid or not.
pub fn cast_to_decimal(precision: i64, scale: i64, input: Vec<u8>) -> Vec<u8> {
    let decimal = [number(1, scale), number(2, precision)].concat();
    message(&[(11, message(&[(1, message(&[(24, decimal)])), (2, input)]))])
}

/// Returns an expression: a call of the function with this anchor (id of a function within a plan).
pub fn call(function: i64, arguments: &[Vec<u8>]) -> Vec<u8> {
    let arguments: Vec<Field> =
        arguments.iter().map(|argument| (4, message(&[(3, argument.clone())]))).collect();
    message(&[(3, [number(1, function), message(&arguments)].concat())])
}

/// Returns a Read relation: all rows of table `t`.
pub fn table() -> Vec<u8> {
    message(&[(1, message(&[(7, message(&[(1, b"t".to_vec())]))]))])
}

/// Returns a Filter relation: the rows of `input` for which `condition` is true.
pub fn filter(condition: Vec<u8>, input: Vec<u8>) -> Vec<u8> {
    message(&[(2, message(&[(2, input), (3, condition)]))])
}

/// Returns a Project relation: the columns of `input`, then `expressions`. `mapping` has the indices of those of them
/// that are in the result; `None` for all.
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

/// Returns a request to execute a plan whose root is the relation `top`. The named functions get the anchors 1, 2, and
/// so on.
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
