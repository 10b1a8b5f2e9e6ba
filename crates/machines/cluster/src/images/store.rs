//! The cache of images, and the images that a cluster's machines want of it.

use super::curl;
use super::digest::Digest;
use super::download::{download, file_name, Expected, Step, Wanted, ENDING};
use super::reference::{Address, Place, Reference};
use super::table::{Entry, Table};
use std::fs;
use std::path::{Path, PathBuf};
use vshmem_base::directories::cache_directory;
use vshmem_base::error::{error, Explain, Result};
use vshmem_hypervisor::boot::image::{Image, System};
use vshmem_hypervisor::launcher::options::ClusterOptions;

/// The longest part of an address's file name that is kept in the name in the cache.
const MAX_STEM: usize = 60;

/// The images that are to be downloaded before a cluster can start.
#[derive(Debug, Default)]
pub struct Images {
    missing: Vec<Wanted>,
}

impl Images {
    /// Has the options name files where they name images that are here. The others are marked as awaited.
    ///
    /// # Errors
    /// If an image has no such name, an address can't be used, or a checksum is wrong.
    pub fn find(options: &mut ClusterOptions) -> Result<Images> {
        let mut images = Images::default();
        let mut store = None;
        for machine in &mut options.machines {
            let Some(disk) = disk_of(&mut machine.image) else {
                continue;
            };
            let about = |why: vshmem_base::Error| why.about(&machine.name);
            let reference = Reference::parse(disk.0).map_err(about)?;
            if let Reference::Path(path) = &reference {
                *disk.0 = std::path::absolute(path).explain(|| "there is no current directory".into())?;
                continue;
            }
            let store = match &store {
                Some(store) => store,
                None => store.insert(Store::open()?),
            };
            match store.find(&disk.0.to_string_lossy(), reference).map_err(about)? {
                Found::Here(path) => *disk.0 = path,
                Found::Missing(wanted) => {
                    *disk.1 = true;
                    if !images.missing.contains(&wanted) {
                        images.missing.push(wanted);
                    }
                }
            }
        }
        Ok(images)
    }

    /// Those that are not here: as the user named them, and the addresses from which they would come.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.missing.iter().map(|wanted| (wanted.name(), wanted.url.as_str()))
    }

    /// Downloads what is missing, and has the options name the files.
    ///
    /// # Errors
    /// If an image can't be had.
    pub fn download(self, options: &mut ClusterOptions, tell: &mut dyn FnMut(Step)) -> Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        curl::check()?;
        let directory = directory()?;
        fs::create_dir_all(&directory).explain(|| format!("could not make {}", directory.display()))?;
        for wanted in self.missing {
            let path = download(&wanted, &directory, tell)?;
            for machine in &mut options.machines {
                if let Some((disk, awaited)) =
                    disk_of(&mut machine.image).filter(|disk| *disk.0 == Path::new(&wanted.said))
                {
                    (*disk, *awaited) = (path.clone(), false);
                }
            }
        }
        Ok(())
    }
}

/// The disk of an image, and whether it is awaited.
fn disk_of(image: &mut Image) -> Option<(&mut PathBuf, &mut bool)> {
    match image {
        Image::Own(system) => {
            let System { disk, awaited, .. } = &mut **system;
            disk.as_mut().map(|disk| (disk, awaited))
        }
        _ => None,
    }
}

fn directory() -> Result<PathBuf> {
    Ok(cache_directory()?.join("images"))
}

enum Found {
    Here(PathBuf),
    Missing(Wanted),
}

struct Store {
    table: Table,
    directory: PathBuf,
}

impl Store {
    fn open() -> Result<Store> {
        Ok(Store { table: Table::read()?, directory: directory()? })
    }

    fn find(&self, said: &str, reference: Reference) -> Result<Found> {
        let (entry, stem) = match reference {
            Reference::Path(path) => return Ok(Found::Here(path)),
            // An address's stem has no underscore, so it never is a name's.
            Reference::Name(name) => {
                (self.table.find(&name)?.clone(), format!("{}_", name.replace('/', "_")))
            }
            Reference::Address(address) => {
                let stem = stem_of(&address);
                (Entry { address, checksums: None }, stem)
            }
        };
        let url = match entry.address.place {
            Place::Server(url) => url,
            Place::File(path) => return here(path, entry.address.digest.as_ref()),
        };
        let expected = match (entry.address.digest, entry.checksums) {
            (Some(digest), _) => Expected::Digest(digest),
            (None, Some(list)) => Expected::Listed(list),
            (None, None) => Expected::Unknown(Digest::of_text(&url)?),
        };
        Ok(match self.kept(&stem, &expected) {
            Some(path) => Found::Here(path),
            None => Found::Missing(Wanted { said: said.into(), url, stem, expected }),
        })
    }

    /// The image in the cache; the newest one, if a list says what it must be now.
    fn kept(&self, stem: &str, expected: &Expected) -> Option<PathBuf> {
        match expected {
            Expected::Digest(digest) | Expected::Unknown(digest) => {
                Some(self.directory.join(file_name(stem, digest))).filter(|path| path.is_file())
            }
            Expected::Listed(_) => {
                let entries = fs::read_dir(&self.directory).ok()?.flatten();
                let is_one = |name: &str| {
                    let digits = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(ENDING));
                    digits.is_some_and(Digest::is_short)
                };
                let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_one));
                let dated =
                    ours.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
                dated.max().map(|(_, path)| path)
            }
        }
    }
}

/// A file of this host, with the checksum that it must have.
fn here(path: PathBuf, digest: Option<&Digest>) -> Result<Found> {
    let path = std::path::absolute(&path).explain(|| "there is no current directory".into())?;
    if let Some(expected) = digest {
        let is = expected.of_file(&path)?;
        if is != *expected {
            return Err(error!("{} has the wrong checksum: {is}, and not {expected}", path.display()));
        }
    }
    Ok(Found::Here(path))
}

/// The part of an address by which people know it.
fn stem_of(address: &Address) -> String {
    let Place::Server(url) = &address.place else {
        return String::new();
    };
    let path = url.split('?').next().unwrap_or(url);
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let fine = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' };
    format!("{}-", name.chars().map(fine).take(MAX_STEM).collect::<String>())
}
