//! The maps between this kernel's user and group ids and those in pools, as programs on Vshmem use them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;
use vshmem_base::error::{error, Error, Result};
use vshmem_transport::ids::{IdMap, IdMapError, Ids};

static IDS: LazyLock<std::result::Result<Ids, (Option<&'static str>, IdMapError)>> = LazyLock::new(read);

fn read() -> std::result::Result<Ids, (Option<&'static str>, IdMapError)> {
    let map = |name: &'static str| {
        let value: Option<OsString> = std::env::var_os(name);
        let map = value.map(|value| IdMap::from_text(value.as_bytes()));
        map.transpose().map_err(|error| (Some(name), error))
    };
    Ids::read(map("VSHMEM_UID_MAP")?, map("VSHMEM_GID_MAP")?).map_err(|error| (None, error))
}

/// The maps of users and groups; identity if they can't be read.
pub fn maps() -> &'static Ids {
    IDS.as_ref().unwrap_or(&Ids::SAME)
}

/// An error if the maps can't be read.
pub fn check() -> Result<()> {
    match &*IDS {
        Ok(_) => Ok(()),
        Err((Some(variable), error)) => Err(error!("{variable} is wrong: {error}")),
        Err((None, error)) => Err(Error::new(error.to_string())),
    }
}
