//! The software that machines boot: kernel, driver and accelerator.

use super::driver;
use super::kernel::{self, Kernel};
use crate::boot::modules::parse_wanted;
use std::path::{Path, PathBuf};
use vshmem_base::error::Result;

/// The software that machines boot: kernel, driver and accelerator.
pub struct Software {
    /// The kernel, with all modules that are loaded, the driver among them.
    pub kernel: Kernel,
    /// The path of the driver, if machines load it.
    pub driver: Option<PathBuf>,
    /// The accelerator, as in records.
    pub accel: &'static str,
    /// The accelerator, in words for the user.
    pub description: &'static str,
    /// The kernel's image in the form that boots fastest.
    pub image: PathBuf,
}

impl Software {
    /// Finds a kernel with these modules, and the driver of this name for it.
    pub fn find(
        kernel: Option<&Path>,
        modules: &str,
        (driver, name): (&driver::Choice, &str),
        report: &mut dyn FnMut(&str),
    ) -> Result<Software> {
        let mut kernel = kernel::find(kernel, &parse_wanted(modules), report)?;
        report(&format!("kernel {} ({})", kernel.version, kernel.image.display()));
        let driver = driver::find(driver, name, &kernel.version)?.map(|driver| {
            kernel.modules.push(driver.module);
            driver.path
        });
        Ok(Software { image: kernel.image.clone(), kernel, driver, accel: "", description: "" })
    }
}
