//! The terminal of a command.

use crate::wire::start::Size;
use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};
use rustix::termios::{
    tcgetattr, tcsetattr, tcsetwinsize, InputModes, OptionalActions, SpecialCodeIndex, Winsize,
};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::fchown;

/// Both ends of a pseudoterminal.
pub struct Terminal {
    /// The agent's end.
    pub ours: File,
    /// The command's end.
    pub theirs: File,
}

impl Terminal {
    /// A new one, owned by this user.
    pub fn open(size: Size, uid: u32, gid: u32) -> io::Result<Terminal> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        fchown(&theirs, Some(uid), Some(gid))?;
        // Makes erase work on whole UTF-8 characters.
        let mut modes = tcgetattr(&theirs)?;
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&theirs, OptionalActions::Now, &modes)?;
        resize(&ours, size)?;
        Ok(Terminal { ours: ours.into(), theirs: theirs.into() })
    }
}

/// Sets the size, which also signals the terminal's processes.
pub fn resize(terminal: impl AsFd, size: Size) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

/// The character that ends input in canonical mode.
pub fn end_of_input(terminal: impl AsFd) -> u8 {
    const CTRL_D: u8 = 4;
    tcgetattr(terminal).map_or(CTRL_D, |modes| modes.special_codes[SpecialCodeIndex::VEOF])
}
