//! Launchers, which start machines, watch and end them. [`traits::Launcher`] is their interface.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`] | all launchers |
//! | [`traits`] | a launcher's interface |
//! | [`options`], [`starting`] | options of a new cluster, and starting a machine as all launchers do |

pub mod options;
pub mod starting;
pub mod table;
pub mod traits;
