//! What commands on the host write down of clusters and machines, and where.
//!
//! | module | subject |
//! | --- | --- |
//! | `directories`, `lock` | the user's directories, and locks in them |
//! | `record`, `machine` | clusters as written down, and how their machines are |
//! | `process`, `ports`, `share` | what records consist of |
//! | `host_pool` | pools of this host that machines can be given |
//! | `settings` | what a machine is told on its kernel's command line |

pub mod directories;
pub mod host_pool;
pub mod lock;
pub mod machine;
pub mod ports;
pub mod process;
pub mod record;
pub mod settings;
pub mod share;
