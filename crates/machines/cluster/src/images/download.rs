//! Getting an image: what comes is kept in a file `.partial`, from which the next try goes on. It gets its
//! name once its checksum is right.

use super::curl::{self, Transfer};
use super::digest::Digest;
use super::reference::{Address, Place};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::{is_at, lock_file};
use vshmem_base::size;

/// The end of the names of images in the cache.
pub const ENDING: &str = ".img";

/// Progress of getting images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A message for the user.
    Message(String),
    /// Something that the user should know.
    Warning(String),
    /// So many bytes of an image have come, of so many if that is known.
    Part {
        /// Bytes that have come.
        done: u64,
        /// Bytes of the image.
        total: Option<u64>,
    },
}

/// An image that is to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// As the user said it.
    pub said: String,
    /// Where it is.
    pub url: String,
    /// The beginning of its file's name in the cache.
    pub stem: String,
    /// What its bytes must be.
    pub expected: Expected,
}

/// What an image's bytes must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// They have this checksum.
    Digest(Digest),
    /// They have the checksum of a list at this address.
    Listed(String),
    /// Nobody says. This tells it from other images: the checksum of its address.
    Unknown(Digest),
}

impl Wanted {
    /// As messages name it: without the checksum.
    pub fn name(&self) -> &str {
        self.said.split('#').next().unwrap_or(&self.said)
    }
}

/// The name that an image has in the cache.
pub fn file_name(stem: &str, digest: &Digest) -> String {
    format!("{stem}{}{}", digest.short(), ENDING)
}

/// Has an image in this directory; its path.
///
/// # Errors
/// If it can't be had, its checksum is wrong, or the user asks to stop.
pub fn download(wanted: &Wanted, directory: &Path, tell: &mut dyn FnMut(Step)) -> Result<PathBuf> {
    let (digest, name) = match &wanted.expected {
        Expected::Digest(digest) => (Some(digest.clone()), digest.clone()),
        Expected::Listed(list) => {
            let digest = listed(wanted, list)?;
            (Some(digest.clone()), digest)
        }
        Expected::Unknown(name) => (None, name.clone()),
    };
    let path = directory.join(file_name(&wanted.stem, &name));
    let partial = path.with_extension("partial");
    let held = lock(&partial, wanted.name(), tell)?;
    if path.exists() {
        // Another command has just had it.
        let _ = fs::remove_file(&partial);
        return Ok(path);
    }
    transfer(wanted, &partial, digest.as_ref(), tell)?;
    // A name stands for all of it, even if the host's power fails now.
    held.sync_all().explain(|| format!("could not write {}", partial.display()))?;
    fs::rename(&partial, &path).explain(|| format!("could not make {}", path.display()))?;
    match digest {
        Some(digest) => tell(Step::Message(format!("{} is here, and its {} is right", wanted.name(), digest.kind()))),
        None => tell(Step::Warning(format!(
            "{} has not been checked: nothing says what its bytes must be. #sha256=HEX or #sha512=HEX behind the \
             address does",
            wanted.name()
        ))),
    }
    Ok(path)
}

/// The checksum that the distribution publishes.
fn listed(wanted: &Wanted, list: &str) -> Result<Digest> {
    let text = match Address::parse(list)?.place {
        Place::Server(url) => {
            curl::text(&url).map_err(|why| unreachable(wanted, &url, &why.to_string(), 0))?
        }
        Place::File(path) => {
            fs::read_to_string(&path).explain(|| format!("could not read {}", path.display()))?
        }
    };
    let name = wanted.url.rsplit('/').next().unwrap_or_default();
    Digest::in_list(&text, name).ok_or_else(|| {
        error!("{list} has no checksum of {name}, so {} is not downloaded", wanted.name()).hint(
            "The image may have moved. Name another address in /etc/vshmem/images.toml, or download the image by \
             other means and name the file.",
        )
    })
}

/// Takes the lock of a file, which whoever downloads an image holds.
fn lock(partial: &Path, said: &str, tell: &mut dyn FnMut(Step)) -> Result<File> {
    let mut is_told = false;
    loop {
        match lock_file(partial, false)? {
            // The holder before may have renamed or removed it since it was opened.
            Some(file) if is_at(&file, partial) => return Ok(file),
            Some(_) => (),
            None => {
                interrupt::check()?;
                if !std::mem::replace(&mut is_told, true) {
                    tell(Step::Message(format!(
                        "another vshmem command downloads {said}; this one waits for it"
                    )));
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

/// Fills the file, from where an earlier try ended, until it has the checksum.
fn transfer(
    wanted: &Wanted,
    partial: &Path,
    digest: Option<&Digest>,
    tell: &mut dyn FnMut(Step),
) -> Result<()> {
    let (said, url) = (wanted.name(), &wanted.url);
    let mut begun = length(partial);
    // Without a checksum nobody could tell whether two parts belong together.
    if begun > 0 && digest.is_none() {
        empty(partial)?;
        begun = 0;
    }
    let from = if begun > 0 { format!("; {} of it are here", size::show(begun)) } else { String::new() };
    let place = if said == url.as_str() { String::new() } else { format!(" from {url}") };
    tell(Step::Message(format!("downloading {said}{place}{from}")));
    loop {
        let came = curl::append(url, partial, &mut |done, total| tell(Step::Part { done, total }))?;
        if let Transfer::Failed(why) = came {
            let kept = if digest.is_some() { length(partial) } else { 0 };
            if kept == 0 {
                let _ = fs::remove_file(partial);
            }
            return Err(unreachable(wanted, url, &why, kept));
        }
        let Some(expected) = digest else {
            return Ok(());
        };
        let is = expected.of_file(partial)?;
        interrupt::check()?;
        if is == *expected {
            return Ok(());
        }
        if begun == 0 {
            let _ = fs::remove_file(partial);
            return Err(error!("what {url} sent has the wrong checksum: {is}, and not {expected}").hint(
                "It was removed. A mirror that is being updated is right a little later; if it stays so, name \
                 another address in /etc/vshmem/images.toml.",
            ));
        }
        tell(Step::Message(format!(
            "what an earlier try left of {said} does not fit; it is downloaded anew"
        )));
        empty(partial)?;
        begun = 0;
    }
}

/// The error if an image can't be had; `kept` bytes of it are here.
fn unreachable(wanted: &Wanted, url: &str, why: &str, kept: u64) -> Error {
    let said = wanted.name();
    let kept = match kept {
        0 => String::new(),
        kept => format!("{} of it are kept, and the next try goes on from there. ", size::show(kept)),
    };
    let place = if said == url { String::new() } else { format!(" from {url}") };
    error!("{said} could not be downloaded{place}: {why}").hint(format!(
        "{kept}Without a network, or if its place has changed: download the image elsewhere, and name the file \
         instead of {said}. /etc/vshmem/images.toml can name a mirror (docs/guide-images.md)."
    ))
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn empty(path: &Path) -> Result<()> {
    let file = File::options().write(true).open(path).and_then(|file| file.set_len(0));
    file.explain(|| format!("could not empty {}", path.display()))
}
