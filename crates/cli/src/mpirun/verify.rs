//! The verification of a job's transport (`--verify-transport`), by the logs of ranks' UCX and by the bytes
//! that have passed the hosts' network.

use super::hosts::{reach, Host};
use std::collections::BTreeMap;
use vshmem_base::{error, random, Result};
use vshmem_mpi::files::Files;
use vshmem_mpi::settings::Setting;
use vshmem_mpi::verify::{bytes_on_network, GroupJob, GroupTransports};

const HINT: &str = "Leave out what has the MPI talk otherwise (Open MPI: pml, btl, mtl, osc; MPICH: \
                    MPIR_CVAR_CH4_NETMOD), in options, variables and parameter files. What is set: vshmem mpirun --explain ...";

/// The file that UCX writes; `%p` is the rank's pid. The name can't be guessed, so no link can be there
/// before.
pub fn log_file() -> Result<String> {
    let name = random::hex::<16>()?;
    Ok(format!("/tmp/vshmem-mpirun-{name}.%p"))
}

/// The file in one host of a mixed job: hosts with different pools may have one /tmp.
pub fn log_file_in(host: &str, log: &str) -> String {
    log.replace("%p", &format!("{host}.%p"))
}

/// Refuses settings of the user's own with which nothing can be verified.
pub fn check_settings(settings: &[Setting]) -> Result<()> {
    let is_log = |it: &&Setting| it.name.starts_with("UCX_LOG_");
    match settings.iter().filter(is_log).find_map(|it| Some((it, it.harm?))) {
        Some((it, why)) => Err(error!("{}={}: {why}", it.name, it.value.to_string_lossy())
            .hint(format!("Unset {} for --verify-transport.", it.name))
            .code(2)),
        None => Ok(()),
    }
}

/// A job that is watched.
pub struct Watch<'a> {
    hosts: &'a [Host],
    log: &'a str,
    mixed: bool,
    /// A setting that leads past UCX, and what goes wrong with it.
    harm: Option<String>,
    /// Bytes that had passed each host's network when the job began.
    before: Vec<Option<u64>>,
}

impl<'a> Watch<'a> {
    /// Begins to watch.
    pub fn begin(hosts: &'a [Host], log: &'a str, mixed: bool, settings: &[Setting]) -> Watch<'a> {
        let mut past_ucx = settings.iter().filter(|it| it.past_ucx);
        let harm =
            past_ucx.find_map(|it| Some(format!("{}={}: {}", it.name, it.value.to_string_lossy(), it.harm?)));
        let before = hosts.iter().map(|host| traffic(&reach(host))).collect();
        Watch { hosts, log, mixed, harm, before }
    }

    /// Prints the result on standard error, after a job that has ended with this code. An error if ranks
    /// that share a pool have not talked through it.
    pub fn end(self, code: u8) -> Result<()> {
        let mut groups: BTreeMap<&str, PoolGroup> = BTreeMap::new();
        for (host, before) in self.hosts.iter().zip(&self.before) {
            let files = reach(host);
            let group = groups.entry(host.pool.as_deref().unwrap_or("default")).or_default();
            group.hosts.push(&host.name);
            group.ranks += host.ranks;
            let log = if self.mixed { log_file_in(&host.name, self.log) } else { self.log.into() };
            let pattern = log.replace("%p", "*");
            if let Some(log) = take_log(&files, &pattern) {
                group.transports.read_log(&log);
            }
            if let (Some(before), Some(after)) = (before, traffic(&files)) {
                let bytes = after.saturating_sub(*before);
                group.bytes = group.bytes.max(bytes);
                tell!("vshmem: {}: {bytes} bytes passed its network, the launcher's included", host.name);
            }
        }
        let alone = groups.len() == 1;
        let mut faults = Vec::new();
        for (pool, group) in &groups {
            let (hosts, ranks, bytes) = (group.hosts.len(), group.ranks, group.bytes);
            let seen = GroupJob { alone, hosts, ranks, bytes, harm: self.harm.as_deref() };
            let said = group.transports.summary(code);
            tell!("vshmem: {}: ranks with the pool {pool} {said}", group.hosts.join(","));
            let fault = group.transports.fault(&seen);
            if let Some(doubt) = group.transports.doubt(&seen).filter(|_| fault.is_none()) {
                tell!("vshmem: warning: {bytes} bytes passed a network, and {doubt}.");
            }
            faults.extend(fault.map(|why| format!("the pool {pool}: {why}")));
        }
        match faults.first() {
            Some(fault) if code == 0 => Err(error!("{fault}").hint(HINT).code(1)),
            _ => Ok(()),
        }
    }
}

/// Hosts whose ranks share a pool, and the transports of these.
#[derive(Default)]
struct PoolGroup<'a> {
    hosts: Vec<&'a str>,
    ranks: u32,
    /// The most that have passed the network of one of them.
    bytes: u64,
    transports: GroupTransports,
}

fn traffic(files: &Files) -> Option<u64> {
    let table = files.read("/proc/net/dev".as_ref())?;
    Some(bytes_on_network(&String::from_utf8_lossy(&table)))
}

/// Lines on transports in the logs of a host's ranks, which are removed; `None`: there is no log.
fn take_log(files: &Files, pattern: &str) -> Option<String> {
    // A log of a higher level is too long to be passed on as a whole.
    let script = format!(
        r#"set -- {pattern}
        [ -e "$1" ] || exit 1
        LC_ALL=C sed -n '/ep_cfg\[/p; / cfg#/p; / env variable/p' "$@"
        rm -f "$@""#
    );
    let log = files.output(&["sh".as_ref(), "-c".as_ref(), script.as_ref()])?;
    Some(String::from_utf8_lossy(&log).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_guesses_where_ranks_write() {
        let name = || {
            let file = log_file().unwrap();
            let name = file.strip_prefix("/tmp/vshmem-mpirun-").and_then(|rest| rest.strip_suffix(".%p"));
            u128::from_str_radix(name.unwrap(), 16).unwrap()
        };
        assert!(name().abs_diff(name()) > u128::from(u64::MAX), "each of the 128 bits is drawn");
    }
}
