//! The check of a pool's integrity, made after what dead processes have left was repaired.

use crate::client::Client;
use crate::pools::name_of;
use std::thread;
use std::time::Duration;
use vshmem_base::error::{error, Result, OUR_FAILURE};
use vshmem_ipc::check::{inspect, repair, scratch_for, Repaired};
use vshmem_ipc::{Budget, Ctx};
use vshmem_transport::PoolRef;

/// Passes over a pool. A structure that looks wrong while an operation is under way, or just after a death,
/// is right in one of them.
const PASSES: u32 = 6;
/// The pause before the second pass; each following one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Budget of a pass: some seconds. Pools that were not tampered with take much less.
const BUDGET: u64 = 1 << 29;
/// Budget for each block of the pool.
const BUDGET_OF_A_BLOCK: u64 = 4;
/// More damage than this is not reported.
const MAX_REPORTED: usize = 1000;

/// The result of a check.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The pool's name, or its path if it has none.
    pub pool: String,
    /// The repairs that were made.
    pub repaired: Repaired,
    /// Damage that can't be repaired, as sentences.
    pub damage: Vec<String>,
}

/// Repairs what dead processes have left in a pool, and then verifies all of it, while it is in use.
pub fn check(pool: &PoolRef) -> Result<CheckReport> {
    // The code 1 has another meaning here.
    let client = Client::join_without_cleanup(pool).map_err(|e| e.code(OUR_FAILURE))?;
    let c = client.context();
    let geometry = c.pool.geometry();
    let blocks = u64::from(geometry.small.count) + u64::from(geometry.pages.count);
    let c = Ctx { budget: Budget::new(BUDGET + blocks * BUDGET_OF_A_BLOCK), ..c };
    let mut checked = CheckReport { pool: name_of(pool), repaired: Repaired::default(), damage: Vec::new() };
    let mut scratch = vec![0; scratch_for(c.pool)];
    let mut pause = FIRST_PAUSE;
    for pass in 1.. {
        let seen = check_once(&c, &mut scratch, &mut checked);
        if seen && checked.damage.is_empty() {
            break;
        }
        if c.budget.is_spent() {
            let why = "a walk through its structures does not end";
            return Err(error!("could not check the pool {}: {why}", checked.pool)
                .hint("A member has damaged it: remove it and make a new one."));
        }
        if pass == PASSES {
            let stuck = || {
                let why = "a process holds a lock in it and makes no progress";
                error!("could not check the pool {}: {why}", checked.pool)
                    .hint("A process that uses it may be stopped: continue or end it, and try again.")
            };
            return if seen { Ok(checked) } else { Err(stuck()) };
        }
        thread::sleep(pause);
        pause *= 2;
    }
    Ok(checked)
}

/// Repairs and verifies. False if not everything could be seen.
fn check_once(c: &Ctx<'_>, scratch: &mut [u64], checked: &mut CheckReport) -> bool {
    checked.damage.clear();
    c.budget.refill();
    let Ok(repaired) = repair(c) else {
        return false;
    };
    checked.repaired += repaired;
    let report = |finding: vshmem_ipc::check::Finding| {
        if checked.damage.len() < MAX_REPORTED {
            checked.damage.push(finding.to_string());
        }
    };
    inspect(c, scratch, report).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use vshmem_ipc::{msg, sem, shm, IPC_CREAT};

    /// A pool for one test.
    fn with_pool(name: &str, test: impl FnOnce(&PoolRef)) {
        let path = format!("/dev/shm/vshmem-check-{name}-{}", std::process::id());
        crate::pools::create(&path, 4 << 20, 0o600, &[], crate::pools::Form::default()).unwrap();
        test(&crate::pools::find(Some(&path)).unwrap()[0]);
        crate::pools::remove(&path).unwrap();
    }

    #[test]
    fn a_pool_in_use_is_whole() {
        with_pool("whole", |pool| {
            let client = Client::join(pool).unwrap();
            let c = client.context();
            let id = shm::get(&c, 7, 300_000, IPC_CREAT | 0o600).unwrap();
            shm::attach(&c, id, 0).unwrap();
            sem::get(&c, 7, 3, IPC_CREAT | 0o600).unwrap();
            msg::get(&c, 7, IPC_CREAT | 0o600).unwrap();
            let checked = check(pool).unwrap();
            assert!(checked.repaired.is_nothing() && checked.damage.is_empty());
        });
    }

    #[test]
    fn leftovers_of_dead_processes_are_repaired_and_reported() {
        with_pool("mended", |pool| {
            let client = Client::join(pool).unwrap();
            let c = client.context();
            let id = shm::get(&c, 7, 5000, IPC_CREAT | 0o600).unwrap();
            shm::attach(&c, id, 0).unwrap();
            // Its liveness lock is gone, and it has said nothing.
            client.die();
            let checked = check(pool).unwrap();
            let one = Repaired { processes: 1, ..Repaired::default() };
            assert_eq!((checked.repaired, checked.damage), (one, vec![]));
        });
    }

    #[test]
    fn damage_is_reported() {
        with_pool("damaged", |pool| {
            let client = Client::join(pool).unwrap();
            let c = client.context();
            let id = shm::get(&c, 7, 5000, IPC_CREAT | 0o600).unwrap();
            c.pool.shm(id as u32 & 0x1ffff).unwrap().nattch.store(3, Relaxed);
            let checked = check(pool).unwrap();
            assert_eq!(checked.damage, ["segment at index 0: it counts its attachments wrongly (3)"]);
        });
    }
}
