//! The XML that is written: elements, whose attributes and texts are escaped.

use std::fmt::{self, Display, Formatter, Write};
use std::path::Path;
use vshmem_base::error::{error, Result};

/// An element of XML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Vec<Content>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Element(Element),
    Text(String),
}

impl Element {
    /// An empty element of this name.
    pub fn new(name: &'static str) -> Element {
        Element { name, attributes: vec![], content: vec![] }
    }

    /// The element with this attribute.
    pub fn with(mut self, name: &'static str, value: impl Display) -> Element {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// The element with this text as its contents.
    pub fn text(mut self, text: impl Display) -> Element {
        self.content.push(Content::Text(text.to_string()));
        self
    }

    /// The element with these elements as its contents.
    pub fn and(mut self, elements: impl IntoIterator<Item = Element>) -> Element {
        self.content.extend(elements.into_iter().map(Content::Element));
        self
    }

    /// The text of a document with this element.
    ///
    /// # Errors
    /// XML has no way to write a character of it.
    pub fn document(&self) -> Result<String> {
        self.check()?;
        Ok(self.to_string())
    }

    fn check(&self) -> Result<()> {
        let values = self.attributes.iter().map(|(_, value)| value);
        values.clone().try_for_each(|value| check(value))?;
        self.content.iter().try_for_each(|content| match content {
            Content::Element(element) => element.check(),
            Content::Text(text) => check(text),
        })
    }

    fn write(&self, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        let (indent, name) = (2 * depth, self.name);
        write!(f, "{:indent$}<{name}", "")?;
        for (name, value) in &self.attributes {
            write!(f, " {name}='{}'", escaped(value))?;
        }
        match &self.content[..] {
            [] => f.write_str("/>\n"),
            [Content::Text(text)] => writeln!(f, ">{}</{name}>", escaped(text)),
            all => {
                f.write_str(">\n")?;
                for content in all {
                    match content {
                        Content::Element(element) => element.write(f, depth + 1)?,
                        Content::Text(text) => f.write_str(&escaped(text))?,
                    }
                }
                writeln!(f, "{:indent$}</{name}>", "")
            }
        }
    }
}

impl Display for Element {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// A text as it stands in XML, between quotation marks as well as between tags. What a reader would take for
/// a mere space stands there by its number.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(out, "&#{};", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out
}

/// An error unless XML 1.0 has all characters of a text (its production 2, Char).
fn check(text: &str) -> Result<()> {
    let is_one = |c: &char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    match text.chars().find(|c| !is_one(c)) {
        None => Ok(()),
        Some(other) => {
            let number = u32::from(other);
            Err(error!("{text:?} can't be written as XML, which has no character U+{number:04X}")
                .hint("Give the file or directory another name."))
        }
    }
}

/// A path as text.
///
/// # Errors
/// It is not UTF-8.
pub fn text_of(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        error!("{} can't be written as XML: it is not UTF-8", path.display())
            .hint("Give the file or directory another name.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn elements_are_written() {
        let inner = [Element::new("a").with("n", 1), Element::new("b").text("x<y")];
        let outer = Element::new("o").with("p", "it's").and(inner);
        assert_eq!(outer.document().unwrap(), "<o p='it&apos;s'>\n  <a n='1'/>\n  <b>x&lt;y</b>\n</o>\n");
    }

    #[test]
    fn what_xml_can_not_say_is_refused() {
        for text in ["\u{1}", "a\u{b}b", "\u{fffe}", "\u{ffff}"] {
            assert!(Element::new("a").with("b", text).document().is_err(), "{text:?}");
            let deep = Element::new("a").and([Element::new("b").text(text)]);
            assert!(deep.document().unwrap_err().to_string().contains("U+"), "{text:?}");
        }
    }

    proptest! {
        /// A parser that is not ours reads what was written.
        #[test]
        fn any_text_comes_back(attribute: String, text: String) {
            let element = Element::new("a").with("b", &attribute).and([Element::new("c").text(&text)]);
            let Ok(written) = element.document() else {
                let is_odd = |c: char| {
                    c < ' ' && !"\t\n\r".contains(c) || matches!(c, '\u{fffe}' | '\u{ffff}')
                };
                let has_odd = (attribute + &text).contains(is_odd);
                prop_assert!(has_odd);
                return Ok(());
            };
            let parsed = roxmltree::Document::parse(&written).unwrap();
            let root = parsed.root_element();
            prop_assert_eq!(root.attribute("b"), Some(attribute.as_str()));
            let inner = root.children().find(|node| node.is_element()).unwrap();
            prop_assert_eq!(inner.text().unwrap_or_default(), &text);
            prop_assert_eq!(root.children().filter(|node| node.is_element()).count(), 1);
        }
    }
}
