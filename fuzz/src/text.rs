//! Fuzz body that reads untrusted CSV, JSON and Arrow streams.

use farpool_model::{CharacterEncoding, OptionValue, ReadOptions};
use std::io::Cursor;

/// Reads a stream to its end or its first error; the first byte chooses the options. The batches must have
/// the types of the schema that was returned first.
pub fn text_decoder(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let Ok(stream) = farpool_files::open_stream("bytes", Cursor::new(bytes.to_vec()), &options(choice))
    else {
        return;
    };
    let schema = stream.schema.clone();
    for batch in stream.batches() {
        let Ok(batch) = batch else { return };
        assert_eq!(batch.schema(), schema);
        batch.columns().iter().for_each(|column| column.to_data().validate_full().expect("it can be read"));
    }
}

fn options(choice: u8) -> ReadOptions {
    let mut options = ReadOptions::default();
    let flags = ["ignore_errors", "null_padding", "all_varchar"];
    for (bit, name) in flags.into_iter().enumerate() {
        let set = options.set(name, &OptionValue::Flag(choice & (1 << bit) != 0));
        set.expect("there is such an option");
    }
    if choice & 8 != 0 {
        options.sample_rows = Some(1);
    }
    if choice & 16 != 0 {
        options.escape = Some(b'\\');
    }
    if choice & 64 != 0 {
        (options.decimal_separator, options.thousands) = (Some(b','), Some(b'.'));
        (options.date_format, options.timestamp_format) =
            (Some("%d.%m.%Y".to_string()), Some("%d.%m.%Y %H:%M:%S.%f".to_string()));
    }
    if choice & 128 != 0 {
        let of_escape = [CharacterEncoding::Latin1, CharacterEncoding::Utf16];
        options.encoding = Some(of_escape[usize::from(choice & 16 != 0)]);
    }
    options.null_texts = (choice & 32 != 0).then(|| vec!["NA".to_string(), String::new()]);
    options
}
