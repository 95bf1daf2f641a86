//! Tests LIKE patterns of literal strings and `%` against Arrow's kernel.

use arrow_array::{Scalar, StringViewArray};
use farpool_model::LikePieces;

#[test]
fn pieces_match_as_arrow_does() {
    let texts = ["", "a", "ab", "aab", "abab", "axbxab", "b", "%", "a%b", "é", "aéb", "a\\", "ab\nab", "aaa"];
    let parts = ["", "a", "b", "ab", "%", "%%", "\\%", "\\a", "é", "\\"];
    let array = StringViewArray::from(texts.to_vec());
    for (x, y, z) in parts.iter().flat_map(|x| parts.iter().flat_map(move |y| parts.map(|z| (x, y, z)))) {
        for pattern in [format!("{x}{y}{z}"), format!("%{x}%{y}%{z}"), format!("{x}%{y}%{z}%")] {
            let scalar = Scalar::new(StringViewArray::from(vec![pattern.as_str()]));
            let expected = arrow_string::like::like(&array, &scalar).unwrap();
            let pieces = LikePieces::of(&pattern).unwrap();
            for (row, text) in texts.iter().enumerate() {
                assert_eq!(pieces.is_match(text.as_bytes()), expected.value(row), "{text} LIKE {pattern}");
            }
        }
    }
    assert!(LikePieces::of("a_b").is_none() && LikePieces::of("a\\_b").is_some());
}
