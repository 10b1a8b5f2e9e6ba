//! The accounts of root's machines, and of the servers of their roots: user ids that no account or process
//! has. A process of such a user can read and change the machine's memory.

use std::collections::BTreeSet;
use vshmem_base::directories::cluster_names;
use vshmem_base::error::Result;
use vshmem_base::user::{self, has_account, uid};
use vshmem_hypervisor::state::record::{Machine, Record};

/// Gives each of these machines of a record a user, if root starts them. The caller has the lock for
/// claims.
pub fn assign(record: &mut Record, indices: &[usize]) -> Result<()> {
    if uid() != 0 {
        return Ok(());
    }
    let mut taken = BTreeSet::new();
    for name in cluster_names()?.iter().filter(|name| **name != record.name) {
        // A record that can't be read does not keep another cluster from being started.
        if let Some(other) = Record::read(name).ok().flatten() {
            taken.extend(other.machines.iter().filter_map(Machine::user));
            taken.extend(other.root.and_then(|root| root.user));
        }
    }
    let others = record.machines.iter().enumerate().filter(|(index, _)| !indices.contains(index));
    taken.extend(others.filter_map(|(_, machine)| machine.user()));
    if let Some(root) = &mut record.root {
        // The server sees what a user without rights sees, and is nobody that a machine is.
        let user = match root.user.filter(|user| !has_account(*user) && !taken.contains(user)) {
            Some(user) => user,
            None => user::unused(&taken)?,
        };
        taken.insert(user);
        root.user = Some(user);
    }
    for &index in indices {
        let machine = &mut record.machines[index];
        // One that is restarted may still have processes of its user.
        let runs = machine.runs.as_ref().is_some_and(|runs| runs.alive());
        let user = match machine.user.filter(|user| runs && !has_account(*user)) {
            Some(user) => user,
            None => user::unused(&taken)?,
        };
        taken.insert(user);
        machine.user = Some(user);
    }
    Ok(())
}
