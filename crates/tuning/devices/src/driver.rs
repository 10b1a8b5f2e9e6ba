//! Changing a function's driver, and putting the former one back. Each can be repeated after it was
//! interrupted at any step.

use crate::address::Address;
use crate::function::{Function, DEVICES};
use crate::ledger::Held;
use crate::tree::Tree;
use std::io::ErrorKind;
use vshmem_base::error::{error, Error, Explain, Result};

/// The driver through which a program has a function to itself.
pub const VFIO: &str = "vfio-pci";
const DRIVERS: &str = "sys/bus/pci/drivers";

/// Binds a function to [`VFIO`]. What it was before is written down already.
///
/// # Errors
/// The kernel refuses it; the function may have no driver then.
pub fn bind_to_vfio(tree: &dyn Tree, address: Address) -> Result<()> {
    let function = Function::read(tree, address).ok_or_else(|| gone(address))?;
    if function.driver.as_deref() == Some(VFIO) {
        return Ok(());
    }
    if tree.names(&format!("{DRIVERS}/{VFIO}")).is_err() {
        tree.load(VFIO).explain(|| format!("could not load the driver {VFIO}"))?;
    }
    let failed = || format!("could not bind {address} to {VFIO}");
    tree.write(&format!("{DEVICES}/{address}/driver_override"), VFIO).explain(failed)?;
    if let Some(driver) = &function.driver {
        unbind(tree, address, driver)?;
    }
    tree.write("sys/bus/pci/drivers_probe", &address.to_string()).explain(failed)?;
    match Function::read(tree, address).and_then(|function| function.driver) {
        Some(driver) if driver == VFIO => Ok(()),
        _ => Err(error!("{}: the driver does not take it", failed()).hint(
            "The kernel's messages say why (dmesg); perhaps another function of its group has a driver.",
        )),
    }
}

fn gone(address: Address) -> Error {
    error!("there is no PCI function {address}").code(1).hint("See vshmem devices.")
}

fn unbind(tree: &dyn Tree, address: Address, driver: &str) -> Result<()> {
    tree.write(&format!("{DRIVERS}/{driver}/unbind"), &address.to_string())
        .explain(|| format!("could not take {address} from its driver {driver}"))
}

/// Gives a function back to the driver that it had. Nothing is done to one that is gone, or that somebody
/// else has bound to a driver since.
///
/// # Errors
/// A program still has it, or the kernel refuses it.
pub fn give_back(tree: &dyn Tree, held: &Held) -> Result<()> {
    let Held { address, group, driver: former, driver_override, .. } = held;
    let Some(function) = Function::read(tree, *address) else {
        return Ok(());
    };
    let is_ours = function.driver.as_deref() == Some(VFIO) && former.as_deref() != Some(VFIO);
    // The kernel would wait until it is closed.
    if is_ours
        && tree.try_open(&format!("dev/vfio/{group}")).is_err_and(|why| why.kind() == ErrorKind::ResourceBusy)
    {
        return Err(error!("{address} can't be given back: a program has /dev/vfio/{group} open")
            .hint("End that program (fuser -v names it), and repeat the command."));
    }
    let failed = || format!("could not give {address} back");
    if function.driver_override.as_deref() == Some(VFIO) && *driver_override != function.driver_override {
        let before = driver_override.as_deref().unwrap_or_default();
        tree.write(&format!("{DEVICES}/{address}/driver_override"), before).explain(failed)?;
    }
    if is_ours {
        unbind(tree, *address, VFIO)?;
    } else if function.driver.is_some() {
        return Ok(());
    }
    match former {
        Some(driver) => tree
            .write(&format!("{DRIVERS}/{driver}/bind"), &address.to_string())
            .explain(|| format!("could not give {address} back to its driver {driver}"))
            .map_err(|why| why.hint("Load the driver, and repeat the command; or restart this host.")),
        None => Ok(()),
    }
}
