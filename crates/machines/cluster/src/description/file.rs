//! The file of a cluster's description, in TOML. A mistake is reported with its line and column, and the
//! line itself.

use super::cluster::Description;
use super::fault::Fault;
use super::machines::{HOST, SLIM};
use crate::images::reference;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use toml::de::{DeTable, DeValue};
use vshmem_base::error::{error, Error, Explain, Result};

/// The words that stand for an image, and are neither paths nor names.
const IMAGE_WORDS: [&str; 2] = [HOST, SLIM];
/// Bytes of a line that are shown.
const MAX_SHOWN: usize = 120;
/// Similarity, from 0 to 1, that a key must have to an unknown one to be suggested.
const MIN_SIMILARITY: f64 = 0.75;

/// A file that describes a cluster.
#[derive(Debug)]
pub struct File {
    /// As messages name it.
    name: String,
    text: String,
    /// The description. Its paths no longer depend on the file's directory.
    pub description: Description,
}

impl File {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<File> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path)
            .explain(|| format!("could not read {name}"))
            .map_err(|error| error.code(2))?;
        let beside = path.parent().unwrap_or(Path::new(""));
        let here = std::env::current_dir().explain(|| "there is no current directory".into())?;
        File::parse(name, text, &here.join(beside))
    }

    /// Reads a text; relative paths in it begin in `directory`.
    pub fn parse(name: String, text: String, directory: &Path) -> Result<File> {
        match toml::from_str::<Description>(&text) {
            Ok(mut description) => {
                description.resolve_paths(directory);
                Ok(File { name, text, description })
            }
            Err(refused) => {
                let why = refused.message();
                let span = refused.span().unwrap_or(0..0);
                Err(located(&name, &text, span, &format!("{why}{}", suggestion(why))).code(2))
            }
        }
    }

    /// The error for a mistake in the description, with its place in the file.
    pub fn explain(&self, fault: Fault) -> Error {
        let code = fault.error.exit_code();
        // A mistake in what the command line has added is nowhere in the file.
        match span_of(&self.text, &fault.at) {
            Some(span) => located(&self.name, &self.text, span, &fault.error.to_string()).code(code),
            None => fault.error,
        }
    }
}

impl Description {
    /// Makes paths independent of the current directory: relative ones begin in `directory`.
    fn resolve_paths(&mut self, directory: &Path) {
        let resolved_path = |path: &Path| resolved_path(path, directory);
        self.kernel = self.kernel.as_deref().map(resolved_path);
        self.driver = self.driver.take().map(|path| match path.as_os_str() == "none" {
            true => path,
            false => resolved_path(&path),
        });
        for group in &mut self.machines {
            let is_path = |image: &&mut PathBuf| !IMAGE_WORDS.iter().any(|word| image.as_os_str() == *word);
            if let Some(image) = group.image.as_mut().filter(is_path) {
                *image = reference::beside(image, resolved_path);
            }
            for file in [&mut group.kernel, &mut group.initramfs].into_iter().flatten() {
                *file = resolved_path(file);
            }
        }
        for share in &mut self.shares {
            *share = resolved_path(Path::new(share)).to_string_lossy().into_owned();
        }
        for host in self.pools.values_mut().filter_map(|pool| pool.host.as_mut()) {
            if host.contains('/') {
                *host = resolved_path(Path::new(host)).to_string_lossy().into_owned();
            }
        }
    }
}

/// A path that does not depend on the current directory. A leading `~` is the home directory.
fn resolved_path(path: &Path, directory: &Path) -> PathBuf {
    let mut parts = path.components();
    let home = std::env::var_os("HOME").filter(|_| parts.next() == Some(Component::Normal("~".as_ref())));
    match home {
        Some(home) => Path::new(&home).join(parts.as_path()),
        None => directory.join(path),
    }
}

/// The place of the value to which keys lead, as far as they do; `None` if not even the first one is there.
fn span_of(text: &str, keys: &[String]) -> Option<Range<usize>> {
    let top = DeTable::parse(text).ok()?;
    let (first, rest) = keys.split_first()?;
    let mut found = top.get_ref().get(first.as_str())?;
    for key in rest {
        let next = match found.get_ref() {
            DeValue::Table(table) => table.get(key.as_str()),
            DeValue::Array(items) => key.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    Some(found.span())
}

/// An error with the place of a part of a text, and its line.
pub(crate) fn located(name: &str, text: &str, span: Range<usize>, why: &str) -> Error {
    let start = floor(text, span.start);
    let before = &text[..start];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    let (number, column) = (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1);
    let marked = text[start..floor(text, span.end.max(start))].lines().next().unwrap_or_default();
    // Tabs stay, so that the marks stand below the marked text.
    let indent: String = before[line_start..].chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
    let marks = "^".repeat(marked.chars().count().max(1));
    let (what, hint) = why.split_once('\n').unwrap_or((why, ""));
    let mut shown = format!("{number} | {}\n", vshmem_base::plain(line));
    let gutter = " ".repeat(number.to_string().len());
    let _ = write!(shown, "  {gutter} | {indent}{marks}");
    if line.chars().count() > MAX_SHOWN || line.is_empty() {
        shown.clear();
    }
    if !hint.is_empty() {
        let _ = write!(shown, "{}{}", if shown.is_empty() { "" } else { "\n  " }, hint.trim_start());
    }
    let placed = error!("{name}:{number}:{column}: {what}");
    if shown.is_empty() {
        placed
    } else {
        placed.hint(shown)
    }
}

/// The nearest place in a text, not after this one, at which a character begins.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// For an unknown key: the one that may have been meant. The message names it first, and then all that there
/// are.
fn suggestion(why: &str) -> String {
    if why == "invalid type: map, expected a sequence" {
        return "\nA table of a list has two brackets: [[machines]].".into();
    }
    let mut words = why.split('`').skip(1).step_by(2);
    let Some(unknown) = words.next().filter(|_| why.starts_with("unknown field")) else {
        return String::new();
    };
    let alike = |key: &str| strsim::jaro_winkler(unknown, key);
    let best = words.max_by(|one, other| alike(one).total_cmp(&alike(other)));
    match best.filter(|best| alike(best) >= MIN_SIMILARITY) {
        Some(best) => format!("\nDid you mean {best}?"),
        None if is_of_all(unknown) => {
            format!("\nAll machines have the same {unknown}: say it above the tables.")
        }
        None => String::new(),
    }
}

/// Whether it is a key of the whole file.
fn is_of_all(key: &str) -> bool {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let refused = toml::from_str::<Description>(&format!("{key} = 0")).err();
    plain && !refused.is_some_and(|why| why.message().starts_with("unknown field"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File> {
        File::parse("c.toml".into(), text.into(), Path::new("/d"))
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_have_a_place() {
        assert_eq!(
            refused("[[machines]]\n\tcpu = 2\n"),
            "c.toml:2:2: unknown field `cpu`, expected one of `name`, `count`, `cpus`, `memory`, `pages`, `devices`, \
             `image`, `kernel`, `initramfs`, `parameters`\n  \
             2 | \tcpu = 2\n    | \t^^^\n  Did you mean cpus?"
        );
        let why = refused("[[machines]]\nvia = 'x'\n");
        assert!(
            why.starts_with("c.toml:2:1: ") && why.ends_with("same via: say it above the tables."),
            "{why}"
        );
        assert!(refused("[[machines]]\nnovia = 1\n").ends_with("^^^^^"));
        assert!(refused("[[machines]]\nmemory = \"5X\"\n").starts_with("c.toml:2:10: a size is a number"));
        assert!(refused("network = 1")
            .contains("c.toml:1:11: invalid type: integer `1`, expected a boolean or a table"));
        assert!(refused("[machines]\ncount = 1\n").ends_with("two brackets: [[machines]]."));
        assert!(refused("a = [\n").starts_with("c.toml:"));
        assert!(refused("pools = 5").starts_with("c.toml:1:9: invalid type"));
        assert!(!refused("zzz = 1").contains("Did you mean"));
        let long = refused(&format!("name = [\"{}\"]", "x".repeat(MAX_SHOWN)));
        assert!(!long.contains("xxx") && long.starts_with("c.toml:1:8: "), "{long}");
    }

    #[test]
    fn mistakes_of_meaning_have_a_place_too() {
        let file =
            parse("# ü\nname = \"ü\"\n[[machines]]\n[[machines]]\ncpus = 0\n[pools.a]\nsize = 3\n").unwrap();
        let place = |at: &[&str]| {
            let said = file.explain(Fault::new(at, "wrong")).to_string();
            said.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(place(&["machines", "1", "cpus"]), "c.toml:5:8: wrong");
        assert_eq!(place(&["pools", "a", "size"]), "c.toml:7:8: wrong");
        assert_eq!(place(&["name"]), "c.toml:2:8: wrong");
        // What the file does not say is where it would be said.
        assert_eq!(place(&["machines", "1", "memory"]), "c.toml:4:1: wrong");
        assert_eq!(place(&["kernel"]), "wrong");
        let hinted = Error::new("wrong").hint("Do this.").code(2);
        let said = file.explain(Fault::because(&["name"], hinted));
        assert!(said.to_string().ends_with("| name = \"ü\"\n    |        ^^^\n  Do this."), "{said}");
        assert_eq!(said.exit_code(), 2);
    }

    #[test]
    fn paths_begin_beside_the_file() {
        let text = "kernel = \"k\"\ndriver = \"none\"\nshares = [\"a:rw\", \"/b\"]\n[pools.x]\nhost = \"work\"\n[pools.y]\nhost = \"./work\"";
        let said = parse(text).unwrap().description;
        assert_eq!(said.kernel.as_deref(), Some(Path::new("/d/k")));
        assert_eq!(said.driver.as_deref(), Some(Path::new("none")));
        assert_eq!(said.shares, ["/d/a:rw", "/b"]);
        assert_eq!(said.pools["x"].host.as_deref(), Some("work"));
        assert_eq!(said.pools["y"].host.as_deref(), Some("/d/./work"));
        let home = resolved_path(Path::new("~/x"), Path::new("/d"));
        assert_eq!(Some(home), std::env::var_os("HOME").map(|home| Path::new(&home).join("x")));
    }
}
