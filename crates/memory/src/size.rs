//! Sizes as people read them.

/// `bytes` in MiB or GiB with one digit, as in `1.5 GiB`; bytes and KiB where a MiB would read as zero.
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
    use super::size_text;

    #[test]
    fn a_size_reads_in_the_unit_of_its_magnitude() {
        let cases = [(12, "12 B"), (2048, "2.0 KiB"), (2 << 20, "2.0 MiB"), (512 << 20, "512.0 MiB")];
        cases.into_iter().for_each(|(bytes, text)| assert_eq!(size_text(bytes), text));
        assert_eq!(size_text(3 << 29), "1.5 GiB");
    }
}
