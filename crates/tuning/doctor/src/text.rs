//! Texts of the kernel: a word that is chosen of several, a number after a name.

/// The word in brackets, or all of it if there are none.
pub fn chosen(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word)
}

/// A number after a name.
pub fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([':', ' ', '\t']).then(|| rest.trim_start_matches(':'))
    })?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_found() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("acpi_pm"), "acpi_pm");
        assert_eq!(number("MemTotal:  12 kB\nMemFree: 7 kB", "MemFree"), Some(7));
        assert_eq!(number("pswpin 3", "pswpin"), Some(3));
        assert_eq!(number("pswpinx 3", "pswpin"), None);
    }
}
