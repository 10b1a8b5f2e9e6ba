//! Hydra, the launcher of MPICH.

use crate::implementation::Launcher;
use crate::line::Line;
use std::ffi::OsString;
use std::path::Path;

/// Hydra's command line. All variables but the preloaded libraries are in its environment and in that of its
/// daemons.
pub fn command(launcher: &Launcher, line: &Line, rsh: &Path) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec![launcher.file.clone().into()];
    out.extend(["-launcher", "ssh", "-launcher-exec"].map(OsString::from));
    out.push(rsh.into());
    out.extend(["-hosts".into(), line.host_list().into()]);
    // Else all ranks have the launcher's environment, and so its host's pool and processors. Not always,
    // since MPICH 5 then fails in MPI_Comm_spawn.
    out.extend(line.own_environments.then(|| "-genvnone".into()));
    out.extend(["-genv", "LD_PRELOAD"].map(OsString::from));
    out.push(line.preload.clone());
    if line.label {
        out.extend(["-prepend-pattern", "[%r] "].map(OsString::from));
    }
    // Hydra binds no rank unless it is asked to.
    if let Some(to) = line.bind_to.as_deref() {
        out.extend(["-bind-to", to].map(OsString::from));
    }
    out.extend(line.extra.iter().cloned());
    out.extend(["-n".into(), line.ranks().to_string().into()]);
    out.extend(line.program.iter().cloned());
    out
}
