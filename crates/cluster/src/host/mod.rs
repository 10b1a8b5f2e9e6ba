//! What commands on the host do with clusters.
//!
//! | module | subject |
//! | --- | --- |
//! | `up`, `restart`, `wait` | starting machines, and waiting until they take commands |
//! | `cluster` | listing clusters and ending them |
//! | `serving` | the sockets at which the back end serves pools |
//! | `users` | users of a pool |
//! | `names` | names for completion |

pub mod cluster;
pub mod names;
pub mod restart;
mod serving;
pub mod up;
pub mod users;
pub mod wait;
