//! Parses and formats sizes in bytes for people.

use farpool_model::{Error, Result};

/// Unit suffixes with their bytes. Longer ones come first, because `kib` also ends in `b`.
const UNITS: [(&str, u64); 13] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("b", 1),
];

/// Returns the bytes of a size such as `4GiB`, `1.5 GiB`, `512MB` or `1048576`.
///
/// # Errors
/// `Invalid` for anything else, for less than one byte, and for 1 EiB or more.
pub fn parse_size(text: &str) -> Result<usize> {
    let refused = |why: &str| {
        Err(Error::invalid(format!("{text:?} is not a size: {why}")).advise("write 512MiB, 4GiB or 1GB"))
    };
    let lower = text.trim().to_ascii_lowercase();
    let unit = UNITS.iter().find(|(suffix, _)| lower.ends_with(suffix));
    let (digits, factor) = unit.map_or((lower.as_str(), 1), |(suffix, factor)| {
        (lower[..lower.len() - suffix.len()].trim_end(), *factor)
    });
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let Some(number) = digits.parse::<f64>().ok().filter(|_| plain) else {
        return refused("a number and a unit are expected");
    };
    let bytes = number * factor as f64;
    if bytes < 1.0 {
        return refused("it is zero");
    }
    if bytes >= (1u64 << 60) as f64 {
        return refused("no machine has that much");
    }
    Ok(bytes as usize)
}

/// Formats `bytes` in MiB or GiB with one digit, as in `1.5 GiB`. Sizes that would read as zero MiB are in KiB or
/// bytes.
pub fn size_text(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let bytes_float = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..104_858 => format!("{:.1} KiB", bytes_float / KIB),
        104_858..1_073_741_824 => format!("{:.1} MiB", bytes_float / (KIB * KIB)),
        _ => format!("{:.1} GiB", bytes_float / (KIB * KIB * KIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in [
            ("4GiB", 4usize << 30),
            ("512MiB", 512 << 20),
            ("1GB", 1_000_000_000),
            ("1.5 gib", 3 << 29),
            ("2g", 2 << 30),
            ("64k", 64 << 10),
            ("1048576", 1 << 20),
            ("100B", 100),
        ] {
            assert_eq!(parse_size(text).unwrap(), expected, "{text}");
        }
        for text in ["", "GiB", "-1GiB", "4 potatoes", "0", "1e9", "nan", "inf", "1.2.3MiB", "9999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_reads_in_the_unit_of_its_magnitude() {
        let cases = [(12, "12 B"), (2048, "2.0 KiB"), (2 << 20, "2.0 MiB"), (512 << 20, "512.0 MiB")];
        cases.into_iter().for_each(|(bytes, text)| assert_eq!(size_text(bytes), text));
        assert_eq!(size_text(3 << 29), "1.5 GiB");
    }
}
