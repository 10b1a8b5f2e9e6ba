//! The command `vshmem logs`.

use crate::args::ClusterArg;
use crate::complete::values;
use clap::Args;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use vshmem_base::error::{error, Explain};
use vshmem_base::{interrupt, plain, Result};
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::shared::log::rotated;
use vshmem_hypervisor::state::machine::{all_of, index_of};

/// Pause between two looks at a log that is followed.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem logs vm0
  vshmem logs -f vm0

It is what the machine's kernel and its first process have printed, also if the machine has died. What programs print goes
to the command that runs them. The last 256 to 512 KiB are kept until vshmem down.")]
pub struct Logs {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// Print what comes, until ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// The machine
    #[arg(value_name = "VM", add = values::machines())]
    pub machine: String,
}

/// Prints the log of a machine's console.
pub fn logs(logs: &Logs) -> Result<u8> {
    let (record, _) = all_of(&logs.cluster.cluster)?;
    let machine = &record.machines[index_of(&record, &logs.machine)?];
    let path = table::of(&record).console(&record, machine)?;
    if let Ok(mut old) = File::open(rotated(&path)) {
        Lines::default().print(&mut old)?;
    }
    let mut log = open(&path)?;
    let mut lines = Lines::default();
    lines.print(&mut log)?;
    if !logs.follow {
        return lines.finish().map(|()| 0);
    }
    interrupt::watch();
    while path.exists() {
        if let Some(signal) = interrupt::signal() {
            return lines.finish().map(|()| 128u8.saturating_add(signal as u8));
        }
        sleep(PAUSE);
        lines.print(&mut log)?;
        // It was rotated, or the machine was started anew.
        if was_replaced(&log, &path) {
            log = open(&path)?;
        }
    }
    lines.finish().map(|()| 0)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|why| match why.kind() {
        ErrorKind::NotFound => error!("there is no log at {}", path.display()).code(1),
        _ => error!("could not open {}: {why}", path.display()),
    })
}

/// Whether another file has this path now.
fn was_replaced(log: &File, path: &Path) -> bool {
    let now = path.metadata().map(|meta| meta.ino());
    now.is_ok_and(|now| log.metadata().is_ok_and(|meta| meta.ino() != now))
}

/// Printing of whole lines: a machine may print what would change the terminal.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Prints the lines that a file goes on with.
    fn print(&mut self, file: &mut File) -> Result<()> {
        file.read_to_end(&mut self.0).explain(|| "could not read the log".into())?;
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let rest = self.0.split_off(end);
        let whole = std::mem::replace(&mut self.0, rest);
        crate::output::print(&shown(&whole))
    }

    /// Prints a last line that has no end.
    fn finish(self) -> Result<()> {
        crate::output::print(&shown(&self.0))
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| format!("{}\n", plain(line.trim_end_matches('\r')))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_change_the_terminal_is_not_printed() {
        assert_eq!(shown(b"[ 0.1] a\r\n\x1b[2Jb\n"), "[ 0.1] a\n[2Jb\n");
        assert!(!shown(b"\x1b[2J").contains('\x1b'));
    }
}
