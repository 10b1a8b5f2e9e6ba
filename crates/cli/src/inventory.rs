//! The command `vshmem inventory`: a cluster as Ansible's inventory. The output has the shape of Ansible's
//! inventory scripts, and not one of ours (docs/json.md).

use crate::args::ClusterArg;
use crate::complete::values;
use crate::output::print;
use clap::Args;
use serde::Serialize;
use serde_json::{json, Value};
use std::path::Path;
use vshmem_base::{error, Explain, Result};
use vshmem_guest::settings::uplink::Addresses;
use vshmem_hypervisor::launcher::starting::uplink_of;
use vshmem_hypervisor::state::machine::{all_of, MachineState};
use vshmem_hypervisor::state::record::{Machine, Record};

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem inventory
  vshmem inventory --host vm0 -c other
  ansible -i examples/ansible/inventory all -m ping

Prints what Ansible asks its inventory scripts for: all machines of the cluster, as the group cluster_NAME, and how they are
reached. examples/ansible has such a script, and the connection that it names: commands go by vshmem exec, as root unless
ansible_user says otherwise, so that machines need no ssh server, no key and no network.")]
pub struct Inventory {
    #[command(flatten)]
    cluster: ClusterArg,
    /// All machines: the default, and what Ansible asks with
    #[arg(long, conflicts_with = "host")]
    list: bool,
    /// One machine's variables
    #[arg(long, value_name = "VM", add = values::machines())]
    host: Option<String>,
}

/// The variables of a machine for Ansible.
#[derive(Serialize)]
struct Variables<'a> {
    /// The connection of examples/ansible.
    ansible_connection: &'static str,
    vshmem_program: &'a Path,
    vshmem_cluster: &'a str,
    vshmem_state: MachineState,
    /// The machine's address on the network between the machines.
    vshmem_address: Option<&'a str>,
    /// The machine's address on its uplink, if no DHCP server gives it.
    vshmem_outside: Option<String>,
}

/// Prints the inventory.
pub fn inventory(asked: &Inventory) -> Result<u8> {
    let (record, states) = all_of(&asked.cluster.cluster)?;
    let program = std::env::current_exe().explain(|| "finding this program's own file".into())?;
    let told = match &asked.host {
        None => list(&record, &states, &program),
        Some(name) => {
            let mut machines = record.machines.iter().zip(&states);
            let (machine, state) = machines
                .find(|(machine, _)| machine.name == *name)
                .ok_or_else(|| error!("the cluster {} has no machine {name}", record.name).code(1))?;
            variables(&record, machine, *state, &program)
        }
    };
    print(&format!("{told:#}\n")).map(|()| 0)
}

fn list(record: &Record, states: &[MachineState], program: &Path) -> Value {
    let names: Vec<&str> = record.machines.iter().map(|machine| machine.name.as_str()).collect();
    let machines = record.machines.iter().zip(states);
    let told = machines.map(|(machine, state)| {
        let name = machine.name.clone();
        (name, variables(record, machine, *state, program))
    });
    let told: serde_json::Map<String, Value> = told.collect();
    let group = group(&record.name);
    json!({ "_meta": { "hostvars": told }, group: { "hosts": names } })
}

/// The group of a cluster's machines. Ansible takes letters, digits and underscores.
fn group(cluster: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("cluster_{}", cluster.chars().map(plain).collect::<String>())
}

fn variables(record: &Record, machine: &Machine, state: MachineState, program: &Path) -> Value {
    let outside = uplink_of(record, machine).and_then(|card| match card.addresses {
        Addresses::Dhcp => None,
        Addresses::Static(own) => Some(own.address.to_string()),
    });
    let told = Variables {
        ansible_connection: "vshmem",
        vshmem_program: program,
        vshmem_cluster: &record.name,
        vshmem_state: state,
        vshmem_address: machine.address.as_deref(),
        vshmem_outside: outside,
    };
    serde_json::to_value(told).expect("it is plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_is_what_ansible_asks_for() {
        let machine = |index: u32| json!({"name": format!("w{index}"), "index": index, "runs": null, "address": "10.77.0.1", "cores": []});
        let record: Record = serde_json::from_value(json!({
            "version": 2, "name": "my-own", "boot": "", "starter": null, "accel": "", "kernel": "/kernel",
            "pool": "/none", "pool_size": 1 << 20, "channels": 1, "since": 0, "machines": [machine(0), machine(1)]
        }))
        .unwrap();
        let states = [MachineState::Running, MachineState::Died];
        let told = list(&record, &states, Path::new("/usr/bin/vshmem"));
        assert_eq!(told["cluster_my_own"], json!({ "hosts": ["w0", "w1"] }));
        let of_one = json!({
            "ansible_connection": "vshmem", "vshmem_program": "/usr/bin/vshmem", "vshmem_cluster": "my-own",
            "vshmem_state": "died", "vshmem_address": "10.77.0.1", "vshmem_outside": null
        });
        assert_eq!(told["_meta"]["hostvars"]["w1"], of_one);
        assert_eq!(told.as_object().unwrap().len(), 2, "any other key would be a group");
    }
}
