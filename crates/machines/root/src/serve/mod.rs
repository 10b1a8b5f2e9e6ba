//! Serving an image to machines.

mod contents;
mod peer;
mod protocol;
mod server;

pub use contents::{Contents, Log};
pub use protocol::{serve, Export, MAX_REQUEST};
pub use server::{Limits, Server};
