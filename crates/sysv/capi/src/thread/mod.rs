//! The calling thread: its user, its waits, its errors, its addresses.
//!
//! | module | subject |
//! | --- | --- |
//! | [`cred`], [`ids`] | its credentials, and the ids that pools have for its user and groups |
//! | [`permit`] | its right to take shortcuts |
//! | [`interrupted`] | the wait that a signal handler has interrupted |
//! | [`errno`], [`last_error`] | errno, and the last error in words |
//! | [`addresses`] | addresses that the program passes |

pub mod addresses;
pub mod cred;
pub mod errno;
pub mod ids;
pub mod interrupted;
pub mod last_error;
pub mod permit;
