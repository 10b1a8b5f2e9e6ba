//! Commands on the host for clusters: starting, repairing, listing and ending them.
//!
//! | module | subject |
//! | --- | --- |
//! | `up`, `restart`, `repair`, `wait` | starting machines, and waiting until they take commands |
//! | `interrupted` | starts that were interrupted |
//! | `batches`, `together`, `claims` | which machines boot together, their start, and whether this host has their memory |
//! | `accounts` | the users that root's machines run as |
//! | `placing` | on which cores machines run |
//! | `devices` | devices of this host that machines have for themselves |
//! | `pages` | the pages that machines and pools get |
//! | `made_pools`, `populate` | pools that are made for a cluster, and taking their memory |
//! | `cluster` | listing clusters and ending them |
//! | `serving` | the sockets at which the back end serves pools |
//! | `roots` | the root that machines have as a disk |
//! | `templates` | making templates ahead |
//! | `users` | users of a pool |
//! | `names` | names for completion |

pub mod accounts;
mod batches;
pub mod claims;
pub mod cluster;
pub mod devices;
pub mod interrupted;
pub mod made_pools;
pub mod names;
pub mod pages;
pub mod placing;
mod populate;
pub mod rehearsal;
pub mod repair;
pub mod restart;
mod roots;
mod serving;
pub mod templates;
mod together;
pub mod up;
pub mod users;
pub mod wait;
