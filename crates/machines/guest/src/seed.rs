//! The names of files on a seed, from which a machine with a system of its own has this program, its settings
//! and the driver.

/// The agent's program, and the name by which it is executed.
pub const AGENT: &str = "vshmem-machine";
/// The machine's settings, as others have them on their kernel's command line.
pub const SETTINGS: &str = "settings";
/// The directory of drivers, each called by its kernel's version.
pub const DRIVERS: &str = "drivers";
/// Paths of this host at which programs look for files of the seed: a line `FILE PATH` for each.
pub const LINKS: &str = "links";
