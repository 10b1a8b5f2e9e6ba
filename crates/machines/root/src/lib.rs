//! The host's files as a disk for machines.
//!
//! [`walk()`] looks at directories of the host and notes what is there. An [`image::Image`] is the
//! metadata of an EROFS file system of it: superblock, inodes, directories. The files' contents have
//! their places behind it, but are copied nowhere: a [`serve::Server`] gives machines the image by NBD,
//! and reads the host's file when a machine asks for its blocks. A file that is not what it was at the
//! walk gives an error instead (docs/design/root.md).

mod confine;
pub mod image;
pub mod process;
pub mod serve;
pub mod tree;
pub mod view;
pub mod walk;

pub use image::Image;
pub use serve::Server;
pub use tree::Tree;
pub use view::{Part, View};
pub use walk::{walk, Walked};
