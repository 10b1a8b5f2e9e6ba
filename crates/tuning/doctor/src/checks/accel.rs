//! The accelerator of machines and of their packets: the processor and the kernel, or QEMU.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::machines::{machines, opened};
use crate::system::Unseen;

/// Emulation.
pub const EMULATION: Check = Check {
    id: "emulation",
    title: "Machines run on the processor itself",
    about: "QEMU runs a machine by KVM, on the processor, or translates each of its instructions (TCG), which takes five to \
        fifty times as long. It does the latter also where KVM was asked for with something else to fall back on \
        (accel=kvm:tcg). A machine of KVM holds a file of it open. Machines of other processors \
        than the host's can only be translated, and are left out.",
    by_hand: "ls -l /proc/$(pgrep -o qemu-system)/fd | grep kvm-vm; ls -l /dev/kvm; grep -ow -m 1 -e vmx -e svm /proc/cpuinfo",
    remedy: "start the machine with KVM (QEMU: -accel kvm; libvirt: type='kvm')",
    class: Class::MachineRestart,
    risk: "users who may open /dev/kvm may use the processor's virtualization; models of processors differ",
    source: "QEMU, docs/system/introduction (accelerators); virt-host-validate(1), which looks at the host instead",
    causes: &[],
    look: emulation,
};

fn emulation(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let flags = look.flags()?;
    let ours: &[&str] = match flags {
        Some(_) => &["qemu-system-x86", "qemu-system-i38", "qemu-kvm", "kvm"],
        None => &["qemu-system-aar", "qemu-kvm", "kvm"],
    };
    let (mut emulated, mut native, mut unseen) = (Vec::new(), 0, Vec::new());
    for machine in machines(look)? {
        let comm = look.system.text(&format!("proc/{}/comm", machine.pid))?.unwrap_or_default();
        let files = opened(look.system, machine.pid)?;
        // Of a domain of Xen, QEMU emulates only devices.
        if !ours.contains(&comm.trim()) || files.iter().any(|file| file.ends_with("/xen/privcmd")) {
            continue;
        }
        let kvm = files.iter().any(|file| file == "anon_inode:kvm-vm");
        look.note(format!("{}, KVM", machine.name), if kvm { "open" } else { "not open" });
        match (kvm, files.is_empty()) {
            (true, _) => native += 1,
            (false, false) => emulated.push(machine.name),
            (false, true) => unseen.push(machine.name),
        }
    }
    if emulated.is_empty() {
        return Ok(match (unseen.is_empty(), native) {
            (false, _) => Verdict::unknown(format!("nobody knows what {} has open", unseen.join(", "))),
            (true, 0) => Verdict::fine("no machine of QEMU that the processor could run can be seen here"),
            (true, _) => Verdict::fine("they run by KVM"),
        });
    }
    // A file of that name may stand for nothing; one that is others' does stand for something.
    let here = match std::fs::File::open(look.system.path("dev/kvm")) {
        Ok(_) => true,
        Err(why) => why.kind() == std::io::ErrorKind::PermissionDenied,
    };
    let can = flags.is_none_or(|flags| flags.iter().any(|flag| flag == "vmx" || flag == "svm"));
    look.note("/dev/kvm", if here { "there" } else { "not there" });
    let why_not = match (here, can) {
        (true, _) => "KVM is there.",
        (false, true) => "KVM's module is not loaded.",
        (false, false) => "This processor offers no virtualization.",
    };
    Ok(Verdict::Costs(Costs {
        why: format!("Each instruction of {} is translated. {why_not}", emulated.join(", ")),
        estimate: "five to fifty times the time of all work".into(),
        remedy: (!here).then(|| match can {
            true => (Class::MachineRestart, "load kvm_intel or kvm_amd, and start the machine with KVM".into()),
            false => (
                Class::HostReboot,
                "enable virtualization in the firmware, or if this is a machine, for it (nested=1, -cpu host)".into(),
            ),
        }),
        ..Costs::default()
    }))
}

/// Packets.
pub const VHOST: Check = Check {
    id: "vhost-net",
    title: "The host's kernel moves machines' packets",
    about: "A machine's network card is a TAP of the host's. With vhost the kernel moves packets between it and the machine's \
        memory; without, each batch wakes QEMU, which copies it by system calls. Only virtio cards can have it; user-mode \
        networks have no TAP, and are left out. A machine that has it holds /dev/vhost-net open.",
    by_hand: "ls -l /proc/$(pgrep -o qemu-system)/fd | grep -e net/tun -e vhost-net",
    remedy: "load the module vhost_net, and start the machine with it (QEMU: -netdev tap,vhost=on; libvirt: \
        name='vhost' of the interface's driver)",
    class: Class::MachineRestart,
    risk: "the kernel's threads take processor time beside the machine's; a mistake in them is one of the kernel's",
    source: "Linux, drivers/vhost/net.c; QEMU, -netdev tap; virt-host-validate(1), which looks for /dev/vhost-net",
    causes: &[],
    look: vhost,
};

fn vhost(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let (mut slow, mut fast) = (Vec::new(), 0);
    for machine in machines(look)? {
        let files = opened(look.system, machine.pid)?;
        let has = |name: &str| files.iter().filter(|file| *file == name).count();
        let (taps, helped) = (has("/dev/net/tun"), has("/dev/vhost-net"));
        if taps > 0 {
            look.note(&machine.name, format!("TAPs: {taps}, of them with vhost: {}", helped.min(taps)));
            if helped < taps {
                slow.push(machine.name)
            } else {
                fast += 1
            }
        }
    }
    if slow.is_empty() {
        let none = "no machine with a TAP can be seen here";
        return Ok(Verdict::fine(if fast > 0 { "it does" } else { none }));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("QEMU moves the packets of {} by itself.", slow.join(", ")),
        estimate: "a wake-up of QEMU and two system calls for each batch of packets".into(),
        ..Costs::default()
    }))
}
