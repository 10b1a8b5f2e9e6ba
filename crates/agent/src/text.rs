//! Texts of others, before they go to a terminal.

/// Longer ones are cut off.
const LONGEST: usize = 1000;

/// What a machine or a member of a pool has said, on one line, and not too long, without what a terminal would obey.
pub fn printable(text: &str) -> String {
    let spaced = text.replace(['\n', '\t'], " ");
    plain(&spaced).chars().take(LONGEST).collect()
}

/// A text of several lines without what a terminal would obey: control characters, and those that turn the direction of what follows.
pub fn plain(text: &str) -> String {
    text.chars()
        .filter(|&c| matches!(c, '\n' | '\t') || !is_order(c))
        .collect()
}

fn is_order(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_orders() {
        let nasty = "a\x1b[2Jb\x07\u{9b}c\u{202e}d\r\ne\tf";
        assert_eq!(printable(nasty), "a[2Jbcd e f");
        assert_eq!(plain(nasty), "a[2Jbcd\ne\tf");
        assert_eq!(printable(&"x".repeat(5000)).len(), LONGEST);
        assert_eq!(printable("\u{fc}mlaut"), "\u{fc}mlaut");
    }
}
