//! Errors, one enum per operation.
//!
//! Every error displays as a sentence that says what happened and what to do; it does not name the pool,
//! which the caller knows. `errno` gives the System V error number that a program is told.

use core::fmt;

use crate::sys::Errno;

/// Defines an error enum: its cases with their `errno` and sentence, and `System` for what the kernel says
/// otherwise. Behind `of` stand the kernel's errors that mean a case.
macro_rules! errors {
    ($(#[$about:meta])* $name:ident $($(#[$doc:meta])* $case:ident = $errno:ident $(of $($given:ident)|+)?, $sentence:literal;)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $case,)*
            /// Something else; the kernel's error number.
            System(i32),
        }

        impl $name {
            /// The System V `errno` that fits best.
            pub fn errno(&self) -> i32 {
                match *self {
                    $($name::$case => libc::$errno,)*
                    $name::System(errno) => errno,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $($name::$case => f.write_str($sentence),)*
                    $name::System(errno) => write!(
                        f,
                        "The kernel refused with error {} (see errno(3)).",
                        errno
                    ),
                }
            }
        }

        impl core::error::Error for $name {}

        impl From<Errno> for $name {
            fn from(Errno(errno): Errno) -> Self {
                match errno {
                    $($($(libc::$given)|+ => $name::$case,)?)*
                    other => $name::System(other),
                }
            }
        }
    };
}

errors! {
    /// Reasons for which a name or path leads to no pool.
    ResolveError
    /// Not a name: wrong characters or length.
    BadName = EINVAL, "This is no name for a pool: use up to 64 letters, digits, dots, dashes and underscores, or a path with a slash.";
    /// The absolute path has more than [`crate::PATH_MAX`] bytes.
    PathTooLong = EINVAL, "The pool's absolute path is too long: keep it below 1024 bytes.";
    /// A relative path was given where the working directory can't be told.
    NoWorkingDirectory = ENOENT, "The working directory is gone, so a relative path leads nowhere: give the pool's absolute path.";
    /// This machine has pools, but none of this name.
    NoSuchPool = ENOENT, "This machine was given no pool of that name, and you have made none: name one that it has, make one with vshmem pool create, or give a path.";
    /// This machine was given a pool of this name, so none can be made.
    Given = EEXIST, "This machine was given a pool of that name by its host: choose another name.";
    /// The machine's devices could not be listed.
    Devices = EACCES, "The machine's PCI devices could not be listed: make /sys readable, or give the pool's path.";
    /// No descriptor is free.
    Descriptors = ENOMEM, "No file descriptor is free: raise the limit on open files.";
}

errors! {
    /// Reasons for which the pools of a kernel can't be listed.
    DiscoverError
    /// The directory of named pools is somebody else's, or others can write to it.
    NotOwnDirectory = EACCES, "What lies at /dev/shm/vshmem.UID, where UID is the number of this user, is not a directory of this user that others can't write to, so no pool in it can be trusted: have its owner or root remove it, or give the pool by a path with a slash (VSHMEM_POOL=/path).";
    /// The directory may not be read.
    Denied = EACCES of EACCES | EPERM, "The directory in which pools are found may not be read: change its permissions or the user.";
    /// No descriptor is free.
    Descriptors = ENOMEM of EMFILE | ENFILE, "No file descriptor is free: raise the limit on open files.";
}

errors! {
    /// Reasons for which a pool can't be opened.
    OpenError
    /// There is no such file.
    NotFound = ENOENT of ENOENT | ENOTDIR, "There is no such pool: create it, or correct the name.";
    /// The file may not be opened for reading and writing.
    Denied = EACCES of EACCES | EPERM | EROFS, "The pool may not be read and written by this user: change its permissions, or choose another pool.";
    /// A symbolic link lies where a named pool should be.
    SymbolicLink = EACCES of ELOOP, "A symbolic link lies where the pool should be, which could be a trap: remove it, or give the pool's path.";
    /// A named pool belongs to somebody else.
    ForeignOwner = EACCES, "The pool of that name belongs to another user: if you trust it, give its path instead of its name.";
    /// The directory of named pools is somebody else's, or others can write to it.
    NotOwnDirectory = EACCES, "What lies at /dev/shm/vshmem.UID, where UID is the number of this user, is not a directory of this user that others can't write to, so no pool in it can be trusted: have its owner or root remove it, or give the pool by a path with a slash (VSHMEM_POOL=/path).";
    /// The file has more than one name.
    HardLinks = EACCES, "The pool's file has another name besides (a hard link), which could be a trap: remove the other name, or create the pool again.";
    /// Not a regular file.
    NotAFile = EINVAL of EISDIR | ENXIO | ENODEV, "This is not a regular file, nor a device file of vshmem.ko or a DAX device, so it can't be a pool: correct the path.";
    /// Smaller than the smallest pool.
    TooSmall = EINVAL, "The file is too small for a pool, perhaps truncated: a pool has at least 1 MiB. Create it again.";
    /// The length is no whole number of pages.
    Uneven = EINVAL, "The file is not a whole number of pages long, so it is no pool or was truncated: create it again.";
    /// Larger than this machine can address.
    TooLarge = ENOMEM of EOVERFLOW, "The pool is too large to be mapped: raise the limit on address space, or use a smaller pool.";
    /// On a file system whose files several machines see without sharing their memory.
    NotCoherent = EINVAL, "The file is on a network or pass-through file system, which can't share memory: put the pool on tmpfs.";
    /// No descriptor is free.
    Descriptors = ENOMEM of EMFILE | ENFILE, "No file descriptor is free: raise the limit on open files.";
    /// No memory or address space.
    NoMemory = ENOMEM of ENOMEM | EAGAIN, "There is no memory or address space left to map the pool.";
    /// The driver has the pool's device, but its device file is missing.
    NoDeviceFile = ENOENT, "The driver vshmem.ko has the pool's device, but its file /dev/vshmemN is not there: in a container, bind-mount it.";
    /// The driver is of another version.
    OtherDriver = EINVAL, "The driver vshmem.ko is of another version than this library: install both from the same release.";
    /// A DAX device that other hosts may share, and nobody says that its memory is coherent.
    NotDeclared = EINVAL, "Other hosts may share this DAX device (CXL memory, for instance), and nobody says that its memory is coherent between them in hardware, by Back-Invalidate: if it is, or if no other host uses it, have root add the device's name, as dax0.0, to /etc/vshmem/coherent.";
    /// The reference is one of another transport.
    WrongTransport = EINVAL, "The pool belongs to another transport than the one that was asked to open it.";
}

errors! {
    /// Reasons for which a pool can't be created.
    CreateError
    /// A file of that name is there already; perhaps somebody was faster.
    Exists = EEXIST of EEXIST, "A file of that name exists already: open it, or remove it first.";
    /// Neither a name nor a usable path.
    BadName = EINVAL, "This is no name for a pool: use up to 64 letters, digits, dots, dashes and underscores, or a path of less than 1024 bytes.";
    /// The directory is missing.
    NoDirectory = ENOENT of ENOENT | ENOTDIR, "The directory for the pool does not exist: make it, or give another path.";
    /// There is no such file to be reserved.
    NotFound = ENOENT, "There is no such pool: create it, or correct the name.";
    /// The file has more than one name.
    HardLinks = EACCES, "The pool's file has another name besides (a hard link), which could be a trap: remove the other name, or create the pool again.";
    /// The directory may not be written.
    Denied = EACCES of EACCES | EPERM | EROFS, "This user may not create the pool there: change the directory's permissions, or give another path.";
    /// The directory of named pools is somebody else's, or others can write to it.
    NotOwnDirectory = EACCES, "What lies at /dev/shm/vshmem.UID, where UID is the number of this user, is not a directory of this user that others can't write to, so no pool in it can be trusted: have its owner or root remove it, or give the pool by a path with a slash (VSHMEM_POOL=/path).";
    /// Less than the smallest pool.
    TooSmall = EINVAL, "A pool has at least 1 MiB: ask for more.";
    /// The process may not have a file as long.
    FileLimit = ENOMEM, "No file of this process may be as large as the pool, and it may not raise that limit: raise it (ulimit -f), make the pool beforehand (vshmem pool create), or ask for less.";
    /// More than the file system can hold.
    TooLarge = EINVAL of EFBIG | EINVAL | EOVERFLOW, "The file system can't hold a file that large: ask for less.";
    /// The file system is full.
    NoRoom = ENOSPC of ENOSPC | EDQUOT, "The file system has no room for the pool: free some, enlarge it, or give another path.";
    /// No memory or address space.
    NoMemory = ENOMEM of ENOMEM | EAGAIN, "There is no memory or address space left to set up the pool.";
    /// No descriptor is free.
    Descriptors = ENOMEM of EMFILE | ENFILE, "No file descriptor is free: raise the limit on open files.";
    /// The file system lacks what a pool needs.
    Unsupported = EINVAL of EOPNOTSUPP | ENODEV, "The file system can't reserve memory for files or share it: put the pool on tmpfs.";
    /// The caller's function refused.
    InitFailed = EINVAL, "The new pool could not be formatted: its size and limits don't go together.";
}

errors! {
    /// Reasons for which a pool can't be removed.
    RemoveError
    /// There is no such file.
    NotFound = ENOENT of ENOENT | ENOTDIR, "There is no such pool.";
    /// Neither a name nor a usable path.
    BadName = EINVAL, "This is no name for a pool: use up to 64 letters, digits, dots, dashes and underscores, or a path of less than 1024 bytes.";
    /// The directory may not be written.
    Denied = EPERM of EACCES | EPERM | EROFS, "This user may not remove the pool: it belongs to another user, or its directory may not be written.";
    /// The directory of named pools is somebody else's, or others can write to it.
    NotOwnDirectory = EPERM, "What lies at /dev/shm/vshmem.UID, where UID is the number of this user, is not a directory of this user that others can't write to, so no pool in it can be trusted: have its owner or root remove it, or give the pool by a path with a slash (VSHMEM_POOL=/path).";
    /// A named pool belongs to somebody else.
    ForeignOwner = EPERM, "The pool of that name belongs to another user: to remove it all the same, give its path.";
    /// Not a regular file.
    NotAFile = EINVAL of EISDIR, "This is not a regular file, so it is no pool: correct the name or path.";
    /// The file does not begin as a pool does.
    NotAPool = EINVAL, "This file is no pool, or a broken one: correct the path, or remove it with rm(1).";
}

errors! {
    /// Reasons for which this kernel can't become a member of a pool.
    JoinError
    /// The table of members is full.
    Full = ENOSPC, "64 kernels use this pool already: make another pool.";
    /// Nobody has marked the device's file, and this user may not.
    Unmarked = EACCES of EACCES | EPERM, "Nothing tells this machine from others yet, and only the owner of the device's file can change that: run vshmem agent --guest, or load vshmem.ko.";
    /// The device's file can't be opened once more.
    Descriptors = ENOMEM, "The pool's file can't be opened a second time: raise the limit on open files.";
    /// Another process of this machine has begun to join, and stands still.
    Busy = EAGAIN, "Another process of this machine has begun to join the pool and stands still: let it go on, or end it.";
}

errors! {
    /// Reasons for which a range of a pool can't be mapped.
    MapError
    /// Not inside the pool.
    OutOfRange = EINVAL, "The range is not inside the pool.";
    /// Offset or address are not multiples of the page size.
    Misaligned = EINVAL of EINVAL, "Address, offset and length must be multiples of what the pool's memory is mapped in: its pages, or the alignment of a DAX device.";
    /// Something is mapped at the address.
    AddressInUse = EINVAL of EEXIST, "Something is mapped at the address already.";
    /// The file system is mounted `noexec`, as containers' /dev/shm is.
    NoCode = EACCES, "No code can run in this pool, for its file system is mounted noexec: remount it with exec, or have the pool on another tmpfs (VSHMEM_POOL=/path).";
    /// The kernel doesn't allow this protection.
    NotPermitted = EACCES of EACCES | EPERM, "The pool may not be mapped with this protection.";
    /// The kernel lets only a process with CAP_SYS_RAWIO map something below `vm.mmap_min_addr`.
    TooLow = EPERM, "Only a process with CAP_SYS_RAWIO may map something at so low an address (vm.mmap_min_addr).";
    /// Out of memory, address space or mappings.
    NoMemory = ENOMEM of ENOMEM | EAGAIN, "There is no memory or address space left, or the process has too many mappings.";
    /// The program closed the pool's descriptor, it can't be opened again from here, and its memory is a
    /// device's or huge pages, which the kernel does not map twice by other means.
    Lost = ENOMEM, "The program closed the pool's descriptor, and the pool can't be opened again from here.";
}

impl MapError {
    /// Addresses that may lie below `vm.mmap_min_addr`, which is 64 KiB as a rule.
    const LOW: usize = 1 << 20;

    /// The error of mapping something at an address, if one was asked for. EPERM is also its word for a
    /// protection that the file system does not allow.
    pub(crate) fn at(addr: Option<usize>, prot: i32, error: Errno) -> MapError {
        match error {
            Errno(libc::EPERM | libc::EACCES) if prot & libc::PROT_EXEC != 0 => MapError::NoCode,
            Errno(libc::EPERM) if addr.is_some_and(|addr| addr < Self::LOW) => MapError::TooLow,
            error => error.into(),
        }
    }
}

impl From<OpenError> for CreateError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotFound => CreateError::NotFound,
            OpenError::NotOwnDirectory => CreateError::NotOwnDirectory,
            OpenError::HardLinks => CreateError::HardLinks,
            OpenError::Denied | OpenError::SymbolicLink | OpenError::ForeignOwner => CreateError::Denied,
            OpenError::Descriptors => CreateError::Descriptors,
            OpenError::NoMemory => CreateError::NoMemory,
            OpenError::System(errno) => CreateError::System(errno),
            _ => CreateError::BadName,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn errors_are_sentences_and_have_an_errno() {
        for (text, errno, expected) in [
            (OpenError::NotFound.to_string(), OpenError::NotFound.errno(), libc::ENOENT),
            (CreateError::Exists.to_string(), CreateError::Exists.errno(), libc::EEXIST),
            (RemoveError::Denied.to_string(), RemoveError::Denied.errno(), libc::EPERM),
            (MapError::AddressInUse.to_string(), MapError::AddressInUse.errno(), libc::EINVAL),
            (DiscoverError::System(5).to_string(), DiscoverError::System(5).errno(), 5),
        ] {
            assert!(text.ends_with('.') && text.contains(' '), "{text}");
            assert_eq!(errno, expected, "{text}");
        }
    }

    #[test]
    fn the_kernels_errors_find_their_case() {
        assert_eq!(OpenError::from(Errno(libc::ELOOP)), OpenError::SymbolicLink);
        assert_eq!(CreateError::from(Errno(libc::ENOSPC)), CreateError::NoRoom);
        assert_eq!(MapError::from(Errno(libc::EEXIST)), MapError::AddressInUse);
        let refused = |addr| MapError::at(addr, libc::PROT_READ, Errno(libc::EPERM)).errno();
        assert_eq!((refused(Some(0)), refused(Some(0x8000))), (libc::EPERM, libc::EPERM));
        assert_eq!((refused(None), refused(Some(1 << 40))), (libc::EACCES, libc::EACCES));
        assert_eq!(RemoveError::from(Errno(libc::EBUSY)), RemoveError::System(libc::EBUSY));
    }
}
