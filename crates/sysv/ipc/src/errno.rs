//! Errors of calls: System V's own vocabulary.

use core::fmt;
use vshmem_pool::lock::Stuck;
use vshmem_pool::log::Full;

/// A positive errno value, with the meaning that the call's manual page gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*
            /// The meaning for a call of System V IPC.
            pub fn text(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "the call failed" }
            }
            /// Is it one of these?
            pub fn is_known(self) -> bool {
                matches!(self.0, $($value)|*)
            }
        }
    };
}

errnos! {
    EPERM = 1, "only the owner, the creator or a privileged process may do that to the IPC object";
    ENOENT = 2, "no IPC object has that key, and IPC_CREAT was not given";
    EINTR = 4, "a signal handler ran while the call waited";
    E2BIG = 7, "too many operations, or the message is longer than the buffer";
    EAGAIN = 11, "the call would have to wait, or its time is up";
    ENOMEM = 12, "the pool has no room for it; make a larger pool";
    EACCES = 13, "the IPC object's permissions do not allow that";
    EFAULT = 14, "an address is not valid";
    EEXIST = 17, "an IPC object with that key exists, and IPC_EXCL was given";
    EINVAL = 22, "there is no such IPC object, or an argument is out of range";
    EFBIG = 27, "the set has no semaphore of that number";
    ENOSPC = 28, "a limit of the pool is reached";
    ERANGE = 34, "the semaphore's value would leave its range";
    ENOSYS = 38, "the call is not supported";
    ENOMSG = 42, "no message of that type is in the queue";
    EIDRM = 43, "the IPC object was removed";
    EOVERFLOW = 75, "the caller's user or group has no id in pools; see VSHMEM_UID_MAP and /etc/vshmem/uid_map";
}

impl Errno {
    /// No program sees this one: the caller is to let go of what its process's threads stand in line for, to
    /// wait for the pool's lock ([`crate::await_lock`]), and to begin again.
    pub const INSIDE: Errno = Errno(0x7ffe);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
impl core::error::Error for Errno {}

impl From<Full> for Errno {
    fn from(_: Full) -> Errno {
        Errno::ENOMEM
    }
}

impl From<Stuck> for Errno {
    /// An IPC object whose lock can't be had is as good as removed.
    fn from(stuck: Stuck) -> Errno {
        match stuck {
            Stuck::Owner | Stuck::Spent => Errno::EIDRM,
            Stuck::Signal => Errno::EINTR,
            Stuck::Inside => Errno::INSIDE,
            Stuck::Late => Errno::EAGAIN,
        }
    }
}
