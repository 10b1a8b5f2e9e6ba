//! Launchers, which start machines, watch and end them. [`traits::Launcher`] is their interface.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`] | all launchers |
//! | [`traits`] | a launcher's interface |
//! | [`grants`], [`target`] | granting pools to machines that run |
//! | [`options`], [`starting`] | options of a new cluster, and starting a machine as all launchers do |

pub mod grants;
pub mod options;
pub mod starting;
pub mod table;
pub mod target;
pub mod traits;
