//! Texts of others, before they go to a terminal.

/// Longer ones are cut off.
const LONGEST: usize = 1000;

/// What a machine or a member of a pool has said, on one line, and not too long, without what a terminal would obey.
pub fn printable(text: &str) -> String {
    let spaced = text.replace(['\n', '\t'], " ");
    plain(&spaced).chars().take(LONGEST).collect()
}

/// A text of several lines without what a terminal would obey: control characters, those that turn the direction of what follows or break the
/// line, and those that are not seen.
pub fn plain(text: &str) -> String {
    text.chars()
        .filter(|&c| matches!(c, '\n' | '\t') || !is_order(c))
        .collect()
}

fn is_order(c: char) -> bool {
    let turns_or_breaks =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_unseen = matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}');
    c.is_control() || turns_or_breaks || is_unseen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_orders() {
        let nasty = "a\x1b[2Jb\x07\u{9b}c\u{202e}\u{2028}\u{2029}\u{e0041}\u{200b}d\r\ne\tf";
        assert_eq!(printable(nasty), "a[2Jbcd e f");
        assert_eq!(plain(nasty), "a[2Jbcd\ne\tf");
        assert_eq!(printable(&"x".repeat(5000)).len(), LONGEST);
        assert_eq!(printable("\u{fc}mlaut"), "\u{fc}mlaut");
    }
}
