//! QEMU's arguments: words, and the descriptors that they name.

use crate::shared::sandbox::{path_of, Descriptor, Descriptors};
use std::path::PathBuf;

/// The words of a command line, and the descriptors that they name.
#[derive(Default)]
pub struct Arguments {
    /// The words.
    pub words: Vec<String>,
    /// The descriptors.
    pub descriptors: Descriptors,
}

impl Arguments {
    /// Adds an option and its value.
    pub fn add(&mut self, option: &str, value: &str) {
        self.words.extend([option.into(), value.into()]);
    }

    /// Adds a descriptor; returns the path at which QEMU finds it.
    pub fn file(&mut self, descriptor: Descriptor) -> String {
        path_of(self.descriptors.add(descriptor))
    }

    /// Adds a descriptor as a set of its own; returns the path by which QEMU finds it without opening a file
    /// anew, which its user may not be permitted.
    pub fn set(&mut self, descriptor: Descriptor) -> String {
        let fd = self.descriptors.add(descriptor);
        self.add("-add-fd", &format!("fd={fd},set={fd}"));
        format!("/dev/fdset/{fd}")
    }

    /// Adds a character device: a socket at which QEMU listens.
    pub fn listen(&mut self, id: &str, socket: PathBuf) {
        let fd = self.descriptors.add(Descriptor::Listen(socket));
        self.add("-chardev", &format!("socket,id={id},fd={fd},server=on,wait=off"));
    }
}
