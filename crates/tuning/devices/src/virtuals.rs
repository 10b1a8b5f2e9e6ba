//! Making virtual functions (SR-IOV), and removing them. The caller writes each change down before.

use crate::address::Address;
use crate::function::{Function, DEVICES};
use crate::ledger::VirtualFunctions;
use crate::tree::Tree;
use vshmem_base::error::{error, Explain, Result};

/// Virtual functions that are made at least, if there can be so many: their number can't change while one is
/// used.
const AHEAD: u32 = 8;

/// The virtual functions that are to be made of a physical one, if so many are wanted.
///
/// # Errors
/// It can't have so many.
pub fn planned(tree: &dyn Tree, physical: &Function, wanted: u32) -> Result<VirtualFunctions> {
    let (address, total) = (physical.address, physical.total_vfs);
    if total < wanted {
        return Err(error!("{address} can have {total} virtual functions, and {wanted} are wanted").code(1));
    }
    let autoprobe = tree.text(&format!("{DEVICES}/{address}/sriov_drivers_autoprobe"));
    Ok(VirtualFunctions { physical: address, count: wanted.max(total.min(AHEAD)), autoprobe })
}

/// Makes them. No driver of the host gets them.
///
/// # Errors
/// The kernel or the driver of the physical function refuses it.
pub fn make(tree: &dyn Tree, made: &VirtualFunctions) -> Result<()> {
    let VirtualFunctions { physical, count, autoprobe } = made;
    if autoprobe.is_some() {
        set(tree, *physical, "sriov_drivers_autoprobe", "0")?;
    }
    set(tree, *physical, "sriov_numvfs", &count.to_string())
        .map_err(|why| why.hint("Its driver may have none, or too little room behind its bridge: see dmesg."))
}

/// Has drivers get new virtual functions as before.
///
/// # Errors
/// The kernel refuses it.
pub fn restore_autoprobe(tree: &dyn Tree, made: &VirtualFunctions) -> Result<()> {
    match &made.autoprobe {
        Some(before) if Function::read(tree, made.physical).is_some() => {
            set(tree, made.physical, "sriov_drivers_autoprobe", before)
        }
        _ => Ok(()),
    }
}

/// Removes them, unless somebody else has changed their number since, or has given one to a driver.
///
/// # Errors
/// The kernel refuses it.
pub fn remove(tree: &dyn Tree, made: &VirtualFunctions) -> Result<()> {
    restore_autoprobe(tree, made)?;
    let Some(physical) = Function::read(tree, made.physical) else {
        return Ok(());
    };
    let is_used = |address: &Address| Function::read(tree, *address).is_some_and(|it| it.driver.is_some());
    match physical.vfs.len() as u32 == made.count && !physical.vfs.iter().any(is_used) {
        true => set(tree, made.physical, "sriov_numvfs", "0"),
        false => Ok(()),
    }
}

fn set(tree: &dyn Tree, physical: Address, name: &str, value: &str) -> Result<()> {
    tree.write(&format!("{DEVICES}/{physical}/{name}"), value)
        .explain(|| format!("could not set {name} of {physical} to {value}"))
}
