//! The output of commands, and commands on several names.

use std::io::{self, Write};
use vshmem_base::{error, Result};

/// Prints text, which may quote a machine or a member of a pool. It is no error if no process reads it.
pub fn print(text: &str) -> Result<()> {
    let text = vshmem_base::plain(text);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(error!("could not write the answer: {e}")),
        _ => Ok(()),
    }
}

/// Runs a function on each of these names, even after a failure. The exit code is that of the first failure.
pub fn each(names: &[String], mut work: impl FnMut(&str) -> Result<()>) -> Result<u8> {
    let mut code = 0;
    for name in names {
        if let Err(error) = work(name) {
            eprintln!("vshmem: {error}");
            code = if code == 0 { error.exit_code() } else { code };
        }
    }
    Ok(code)
}
