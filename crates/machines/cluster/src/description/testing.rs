//! The launchers and options that descriptions mean, for tests: each is the text of a file `c`.

use super::file::File;
use std::path::Path;
use vshmem_hypervisor::launcher::options::ClusterOptions;
use vshmem_hypervisor::launcher::traits::Launcher;

/// The launcher and the options that a text means.
pub fn launched(text: &str) -> Result<(&'static dyn Launcher, ClusterOptions), String> {
    let file = File::parse("c".into(), text.into(), Path::new("/")).map_err(|error| error.to_string())?;
    file.description.resolve().map_err(|fault| file.explain(fault).to_string())
}

/// The options that a text means.
pub fn resolved(text: &str) -> Result<ClusterOptions, String> {
    launched(text).map(|(_, options)| options)
}
