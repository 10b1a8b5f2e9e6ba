//! Images that machines boot by a name or an address: they are downloaded once, checked, and kept in the
//! user's cache.
//!
//! | module | subject |
//! | --- | --- |
//! | `reference` | what a description says of an image: a path, a name or an address |
//! | `table` | the images that have a name |
//! | `digest` | checksums |
//! | `store` | the cache |
//! | `download` | getting an image into it |
//! | `curl` | the program that transfers files |

mod curl;
mod digest;
mod download;
pub mod reference;
mod store;
pub mod table;
#[cfg(test)]
mod tests;

pub use download::Step;
pub use store::Images;
