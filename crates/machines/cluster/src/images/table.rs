//! The images that have a name. Those that are built in can be replaced, and others added, by files: of the
//! site, of the user, and of the environment.

use super::reference::{is_name, Address};
use crate::description::file::located;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Explain, Result};

/// The names that are built in.
const KNOWN: &str = include_str!("known.toml");
/// The site's file.
const SITE: &str = "/etc/vshmem/images.toml";
/// The user's file, in the directory of the user's configuration.
const OWN: &str = "vshmem/images.toml";
/// The variable that names a further file.
const VARIABLE: &str = "VSHMEM_IMAGES";

/// Images by their names.
#[derive(Debug, Default)]
pub struct Table(BTreeMap<String, Entry>);

/// An image that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is, and what its bytes must be, if the table says that.
    pub address: Address,
    /// The address of a list with its checksum.
    pub checksums: Option<String>,
}

/// An entry as files have it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    address: String,
    checksums: Option<String>,
}

impl Table {
    /// What is built in, and what this host's files say.
    ///
    /// # Errors
    /// If a file can't be read, or is wrong.
    pub fn read() -> Result<Table> {
        let mut table = Table::default();
        table.add("the built-in table", KNOWN)?;
        for path in [Some(SITE.into()), own()].into_iter().flatten() {
            match fs::read_to_string(&path) {
                Ok(text) => table.add(&path.display().to_string(), &text)?,
                Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => (),
                Err(why) => return Err(error!("could not read {}: {why}", path.display())),
            }
        }
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            let path = Path::new(&path);
            let text = fs::read_to_string(path)
                .explain(|| format!("could not read {}, which {VARIABLE} names", path.display()))?;
            table.add(&path.display().to_string(), &text)?;
        }
        Ok(table)
    }

    /// The image of a name.
    ///
    /// # Errors
    /// If there is none; it says which there are.
    pub fn find(&self, name: &str) -> Result<&Entry> {
        self.0.get(name).ok_or_else(|| {
            error!("no image is called {name}")
                .hint(format!(
                    "Those that have a name are {}; {SITE} can name others. A file of this name is ./{name}.",
                    self.names().collect::<Vec<_>>().join(", ")
                ))
                .code(2)
        })
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds the entries of a file, in the place of those that have their names.
    fn add(&mut self, file: &str, text: &str) -> Result<()> {
        let entries: BTreeMap<toml::Spanned<String>, Written> = toml::from_str(text)
            .map_err(|wrong| located(file, text, wrong.span().unwrap_or(0..0), wrong.message()).code(2))?;
        for (name, written) in entries {
            let span = name.span();
            let name = name.into_inner();
            let entry = match is_name(&name) {
                true => written.entry(),
                false => {
                    Err(error!("{name:?} can't be an image's name: it is words and a version, as debian/12"))
                }
            };
            let entry = entry.map_err(|why| located(file, text, span, &why.to_string()).code(2))?;
            self.0.insert(name, entry);
        }
        Ok(())
    }
}

impl Written {
    fn entry(self) -> Result<Entry> {
        let address = Address::parse(&self.address)?;
        match (&self.checksums, &address.digest) {
            (Some(_), Some(_)) => Err(error!("checksums are named twice: behind the address, and in a list")),
            (Some(list), None) => match Address::parse(list)? {
                Address { digest: None, .. } => Ok(Entry { checksums: self.checksums, address }),
                _ => Err(error!("a list of checksums has none itself")),
            },
            (None, _) => Ok(Entry { checksums: None, address }),
        }
    }
}

fn own() -> Option<PathBuf> {
    let set = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    set.or_else(home).map(|directory| directory.join(OWN))
}

#[cfg(test)]
mod tests {
    use super::super::reference::Place;
    use super::*;

    fn table(text: &str) -> Result<Table> {
        let mut table = Table::default();
        table.add("known", KNOWN)?;
        table.add("i.toml", text).map(|()| table)
    }

    #[test]
    fn what_is_built_in_is_had_by_https_and_checked() {
        let table = table("").unwrap();
        assert_eq!(table.names().collect::<Vec<_>>(), ["debian/12", "debian/13", "ubuntu/24.04"]);
        for entry in table.0.values() {
            let Place::Server(url) = &entry.address.place else { panic!("{entry:?}") };
            let list = entry.checksums.as_ref().unwrap();
            assert!(url.starts_with("https://") && list.starts_with("https://"));
            assert_eq!(url.rsplit_once('/').unwrap().0, list.rsplit_once('/').unwrap().0, "one directory");
        }
    }

    #[test]
    fn a_site_replaces_and_adds() {
        let text = "['debian/12']\naddress = 'http://mirror/d.img'\nchecksums = 'http://mirror/SUMS'\n['our/1']\naddress = 'file:/srv/our.img'\n";
        let table = table(text).unwrap();
        assert_eq!(table.find("debian/12").unwrap().checksums.as_deref(), Some("http://mirror/SUMS"));
        assert_eq!(table.find("our/1").unwrap().address.place, Place::File("/srv/our.img".into()));
        let why = table.find("debian/99").unwrap_err();
        let said = why.to_string();
        assert!(said.contains("debian/12, debian/13, our/1, ubuntu/24.04") && why.exit_code() == 2, "{said}");
    }

    #[test]
    fn what_the_guide_shows_is_right() {
        let guide = include_str!("../../../../../docs/guide-images.md");
        let block = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let names: Vec<_> = table(block).unwrap().0.into_keys().collect();
        assert_eq!(names, ["debian/12", "debian/13", "our/3", "ubuntu/24.04"]);
    }

    #[test]
    fn mistakes_have_a_place() {
        let hex = "a".repeat(64);
        for (text, said) in [
            ("['debian/12']\nadress = 'x'\n".to_owned(), "i.toml:2:1: unknown field"),
            ("['debian/12']\n".into(), "i.toml:1:1: missing field `address`"),
            ("['Debian']\naddress = 'https://x'\n".into(), "i.toml:1:2: \"Debian\" can't be an image's name"),
            ("['d/1']\naddress = 'x.img'\n".into(), "i.toml:1:2: x.img is no address"),
            (
                format!("['d/1']\naddress = 'https://x#sha256={hex}'\nchecksums = 'https://x/S'\n"),
                "i.toml:1:2: checksums are named twice",
            ),
        ] {
            let why = table(&text).unwrap_err().to_string();
            assert!(why.starts_with(said), "{why}");
        }
    }
}
