//! A machine's virtio devices.

use crate::check::Check;
use crate::finding::{Class, Costs, Verdict};
use crate::look::Look;
use crate::system::{System, Unseen};

const SPEC: &str =
    "OASIS, Virtual I/O Device (VIRTIO) 1.2: VIRTIO_NET_F_MQ, VIRTIO_BLK_F_MQ, VIRTIO_F_RING_PACKED";

/// Requests or packets a second, on the average since boot, below which one queue is no hurdle.
const MANY: f64 = 5_000.0;
/// Packets a second below which the layout of rings can't be seen.
const VERY_MANY: f64 = 200_000.0;

/// A device.
struct Device {
    name: String,
    queues: usize,
    /// Requests or packets a second, on the average since boot.
    rate: f64,
}

/// Queues of network cards and disks.
pub const QUEUES: Check = Check {
    id: "virtio-queues",
    title: "Busy devices have a queue for each virtual processor",
    about: "A virtio network card or disk with one queue has all virtual processors take turns at its lock, and all its \
        interrupts go to one of them. That matters where several processors use it at once; the check takes a device for \
        busy that had 5,000 requests or packets a second on the average since boot.",
    by_hand: "ls -d /sys/class/net/*/queues/rx-* /sys/block/vd*/mq/*",
    remedy: "start the machine with queues for each processor (QEMU: num-queues=N for disks; mq=on,vectors=2N+2 and queues=N \
        of the netdev for cards)",
    class: Class::MachineRestart,
    risk: "a little memory for each queue; the netdev must have the queues (tap, vhost)",
    source: SPEC,
    causes: &[],
    look: queues,
};

fn queues(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let cpus = look.online()?.len();
    let mut devices = cards(look.system)?;
    devices.extend(disks(look.system)?);
    for Device { name, queues, rate } in &devices {
        look.note(name, format!("queues: {queues}, a second: {rate:.0}"));
    }
    if devices.is_empty() || cpus == 1 {
        let none = "there is no virtio network card and no virtio disk";
        return Ok(Verdict::fine(if cpus == 1 { "there is one processor" } else { none }));
    }
    let single: Vec<Device> = devices.into_iter().filter(|it| it.queues == 1).collect();
    let busy: Vec<&str> = single.iter().filter(|it| it.rate > MANY).map(|it| &*it.name).collect();
    if busy.is_empty() {
        return Ok(Verdict::fine(match single.is_empty() {
            true => "devices have several queues",
            false => "devices with one queue were not busy since boot",
        }));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("{cpus} processors have one queue of a busy device: {}.", busy.join(", ")),
        estimate: "turns at a lock, and one processor that serves all interrupts".into(),
        ..Costs::default()
    }))
}

/// The layout of rings.
pub const PACKED: Check = Check {
    id: "virtio-packed-rings",
    title: "Very busy network cards have packed rings",
    about: "A packed ring takes one cache line for a request where a split one takes three. QEMU offers it only if asked \
        (packed=on). It matters to network cards that pass packets by the hundred thousand a second; the check looks at the \
        average since boot.",
    by_hand: "cut -c35 /sys/bus/virtio/devices/*/features",
    remedy: "start the machine with packed=on for its network cards",
    class: Class::MachineRestart,
    risk: "not all that serves such a device takes it (vhost in the kernel does not)",
    source: SPEC,
    causes: &[],
    look: packed,
};

/// The place of VIRTIO_F_RING_PACKED.
const RING_PACKED: usize = 34;

fn packed(look: &mut Look<'_>) -> Result<Verdict, Unseen> {
    let mut busy = Vec::new();
    for Device { name, rate, .. } in cards(look.system)? {
        let features = look.system.need(&format!("sys/class/net/{name}/device/features"))?;
        let packed = features.as_bytes().get(RING_PACKED) == Some(&b'1');
        let ring = if packed { "packed" } else { "split" };
        look.note(&name, format!("ring: {ring}, packets a second: {rate:.0}"));
        busy.extend((!packed && rate > VERY_MANY).then_some(name));
    }
    if busy.is_empty() {
        return Ok(Verdict::fine("no network card with split rings was that busy since boot"));
    }
    Ok(Verdict::Costs(Costs {
        why: format!("Busy network cards have split rings: {}.", busy.join(", ")),
        estimate: "some percent of a processor for the same packets".into(),
        ..Costs::default()
    }))
}

fn cards(system: &System) -> Result<Vec<Device>, Unseen> {
    let mut cards = Vec::new();
    for name in system.names("sys/class/net")? {
        let at = format!("sys/class/net/{name}");
        if system.link(&format!("{at}/device/driver"))?.as_deref() != Some("virtio_net") {
            continue;
        }
        let rings = system.names(&format!("{at}/queues"))?;
        let queues = rings.iter().filter(|ring| ring.starts_with("rx-")).count();
        let packets = |way: &str| -> Result<f64, Unseen> {
            let text = system.text(&format!("{at}/statistics/{way}_packets"))?.unwrap_or_default();
            Ok(text.trim().parse().unwrap_or(0.0))
        };
        let rate = (packets("rx")? + packets("tx")?) / uptime(system)?;
        cards.push(Device { name, queues, rate });
    }
    Ok(cards)
}

fn disks(system: &System) -> Result<Vec<Device>, Unseen> {
    let mut disks = Vec::new();
    for name in system.names("sys/block")?.into_iter().filter(|name| name.starts_with("vd")) {
        let queues = system.names(&format!("sys/block/{name}/mq"))?.len();
        let stat = system.text(&format!("sys/block/{name}/stat"))?.unwrap_or_default();
        // Reads, and writes.
        let count = |place| stat.split_whitespace().nth(place).and_then(|text| text.parse().ok());
        let requests: f64 = count(0).unwrap_or(0.0) + count(4).unwrap_or(0.0);
        disks.push(Device { name, queues, rate: requests / uptime(system)? });
    }
    Ok(disks)
}

/// Seconds since boot, at least one.
fn uptime(system: &System) -> Result<f64, Unseen> {
    let text = system.need("proc/uptime")?;
    let seconds = text.split_whitespace().next().and_then(|text| text.parse().ok());
    Ok(seconds.unwrap_or(1.0_f64).max(1.0))
}
