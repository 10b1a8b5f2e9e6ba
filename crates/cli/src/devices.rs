//! The command `vshmem devices`: the PCI functions of this host that machines can be given, and those that
//! they have.

use crate::complete::values;
use crate::json::print_document;
use crate::output::print;
use crate::table::{or_dash, Table};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use vshmem_base::{error, Result};
use vshmem_cluster::host::devices;
use vshmem_devices::address::Address;
use vshmem_devices::direct::{self, Direct, Peer};
use vshmem_devices::function::Function;
use vshmem_devices::ledger::Held;
use vshmem_devices::obstacle::{goes_along, obstacles, Obstacle};
use vshmem_devices::survey::{Iommu, Survey, User};
use vshmem_devices::tree::Directory;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem devices                              what there is, and whether a machine can have it
  vshmem devices --explain                    what stands in the way, and how to mend it
  vshmem devices --explain 0000:01:00.0       of this one
  vshmem devices --json | jq -r '.devices[] | select(.state == \"free\").address'

A machine of a cluster's file gets devices by devices = [\"0000:01:00.0\", \"vf of 0000:02:00.0\", \"2 x nvme\"];
see docs/guide-cluster-file.md. Bridges are left out. Nothing is changed.

Exit codes:
  0    success
  1    there is no device at such an address
  2    a mistake in the command line")]
pub struct Devices {
    /// Only these
    #[arg(value_name = "ADDRESS")]
    pub addresses: Vec<Address>,
    /// Say of each device what stands in the way of giving it to a machine, and how to mend it
    #[arg(long, conflicts_with = "json")]
    pub explain: bool,
    /// Look at a copy of another system's proc and sys below this directory
    #[arg(long, value_name = "DIR", add = values::directories())]
    pub root: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The devices of a host, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    /// The state of the IOMMU, which keeps devices to the memory of their machine: on, unused (the kernel
    /// does not use it) or absent.
    iommu: &'static str,
    /// Bytes of memory that this user may lock; null: any, or not known.
    memlock: Option<u64>,
    /// The PCI functions, by their addresses.
    devices: Vec<Device>,
}

/// A PCI function.
#[derive(Serialize, JsonSchema)]
struct Device {
    /// Its PCI address.
    address: Address,
    /// Its vendor and device.
    id: String,
    /// Its kind, as machines can ask for it; or other.
    kind: &'static str,
    /// Its driver on this host; null: none.
    driver: Option<String>,
    /// Its IOMMU group; null: there is no IOMMU.
    group: Option<u32>,
    /// Functions of the same device that go along with it, to the same machine.
    along: Vec<Address>,
    /// The memory node that it is near to; null: the firmware does not say.
    node: Option<u32>,
    /// The number of virtual functions that it can have.
    total_vfs: u32,
    /// Its virtual functions.
    vfs: Vec<Address>,
    /// Its physical function; null: it is no virtual one.
    physical: Option<Address>,
    /// Its state: whether a machine can have it.
    state: State,
    /// The machine that has it, or for whose sake it is kept; null: none.
    holder: Option<Holder>,
    /// The obstacles to giving it to a machine.
    obstacles: Vec<Obstacle>,
    /// The conditions for transfers to its memory without the host's (GPUDirect); null: it is no GPU.
    direct: Option<Direct>,
}

/// The state of a function: whether a machine can have it.
#[derive(Serialize, JsonSchema, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Yes.
    Free,
    /// A machine has it.
    Held,
    /// Something stands in the way.
    Hindered,
}

/// A machine that has a function.
#[derive(Serialize, JsonSchema)]
struct Holder {
    /// Its cluster.
    cluster: String,
    /// Its name.
    machine: String,
}

/// Lists devices.
pub fn devices(devices: &Devices) -> Result<u8> {
    let (tree, held, user) = match &devices.root {
        Some(root) => (Directory::below(root), vec![], None),
        None => (Directory::live(), devices::held()?, Some(User::current())),
    };
    let survey = Survey::of(&tree);
    for address in &devices.addresses {
        if survey.find(*address).is_none() {
            return Err(error!("there is no PCI function {address}").code(1));
        }
    }
    let is_asked = |function: &&Function| match devices.addresses.is_empty() {
        true => !function.is_bridge(),
        false => devices.addresses.contains(&function.address),
    };
    let shown = survey.functions.iter().filter(is_asked);
    let report = Report {
        iommu: match survey.iommu {
            Iommu::On => "on",
            Iommu::Unused => "unused",
            Iommu::Absent => "absent",
        },
        memlock: user.and_then(|user| user.memlock),
        devices: shown.map(|function| device(&tree, &survey, function, &held, user)).collect(),
    };
    match (devices.json, devices.explain) {
        (true, _) => print_document(report)?,
        (_, true) => print(&explained(&report, user))?,
        _ => print(&table(&report))?,
    }
    Ok(0)
}

fn device(
    tree: &Directory,
    survey: &Survey,
    function: &Function,
    held: &[Held],
    user: Option<User>,
) -> Device {
    let holder = held.iter().find(|held| held.address == function.address).map(|held| Holder {
        cluster: held.holder.cluster.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        machine: held.holder.machine.clone(),
    });
    let obstacles = match holder {
        Some(_) => vec![],
        None => obstacles(tree, survey, function, &[], user),
    };
    let state = match (&holder, obstacles.is_empty()) {
        (Some(_), _) => State::Held,
        (None, true) => State::Free,
        (None, false) => State::Hindered,
    };
    let along = survey.group_of(function).filter(|it| goes_along(function, it));
    Device {
        address: function.address,
        id: function.id.to_string(),
        kind: function.kind(),
        driver: function.driver.clone(),
        group: function.group,
        along: along.map(|it| it.address).collect(),
        node: function.node,
        total_vfs: function.total_vfs,
        vfs: function.vfs.clone(),
        physical: function.physical,
        state,
        holder,
        obstacles,
        direct: direct::of(tree, survey, function),
    }
}

fn table(report: &Report) -> String {
    let mut table = Table::new("ADDRESS  KIND  ID  DRIVER  GROUP  NODE  VFS  STATE");
    for it in &report.devices {
        let vfs = match it.total_vfs {
            0 => "-".into(),
            total => format!("{}/{total}", it.vfs.len()),
        };
        table.row(&[
            &it.address,
            &it.kind,
            &it.id,
            &or_dash(it.driver.as_ref()),
            &or_dash(it.group),
            &or_dash(it.node),
            &vfs,
            &state(it),
        ]);
    }
    table.layout()
}

/// The holder of a device, or its first obstacle.
fn state(device: &Device) -> String {
    match (&device.holder, device.obstacles.first()) {
        (Some(Holder { cluster, machine }), _) => format!("held by {machine} of {cluster}"),
        (None, Some(first)) => first.why.clone(),
        (None, None) => "free".into(),
    }
}

fn explained(report: &Report, user: Option<User>) -> String {
    let mut out = format!("IOMMU: {}\n", report.iommu);
    if let (Some(limit), Some(false)) = (report.memlock, user.map(|user| user.is_root)) {
        out += &format!(
            "memlock: {} MiB: a machine with devices takes all of its memory and its pools' of that\n",
            limit >> 20
        );
    }
    for it in &report.devices {
        let named =
            |what: &str, value: Option<String>| value.map(|it| format!(", {what} {it}")).unwrap_or_default();
        let driver = it.driver.as_ref().map_or(", no driver".into(), |driver| format!(", driver {driver}"));
        let group = named("group", it.group.map(|it| it.to_string()));
        let node = named("node", it.node.map(|it| it.to_string()));
        out += &format!("\n{}: {} {}{driver}{group}{node}\n", it.address, it.kind, it.id);
        let mut say = |text: &str| out += &format!("  {text}\n");
        match (&it.holder, it.state) {
            (Some(Holder { cluster, machine }), _) => {
                say(&format!("held by {machine} of the cluster {cluster}"))
            }
            (None, State::Free) => {
                say(&format!("free: devices = [\"{}\"] gives it to a machine", it.address))
            }
            (None, _) => say("can't be given to a machine:"),
        }
        for obstacle in &it.obstacles {
            say(&format!("- {}", obstacle.why));
            say(&format!("  mend it: {}", obstacle.remedy));
        }
        if !it.along.is_empty() {
            let along: Vec<_> = it.along.iter().map(Address::to_string).collect();
            say(&format!("the same machine holds {}, which is in its group", along.join(", ")));
        }
        if it.total_vfs > 0 {
            let (made, total) = (it.vfs.len(), it.total_vfs);
            say(&format!("has {made} of {total} virtual functions: devices = [\"vf of {}\"]", it.address));
        }
        if let Some(physical) = it.physical {
            say(&format!("a virtual function of {physical}"));
        }
        it.direct.iter().flat_map(about_direct).for_each(|line| say(&line));
    }
    out
}

/// The conditions of GPUDirect, a line each.
fn about_direct(direct: &Direct) -> Vec<String> {
    let window = match direct.large_bar {
        true => "its window shows 1 GiB of memory or more",
        false => {
            "its window shows less than 1 GiB of memory: turn on resizable BARs in the firmware's settings"
        }
    };
    let peer = |Peer { address, below, redirected }: &Peer| {
        let way = match below {
            Some(bridge) => format!("meets it below the bridge {bridge}"),
            None => "meets it at the processor, which may not pass transfers on, or slowly".into(),
        };
        let redirected = match redirected {
            Some(true) => "; ACS sends transfers up to the processor, which costs speed",
            Some(false) => "; no bridge between sends transfers up",
            None => "; only root sees whether ACS sends transfers up",
        };
        format!("GPUDirect: {address} {way}{redirected}")
    };
    std::iter::once(format!("GPUDirect: {window}")).chain(direct.peers.iter().map(peer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_devices::obstacle::ObstacleKind;

    fn nvme() -> Device {
        Device {
            address: "01:00.0".parse().unwrap(),
            id: "1b36:0010".into(),
            kind: "nvme",
            driver: Some("nvme".into()),
            group: Some(3),
            along: vec![],
            node: None,
            total_vfs: 4,
            vfs: vec![],
            physical: None,
            state: State::Free,
            holder: None,
            obstacles: vec![],
            direct: None,
        }
    }

    #[test]
    fn what_stands_in_the_way_is_told_with_its_remedy() {
        let obstacle = Obstacle {
            kind: ObstacleKind::DriverBusy,
            why: "it is mounted".into(),
            remedy: "unmount".into(),
        };
        let hindered = Device { state: State::Hindered, obstacles: vec![obstacle], ..nvme() };
        let holder = Holder { cluster: "c".into(), machine: "vm0".into() };
        let held = Device { state: State::Held, holder: Some(holder), node: Some(1), ..nvme() };
        let report = Report { iommu: "on", memlock: Some(8 << 20), devices: vec![nvme(), hindered, held] };
        let text = table(&report);
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert!(rows[0].ends_with("0/4  free") && rows[1].ends_with("0/4  it is mounted"), "{text}");
        assert!(rows[2].ends_with("1     0/4  held by vm0 of c"), "{text}");
        let text = explained(&report, Some(User { is_root: false, memlock: Some(8 << 20) }));
        for line in [
            "memlock: 8 MiB: ",
            "0000:01:00.0: nvme 1b36:0010, driver nvme, group 3\n",
            "  free: devices = [\"0000:01:00.0\"] gives",
            "  - it is mounted\n    mend it: unmount\n",
            ", node 1\n  held by vm0 of the cluster c\n",
            "  has 0 of 4 virtual functions: devices = [\"vf of 0000:01:00.0\"]\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
