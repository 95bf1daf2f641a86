//! Computes an upper bound of the memory that decoding a plan takes, from the plan's bytes, before anything is decoded.
//!
//! Messages are nested, and only the decoder knows which fields are messages. Here every length-delimited field is
//! parsed as if it were a message, as far as that is possible, so that at least as many fields are counted as the
//! decoder may find.
//!
//! Invariant: each byte is examined once, and only the ends of the messages around it are held in memory.

use farpool_model::limits::PLAN_LEVELS_MAX;

/// Bytes charged per field. Reason: the largest element of a decoded list has 40 bytes, and while the list grows, both
/// the old one and a new one of twice the capacity exist.
const FIELD_BYTES: usize = 3 * 40;

/// Bytes charged per byte of the plan: for the copy that is decoded from, for strings, and for packed numbers, of which
/// one byte may become four in a list with up to twice the capacity.
const BYTE_BYTES: usize = 8;

/// Returns the maximum bytes of the decoded messages of `plan`, without the expressions that are created from them.
pub(super) fn bytes_to_read(plan: &[u8]) -> usize {
    BYTE_BYTES * plan.len() + FIELD_BYTES * fields(plan)
}

/// Returns the maximum number of fields of the messages in `plan`.
fn fields(plan: &[u8]) -> usize {
    let (mut count, mut at) = (0, 0);
    let mut ends = vec![plan.len()];
    while let Some(end) = ends.last().copied() {
        let field = if at < end { field(&plan[..end], at) } else { None };
        let Some((start, length)) = field else {
            // Either the message ends here, or the bytes are no message after all.
            at = end;
            ends.pop();
            continue;
        };
        count += 1;
        at = start;
        if ends.len() < PLAN_LEVELS_MAX {
            ends.push(start + length);
        } else {
            at += length;
        }
    }
    count
}

/// Returns where the content of the field at `at` starts, and its length (0 for fields that cannot be messages).
/// Returns `None` if there is no valid field.
fn field(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let (tag, start) = varint(bytes, at)?;
    if tag >> 3 == 0 {
        return None;
    }
    let (start, length) = match tag & 7 {
        0 => (varint(bytes, start)?.1, 0),
        1 => (start + 8, 0),
        2 => {
            let (length, start) = varint(bytes, start)?;
            (start, usize::try_from(length).ok()?)
        }
        // A group: the decoder skips its fields, but they are counted here.
        3 | 4 => (start, 0),
        5 => (start + 4, 0),
        _ => return None,
    };
    (length <= bytes.len().checked_sub(start)?).then_some((start, length))
}

/// Decodes the variable-length integer at `at`; returns it and the position after it.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for (place, byte) in bytes.get(at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((number, at + place + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::proto;
    use super::*;
    use bytes::Bytes;
    use prost::Message;

    fn list(options: Vec<Bytes>) -> Vec<u8> {
        proto::SingularOrList { value: Bytes::from_static(&[0xff; 3]), options }.encode_to_vec()
    }

    #[test]
    fn fields_are_counted_on_all_levels() {
        assert_eq!(fields(&[]), 0);
        assert_eq!(fields(&list(vec![Bytes::new(); 5])), 6);
        let inner = Bytes::from(list(vec![Bytes::new(); 2]));
        assert_eq!(fields(&list(vec![inner; 3])), 1 + 3 * (1 + 3));
        let plan = proto::Plan {
            relations: vec![Bytes::from(vec![8, 1, 0x0d, 1, 2, 3, 4])],
            ..proto::Plan::default()
        };
        assert_eq!(fields(&plan.encode_to_vec()), 3);
    }

    #[test]
    fn what_is_no_message_is_passed_over() {
        // Invalid fields: variable-length integers without an end, field number 0, an unknown wire type, a length
        // beyond the end.
        for bad in [&[0xff; 12][..], &[0, 0], &[0x0f, 1], &[0x0a, 5, 1], &[0x09, 1], &[0x0d]] {
            let options = vec![Bytes::copy_from_slice(bad), Bytes::new()];
            assert_eq!(fields(&list(options)), 3, "{bad:?}");
        }
    }

    #[test]
    fn messages_within_one_another_are_not_walked_into_without_end() {
        let mut nested = Vec::new();
        for _ in 0..2 * PLAN_LEVELS_MAX {
            nested = list(vec![Bytes::from(nested)]);
        }
        assert!(
            (PLAN_LEVELS_MAX - 2..=2 * PLAN_LEVELS_MAX).contains(&fields(&nested)),
            "{}",
            fields(&nested)
        );
    }
}
