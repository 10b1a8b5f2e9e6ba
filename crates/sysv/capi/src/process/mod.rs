//! The process: its environment, its private memory, its one lock. Nothing here knows an open pool.
//!
//! | module | subject |
//! | --- | --- |
//! | [`config`], [`log`] | the environment, and the log that it asks for |
//! | [`raw`] | system calls |
//! | [`page`], [`shortcuts`] | memory that a child finds empty, and the shortcuts in it |
//! | [`tls`] | a thread's block of memory |
//! | [`gate`] | the lock |
//! | [`attachments`] | the segments that are attached |
//! | [`core_dump`], [`sanitizers`] | core dumps, and programs that are built with sanitizers |

pub mod attachments;
pub mod config;
pub mod core_dump;
pub mod gate;
pub mod log;
pub mod page;
pub mod raw;
pub mod sanitizers;
pub mod shortcuts;
pub mod tls;
