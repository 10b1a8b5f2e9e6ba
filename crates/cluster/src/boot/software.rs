//! What machines boot, and on what.

use super::driver;
use super::kernel::{self, Kernel};
use crate::error::Result;
use crate::modules::parse_wanted;
use std::path::{Path, PathBuf};

/// What machines boot, and on what.
pub struct Software {
    /// With all modules that are loaded, the driver among them.
    pub kernel: Kernel,
    /// Where the driver was found, if machines load it.
    pub driver: Option<PathBuf>,
    /// What carries out their instructions.
    pub accel: &'static str,
    /// Why that.
    pub description: &'static str,
    /// The kernel's image as it boots fastest.
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
        report(&format!(
            "kernel {} ({})",
            kernel.version,
            kernel.image.display()
        ));
        let driver = driver::find(driver, name, &kernel.version)?.map(|driver| {
            kernel.modules.push(driver.module);
            driver.path
        });
        Ok(Software {
            image: kernel.image.clone(),
            kernel,
            driver,
            accel: "",
            description: "",
        })
    }
}
