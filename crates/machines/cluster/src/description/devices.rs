//! The devices that machines of a description ask for.

use super::cluster::Description;
use super::fault::Fault;
use vshmem_devices::want::Which;
use vshmem_hypervisor::launcher::traits::Launcher;

/// Functions that a machine can have.
const MAX_FUNCTIONS: u32 = 16;

/// An error unless machines can have the devices that they ask for, as far as that is known without looking.
pub fn check(description: &Description, launcher: &dyn Launcher) -> Result<(), Fault> {
    let mut exact = Vec::new();
    for (place, group) in description.machines.iter().enumerate() {
        let place = place.to_string();
        let fault = |what: String| Fault::new(&["machines", &place, "devices"], what);
        if group.devices.is_empty() {
            continue;
        }
        let facts = launcher.facts();
        if !facts.gives_devices {
            return Err(fault(format!("{} gives its machines no devices", facts.name)));
        }
        if group.devices.iter().map(|want| want.count).sum::<u32>() > MAX_FUNCTIONS {
            return Err(fault(format!("a machine has at most {MAX_FUNCTIONS} devices")));
        }
        for want in &group.devices {
            let Which::At(address) = want.which else { continue };
            if exact.contains(&address) || group.count.is_some_and(|count| count > 1) {
                return Err(fault(format!("two machines would have {address}: each function goes to one")));
            }
            exact.push(address);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::description::testing::resolved;

    fn refused(text: &str) -> String {
        resolved(text).err().unwrap_or_default()
    }

    #[test]
    fn each_function_goes_to_one_machine() {
        let one = "[[machines]]\ndevices = ['01:00.0', '2 x nvme']\n";
        assert_eq!(refused(one), "");
        assert!(refused(&format!("{one}{one}")).starts_with("c:4:11: two machines would have 0000:01:00.0"));
        assert!(refused("[[machines]]\ncount = 2\ndevices = ['01:00.0']").contains("two machines would have"));
        assert_eq!(refused("[[machines]]\ncount = 2\ndevices = ['vf of 01:00.0']"), "");
        assert!(refused("[[machines]]\ndevices = ['9 x nvme', '8 x usb']").contains("at most 16"));
        let why = refused("[[machines]]\ndevices = ['disk']");
        assert!(why.starts_with("c:2:11: ") && why.contains("\"disk\" is no device"), "{why}");
    }
}
