//! Sizes as text: `4096`, `64K`, `256M`, `1G`.

/// Reads a size in bytes. K, M, G and T are powers of 1024; a `B` or `iB` may follow.
pub fn parse(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("a size is a number, followed by K, M, G or T".into()),
    };
    if digits.is_empty() {
        return Err("a size begins with a number".into());
    }
    // Of digits alone, only what is too large is no number.
    let number = digits.parse::<u64>().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "that is too large: less than 16777216T can be meant".into())
}

/// Writes a size with the largest unit that leaves it whole, or with one decimal.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let whole = 1u64 << (10 * unit);
    if bytes % whole == 0 {
        format!("{}{}", bytes / whole, UNITS[unit])
    } else {
        format!("{:.1}{}", bytes as f64 / whole as f64, UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64K"), Ok(65536));
        assert_eq!(parse("256m"), Ok(256 << 20));
        assert_eq!(parse("1GiB"), Ok(1 << 30));
        assert_eq!(parse("2 T"), Ok(2 << 40));
        for bad in ["", "M", "1X", "-1", "1.5G", "99999999999T", "0x10"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn too_much_is_no_missing_number() {
        for large in ["18446744073709551616", "99999999999999999999G", "16777216T"] {
            assert!(parse(large).unwrap_err().starts_with("that is too large"), "{large}");
        }
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse("K"), Err("a size begins with a number".into()));
    }

    #[test]
    fn sizes_are_written() {
        assert_eq!(show(0), "0");
        assert_eq!(show(1023), "1023");
        assert_eq!(show(1 << 20), "1M");
        assert_eq!(show(1536), "1.5K");
        assert_eq!(show(u64::MAX), "16777216.0T");
    }
}
