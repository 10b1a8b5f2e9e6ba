//! What a description says of an image: a path, a name such as `debian/12`, or an address.

use super::digest::Digest;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Result};

/// An image as a description says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A file of this host.
    Path(PathBuf),
    /// A name, which the table knows or not.
    Name(String),
    /// An address.
    Address(Address),
}

/// The address of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where it is.
    pub place: Place,
    /// What its bytes must be.
    pub digest: Option<Digest>,
}

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On a server, with this URL.
    Server(String),
    /// In a file of this host, which is used where it lies.
    File(PathBuf),
}

/// What begins the address of a file.
const FILE: &str = "file:";
const HTTPS: &str = "https://";
const HTTP: &str = "http://";

impl Reference {
    /// Reads what a description says. A server that can't be known to be the right one takes a checksum.
    ///
    /// # Errors
    /// If it is an address that can't be used.
    pub fn parse(text: &Path) -> Result<Reference> {
        let path = || Ok(Reference::Path(text.into()));
        let Some(said) = text.to_str() else {
            return path();
        };
        if is_name(said) {
            return Ok(Reference::Name(said.into()));
        }
        if !said.starts_with(FILE) && !said.contains("://") {
            return path();
        }
        let address = Address::parse(said)?;
        if said.starts_with(HTTP) && address.digest.is_none() {
            return Err(error!("{said} may be anybody's: by http, an image needs a checksum")
                .hint("Put it behind the address, as #sha512=HEX or #sha256=HEX. Or use https.")
                .code(2));
        }
        Ok(Reference::Address(address))
    }
}

impl Address {
    /// Reads an address, with or without a checksum.
    pub fn parse(said: &str) -> Result<Address> {
        let (place, fragment) = said.split_once('#').map_or((said, None), |(it, rest)| (it, Some(rest)));
        let digest = fragment.map(|fragment| {
            let named = fragment
                .split_once('=')
                .and_then(|(kind, hex)| Digest::parse(hex).filter(|it| it.kind() == kind));
            named.ok_or_else(|| {
                error!("{said}: what follows '#' is no checksum")
                    .hint("It is sha512= and 128 hexadecimal digits, or sha256= and 64.")
                    .code(2)
            })
        });
        let digest = digest.transpose()?;
        if let Some(file) = place.strip_prefix(FILE) {
            let path = file.strip_prefix("//localhost/").or_else(|| file.strip_prefix("///"));
            let path = path.map_or_else(|| PathBuf::from(file), |below| Path::new("/").join(below));
            return Ok(Address { place: Place::File(path), digest });
        }
        match place.starts_with(HTTPS) || place.starts_with(HTTP) {
            true => Ok(Address { place: Place::Server(place.into()), digest }),
            false => Err(error!("{said} is no address from which images can be had")
                .hint("It begins with https://, http:// or file:.")
                .code(2)),
        }
    }
}

/// Whether it is a name: words and a version, as `debian/12`. A path of this form is written `./debian/12`.
pub fn is_name(text: &str) -> bool {
    let Some((distribution, version)) = text.split_once('/') else {
        return false;
    };
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    distribution.starts_with(|c: char| c.is_ascii_lowercase())
        && distribution.chars().all(word)
        && version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// The same image, said so that it does not depend on the directory in which a description lies.
pub fn beside(image: &Path, resolved: impl Fn(&Path) -> PathBuf) -> PathBuf {
    let Some(said) = image.to_str() else {
        return resolved(image);
    };
    if is_name(said) || said.contains("://") {
        return image.into();
    }
    match said.strip_prefix(FILE) {
        Some(file) => PathBuf::from(format!("{FILE}{}", resolved(Path::new(file)).display())),
        None => resolved(image),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference> {
        Reference::parse(Path::new(text))
    }

    #[test]
    fn paths_stay_paths() {
        for path in
            ["debian.qcow2", "./debian/12", "images/debian.qcow2", "/debian/12", "debian/", "d/12a", "D/12"]
        {
            assert_eq!(parse(path).unwrap(), Reference::Path(path.into()), "{path}");
        }
    }

    #[test]
    fn names_are_a_distribution_and_a_version() {
        for name in ["debian/12", "ubuntu/24.04", "my-site/1"] {
            assert_eq!(parse(name).unwrap(), Reference::Name(name.into()));
        }
    }

    #[test]
    fn addresses_have_a_checksum_or_not() {
        let hex = "0123456789abcdef".repeat(4);
        let at = |text: &str| match parse(text).unwrap() {
            Reference::Address(address) => address,
            other => panic!("{text}: {other:?}"),
        };
        let plain = at("https://x.org/a.img?b=c");
        assert_eq!(plain, Address { place: Place::Server("https://x.org/a.img?b=c".into()), digest: None });
        let checked = at(&format!("http://x.org/a.img#sha256={hex}"));
        assert_eq!(checked.place, Place::Server("http://x.org/a.img".into()));
        assert_eq!(checked.digest, Digest::parse(&hex));
        for text in ["file:/a/b", "file:///a/b", "file://localhost/a/b"] {
            assert_eq!(at(text).place, Place::File("/a/b".into()), "{text}");
        }
        assert_eq!(at("file:b").place, Place::File("b".into()));
    }

    #[test]
    fn addresses_that_can_not_be_used_say_why() {
        let hex = "0123456789abcdef".repeat(4);
        for (text, why) in [
            ("http://x.org/a.img".into(), "by http, an image needs a checksum"),
            ("https://x.org/a.img#part".into(), "no checksum"),
            (format!("https://x.org/a.img#sha512={hex}"), "no checksum"),
            (format!("file:/a#sha256={}", &hex[1..]), "no checksum"),
            ("ftp://x.org/a.img".into(), "no address from which"),
        ] {
            let said = parse(&text).unwrap_err();
            assert!(said.to_string().contains(why) && said.exit_code() == 2, "{text}: {said}");
        }
    }

    #[test]
    fn only_paths_begin_beside_a_file() {
        let beside = |text: &str| beside(Path::new(text), |path| Path::new("/d").join(path));
        assert_eq!(beside("a.img"), Path::new("/d/a.img"));
        assert_eq!(beside("file:a.img#x"), Path::new("file:/d/a.img#x"));
        for text in ["debian/12", "https://x.org/a", "file:///a", "file:/a", "/a"] {
            assert_eq!(beside(text), Path::new(text));
        }
    }
}
