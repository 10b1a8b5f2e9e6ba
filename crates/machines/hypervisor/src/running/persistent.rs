//! Persistent configuration for machines that Vshmem does not start: options of QEMU, or parts of libvirt's
//! XML.

use super::attached::Monitor;
use super::ports::devices;
use crate::running::virsh::channel;
use crate::shared::xml::escaped;
use crate::state::ports::{Ports, MAX};
use vshmem_agent::guest::protocol::PORT;
use vshmem_base::error::{error, Result};

/// QEMU's id of the channel to the front end. It differs from that of a channel that is added later, which is
/// removed again.
const CHANNEL: &str = "vshmem-channel";

/// The configuration as text for the user.
pub fn describe(name: &str, monitor: &Monitor, ports: Ports) -> Result<String> {
    let fine = (1..=MAX).contains(&ports.spare) && ports.largest.is_power_of_two();
    if !fine {
        return Err(error!("a machine has 1 to {MAX} ports, and their room is a power of two").code(2));
    }
    match monitor {
        Monitor::Qmp(socket) => {
            let agent = socket.with_file_name(format!("{name}-agent.sock"));
            Ok(options(&socket.to_string_lossy(), &agent.to_string_lossy(), ports))
        }
        Monitor::Libvirt(domain) => Ok(xml(&domain.name, ports)),
    }
}

fn options(monitor: &str, agent: &str, ports: Ports) -> String {
    let quoted = |path: &str| path.replace(',', ",,");
    let (monitor, agent) = (quoted(monitor), quoted(agent));
    let mut words = vec![
        "-machine q35".to_string(),
        format!("-qmp unix:{monitor},server=on,wait=off"),
        "-device virtio-serial-pci".into(),
        format!("-chardev socket,id={CHANNEL},path={agent},server=on,wait=off"),
        format!("-device virtserialport,chardev={CHANNEL},name={PORT}"),
    ];
    let all = devices(&[], ports);
    words.extend(all.iter().map(|device| format!("-device {device}")));
    words.join(" \\\n") + "\n"
}

fn xml(domain: &str, ports: Ports) -> String {
    let domain = escaped(domain);
    let room = ports.largest.saturating_mul(2);
    let controllers = "    <controller type='pci' model='pcie-root-port'/>\n".repeat(ports.spare as usize);
    let channel: String = channel(PORT).lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "<!-- virsh edit {domain}; the machine's type must be q35 -->\n\
         <domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n  \
         ...\n  <devices>\n    ...\n{controllers}{channel}  </devices>\n  \
         <!-- room behind the root ports -->\n  \
         <qemu:commandline>\n    <qemu:arg value='-global'/>\n    \
         <qemu:arg value='pcie-root-port.pref64-reserve={room}'/>\n  </qemu:commandline>\n</domain>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { spare: 2, largest: 1 << 30 };

    #[test]
    fn options_are_one_command_line() {
        let text = options("/run/q,1", "/run/a", PORTS);
        assert!(text.starts_with("-machine q35 \\\n-qmp unix:/run/q,,1,server"), "{text}");
        assert_eq!(text.matches("pref64-reserve=2147483648").count(), 2);
        assert!(text.contains("name=org.vshmem.agent"), "{text}");
        assert!(!text.trim_end().ends_with('\\'), "{text}");
    }

    #[test]
    fn xml_has_ports_with_room() {
        let text = xml("a", PORTS);
        assert_eq!(text.matches("pcie-root-port'/>").count(), 2);
        assert!(text.contains("pref64-reserve=2147483648"), "{text}");
        assert!(text.contains("name='org.vshmem.agent'"), "{text}");
    }

    #[test]
    fn odd_numbers_are_refused() {
        let monitor = Monitor::Qmp("/x".into());
        let none = Ports { spare: 0, ..PORTS };
        let odd = Ports { largest: 3, ..PORTS };
        assert!(describe("a", &monitor, none).is_err() && describe("a", &monitor, odd).is_err());
    }
}
