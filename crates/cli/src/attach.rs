//! The commands `vshmem attach` and `vshmem detach`.

use crate::complete::values;
use crate::output::{each, print};
use clap::Args;
use std::path::PathBuf;
use vshmem_base::{error, Error, Result};
use vshmem_hypervisor::running::attach::{self, AttachOptions};
use vshmem_hypervisor::running::attached::Monitor;
use vshmem_hypervisor::running::persistent;
use vshmem_hypervisor::running::virsh::Domain;
use vshmem_hypervisor::state::ports::Ports;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem attach db --qmp /run/db/qmp.sock          a machine of plain QEMU
  vshmem attach db --libvirt db --connect qemu:///system
  vshmem grant work db
  vshmem attach db --qmp /run/db/qmp.sock --print  the options that QEMU needs for it

QEMU talks to one program at a time at a socket: give this one a socket of its own. The machine needs free PCIe root ports
with room behind them, and to report usable pools vshmem agent --guest and a virtio-serial device; see
docs/guide-existing-machines.md.")]
#[command(group(clap::ArgGroup::new("monitor").args(["qmp", "libvirt"]).required(true)))]
pub struct Attach {
    /// The socket of QEMU's monitor protocol
    #[arg(long, value_name = "SOCKET", add = values::files())]
    qmp: Option<PathBuf>,
    /// A domain of libvirt
    #[arg(long, value_name = "DOMAIN")]
    libvirt: Option<String>,
    /// The URI of libvirt, as for virsh
    #[arg(long, value_name = "URI", requires = "libvirt")]
    connect: Option<String>,
    /// Have vshmem agent serve its pools, so that its waiters need not look every 2 ms (the default with
    /// --qmp if QEMU runs as you or as root)
    #[arg(long, overrides_with = "no_doorbell")]
    doorbell: bool,
    /// Don't have vshmem agent serve its pools
    #[arg(long)]
    no_doorbell: bool,
    /// Only print a permanent configuration: QEMU's options, or parts of libvirt's XML
    #[arg(long)]
    print: bool,
    /// For --print: number of ports
    #[arg(long, default_value_t = Ports::DEFAULT.spare, value_name = "N")]
    spare_pools: u32,
    /// For --print: size of the largest pool that fits into a port, a power of two
    #[arg(long, default_value = "2G", value_parser = vshmem_base::size::parse, value_name = "SIZE")]
    largest_pool: u64,
    /// Its new name
    name: String,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem detach db

The machine runs on. Its pools must have been revoked; see vshmem revoke.")]
pub struct Detach {
    /// Its name
    #[arg(required = true, add = values::attached())]
    name: Vec<String>,
}

/// Attaches a machine.
pub fn attach(attach: &Attach) -> Result<u8> {
    let monitor = match (&attach.qmp, &attach.libvirt) {
        (Some(socket), _) => Monitor::Qmp(absolute(socket)?),
        (None, Some(name)) => {
            Monitor::Libvirt(Domain { name: name.clone(), connect: attach.connect.clone() })
        }
        (None, None) => return Err(Error::new("which machine?").code(2)),
    };
    if attach.print {
        let ports = Ports { spare: attach.spare_pools, largest: attach.largest_pool };
        print(&persistent::describe(&attach.name, &monitor, ports)?)?;
        return Ok(0);
    }
    let chosen = attach.doorbell || attach.no_doorbell;
    let done = attach::attach(&AttachOptions {
        name: attach.name.clone(),
        monitor,
        doorbell: chosen.then_some(!attach.no_doorbell),
    })?;
    let name = &done.record.name;
    let doorbells = match done.no_doorbells {
        None => "wake its waiters".into(),
        Some(why) => format!("don't wake its waiters, which look every 2 ms: {why}"),
    };
    print(&format!("{name} is attached; pools that it is granted {doorbells}\n"))?;
    if let Some(why) = done.no_channel {
        tell!("vshmem: vshmem agent --guest in {name} can't report what it can use: {why}");
    }
    Ok(0)
}

fn absolute(path: &PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| error!("{} is no path: {e}", path.display()).code(2))
}

/// Detaches machines.
pub fn detach(detach: &Detach) -> Result<u8> {
    each(&detach.name, attach::detach)
}
