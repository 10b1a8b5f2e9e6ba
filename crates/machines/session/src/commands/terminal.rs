//! The user's terminal while a program in a machine has it: all input is the program's, even ctrl-C.

use crate::wire::start::Size;
use rustix::stdio::stdin;
use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr, OptionalActions, Termios};
use std::sync::{Mutex, Once, PoisonError};
use vshmem_base::error::{Error, Result};

/// The terminal's mode before.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Its size. An error unless standard input is a terminal.
pub fn size() -> Result<Size> {
    let size = tcgetwinsize(stdin()).map_err(|_| {
        Error::new("standard input is no terminal, so there is none to give to a program")
            .hint("Use vshmem exec without --tty: it passes on input, output and signals, too.")
    })?;
    Ok(Size { rows: size.ws_row, columns: size.ws_col })
}

/// Keeps the terminal in raw mode.
pub struct Raw(());

impl Raw {
    /// Switches to raw mode until this is dropped, or a thread panics.
    pub fn begin() -> std::io::Result<Raw> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let default_hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                default_hook(panic);
            }));
        });
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let begun = Raw(());
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(begun)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = before.take() {
        // It may be gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{grantpt, ioctl_tiocgptpeer, openpt, unlockpt, OpenptFlags};
    use rustix::termios::LocalModes;
    use std::process::{Command, Stdio};

    /// Not a test by itself: a program that panics in raw mode, without unwinding through `Raw`.
    #[test]
    #[ignore = "the next test runs it"]
    fn panics() {
        let raw = Raw::begin().expect("a terminal");
        let modes = tcgetattr(stdin()).expect("a terminal").local_modes;
        assert!(!modes.contains(LocalModes::ICANON));
        std::mem::forget(raw);
        println!("it was taken");
        panic!("as it must");
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let before = format!("{:?}", tcgetattr(&theirs).unwrap());
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "commands::terminal::tests::panics", "--ignored"])
            .arg("--nocapture")
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("it was taken"), "{said}");
        assert!(!output.status.success());
        assert_eq!(format!("{:?}", tcgetattr(&theirs).unwrap()), before);
    }
}
