//! Texts of machines and members, made safe to print on a terminal.

/// Longest line in characters; longer ones are cut.
const LONGEST: usize = 1000;

/// A text as one line of limited length, without what a terminal would interpret.
pub fn printable(text: &str) -> String {
    let spaced = text.replace(['\n', '\t'], " ");
    plain(&spaced).chars().take(LONGEST).collect()
}

/// A text of several lines without what a terminal would interpret: control characters, characters that
/// change the direction of text or break the line, and invisible ones.
pub fn plain(text: &str) -> String {
    text.chars().filter(|&c| matches!(c, '\n' | '\t') || !is_unsafe(c)).collect()
}

fn is_unsafe(c: char) -> bool {
    let is_direction_or_break =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_invisible = matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}');
    c.is_control() || is_direction_or_break || is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed() {
        let nasty = "a\x1b[2Jb\x07\u{9b}c\u{202e}\u{2028}\u{2029}\u{e0041}\u{200b}d\r\ne\tf";
        assert_eq!(printable(nasty), "a[2Jbcd e f");
        assert_eq!(plain(nasty), "a[2Jbcd\ne\tf");
        assert_eq!(printable(&"x".repeat(5000)).len(), LONGEST);
        assert_eq!(printable("\u{fc}mlaut"), "\u{fc}mlaut");
    }
}
