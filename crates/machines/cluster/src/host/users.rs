//! Users of a pool of this host: programs and machines.

use super::cluster;
use std::path::Path;
use vshmem_base::directories::cluster_names;
use vshmem_base::error::{error, Result};
use vshmem_hypervisor::launcher::table::{attached, clear_attached};
use vshmem_hypervisor::state::machine::{state, MachineState};
use vshmem_hypervisor::state::record::{Granted, Record};
use vshmem_inspect::host_pool::path_of;
use vshmem_inspect::participants::Member;
use vshmem_inspect::pools;
use vshmem_inspect::sample::Watched;

/// An error if the pool of this name or path is in use.
pub fn check_unused(pool: &str) -> Result<()> {
    let users = users(pool)?;
    if users.is_empty() {
        return Ok(());
    }
    Err(error!("the pool {pool} is in use: by {}",
        users.join(", "))
    .code(1)
    .hint(
        "End them, or revoke it from machines with vshmem revoke; vshmem check removes what dead processes have left. \
         vshmem pool rm --force removes it anyway: its users keep it until they end, and nobody else finds it.",
    ))
}

/// Declares machines that died, or are off, dead in the pool of this name or path, so that no process waits
/// for them.
pub fn declare_dead_machines(pool: &str) -> Result<()> {
    let Some(pool) = &path_of(pool) else {
        return Ok(());
    };
    for name in cluster_names()? {
        let record = Record::read(&name).ok().flatten();
        if record.is_some_and(|record| has(&record, pool)) {
            cluster::declare_dead_machines(&name)?;
        }
    }
    for attached in attached::list()? {
        if have(&attached.pools, pool) && !attached.runs() {
            clear_attached(&attached.name)?;
        }
    }
    Ok(())
}

fn has(record: &Record, pool: &Path) -> bool {
    let mut machines = record.machines.iter();
    is(&record.pool, pool) || machines.any(|machine| have(&machine.pools, pool))
}

fn have(pools: &[Granted], pool: &Path) -> bool {
    pools.iter().any(|had| is(&had.path, pool))
}

/// Whether both paths lead to one file; the second has no symbolic links.
fn is(had: &Path, pool: &Path) -> bool {
    had == pool || had.canonicalize().is_ok_and(|had| had == pool)
}

fn users(pool: &str) -> Result<Vec<String>> {
    let mut users = Vec::new();
    let Some(path) = path_of(pool).filter(|path| path.exists()) else {
        return Ok(users);
    };
    for name in cluster_names()? {
        // A cluster whose record can't be read may use any pool.
        if let Some(record) = Record::read(&name).ok().flatten() {
            users.extend(machines(&record, &path));
        }
    }
    for attached in attached::list()? {
        if have(&attached.pools, &path) && attached.runs() {
            users.push(format!("the attached machine {}", attached.name));
        }
    }
    users.extend(programs(pool));
    Ok(users)
}

/// A cluster's running machines that have a pool; if there are none, the cluster itself if it can be
/// restarted with the pool.
fn machines(record: &Record, pool: &Path) -> Vec<String> {
    let runs = |machine| state(record, machine) != MachineState::Died;
    let cluster = &record.name;
    let running = record.machines.iter().filter(|machine| runs(machine));
    let mut users: Vec<String> = running
        .filter(|machine| have(&machine.pools, pool))
        .map(|machine| format!("{} of the cluster {cluster}", machine.name))
        .collect();
    if users.is_empty() && is(&record.pool, pool) && record.is_left_to_restart() {
        users.push(format!(
            "the cluster {cluster}, whose machines can be restarted with it (vshmem down removes both)"
        ));
    }
    users
}

/// Programs in a pool. A pool that is damaged has none.
fn programs(pool: &str) -> Vec<String> {
    let found = pools::find(Some(pool)).ok();
    let found = found.iter().flatten().next();
    let watched = found.and_then(|pool| Watched::open(pool).ok());
    let members = watched.map(|pool| pool.members()).unwrap_or_default();
    let works = |member: &&Member| member.alive && member.processes > 0;
    members.iter().filter(works).map(described).collect()
}

fn described(member: &Member) -> String {
    let plural = if member.processes == 1 { "" } else { "es" };
    let whose = match member.here {
        true => "here".into(),
        false => format!("of {}", member.name),
    };
    format!("{} process{plural} {whose}", member.processes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::Mutex;
    use vshmem_base::directories::{boot_id, cluster_directory, private_directory};
    use vshmem_hypervisor::state::disks::remove_cluster_directory;
    use vshmem_inspect::client::Client;

    /// The tests share the user's runtime directory, which is removed when it is empty.
    static RUNTIME: Mutex<()> = Mutex::new(());

    #[test]
    fn a_pool_is_in_use_as_long_as_a_process_is_in_it() {
        let _turn = RUNTIME.lock();
        let path = format!("/dev/shm/vshmem-using-{}", std::process::id());
        assert!(check_unused(&path).is_ok(), "there is none");
        vshmem_inspect::pools::create(&path, 4 << 20, 0o600, &[], vshmem_inspect::pools::Form::default())
            .unwrap();
        let client = Client::join(&pools::find(Some(&path)).unwrap()[0]).unwrap();
        assert!(check_unused(&path).is_ok(), "who only looks does not count");
        // Programs announce that they have begun.
        let c = client.context();
        c.pool.proc(c.me.slot).unwrap().started.store(1, SeqCst);
        let why = check_unused(&path).unwrap_err();
        assert!(why.to_string().contains("1 process here"), "{why}");
        assert_eq!(why.exit_code(), 1);
        // As by SIGKILL.
        client.die();
        let after = check_unused(&path);
        vshmem_inspect::pools::remove(&path).unwrap();
        assert!(after.is_ok());
    }

    #[test]
    fn a_check_declares_dead_machines_dead_and_a_listing_does_not() {
        let _turn = RUNTIME.lock();
        let name = format!("users{}", std::process::id());
        let path = format!("/dev/shm/vshmem-{name}");
        vshmem_inspect::pools::create(&path, 4 << 20, 0o600, &[], vshmem_inspect::pools::Form::default())
            .unwrap();
        let found = &pools::find(Some(&path)).unwrap()[0];
        let client = Client::join(found).unwrap();
        client.context().pool.join([9; 16], b"vm0").unwrap();
        // Another cluster has a machine of this name, which was granted the pool.
        let number = client.context().pool.join([8; 16], b"vm0").unwrap();
        let granted = client.member(number).unwrap();
        let pool = json!({"name": "default", "path": path, "size": 4 << 20, "doorbell": false});
        let machine =
            json!({"name": "vm0", "index": 0, "runs": null, "address": null, "cores": [], "pools": [pool]});
        let record = json!({
            "version": 2, "name": name, "boot": boot_id(), "starter": null, "accel": "", "kernel": "/kernel", "cpus": 1,
            "memory": 1 << 29, "pool": path, "pool_size": 4 << 20, "channels": 1, "since": 1, "machines": [machine]
        });
        let mut other = record.clone();
        let elsewhere = format!("{name}b");
        other["name"] = json!(elsewhere);
        other["pool"] = json!("/dev/shm/vshmem-elsewhere");
        other["machines"][0]["pools"][0]["member"] = json!(granted);
        for record in [record, other] {
            let record: Record = serde_json::from_value(record).unwrap();
            private_directory(&cluster_directory(&record.name).unwrap()).unwrap();
            record.write().unwrap();
        }
        let lives = || {
            let members = Watched::open(found).unwrap().members();
            let living = |member: &&Member| member.name == "vm0" && member.alive;
            members.iter().filter(living).count()
        };
        let listed = cluster::list().unwrap();
        let before = (listed.iter().any(|listed| listed.record.name == name), lives());
        cluster::declare_dead_machines(&name).unwrap();
        let after = lives();
        let granted_lives = client.member(number) == Some(granted);
        declare_dead_machines(&path).unwrap();
        let after_all = lives();
        for name in [&name, &elsewhere] {
            remove_cluster_directory(name).unwrap();
        }
        vshmem_inspect::pools::remove(&path).unwrap();
        assert_eq!((before, after, after_all), ((true, 2), 1, 0));
        assert!(granted_lives);
    }
}
