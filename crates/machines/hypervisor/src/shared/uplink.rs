//! The uplink of a machine, as this host opens it: a tap device, or passt. QEMU inherits it as a descriptor,
//! and nothing else refers to it: a tap device that was made for a machine, and passt, end with the machine's
//! QEMU, or with this process before there is one, even if they are killed. So nothing is written down, and
//! nothing has to be cleaned up.

use crate::shared::network::socket_pair;
use crate::state::record::{Machine, Record};
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::interface;
use vshmem_base::user::uid;
use vshmem_guest::settings::uplink::{Addresses, Card, Means};

/// Paths of the helper that makes tap devices for ordinary users, in distributions.
const HELPERS: [&str; 3] = [
    "/usr/lib/qemu/qemu-bridge-helper",
    "/usr/libexec/qemu-bridge-helper",
    "/usr/local/libexec/qemu-bridge-helper",
];
/// The file of the bridges that the helper may use.
const ALLOWED: &str = "/etc/qemu/bridge.conf";
/// The names of tap devices that are made for bridges.
const NAMES: &str = "vshmem%d";
/// The program that gives machines a network by sockets of its user.
const PASST: &str = "passt";

/// An opened uplink, through which a machine's packets pass.
pub enum Opened {
    /// A tap device.
    Tap(OwnedFd),
    /// A stream socket, on which each packet follows its length.
    Frames(OwnedFd),
}

/// The means and the card by which a machine is to be connected with a network outside, if its cluster asks
/// for one.
pub fn wanted<'a>(record: &'a Record, machine: &Machine) -> Result<Option<(&'a Means, Card)>> {
    let Some(uplink) = record.options.as_ref().and_then(|options| options.uplink.as_ref()) else {
        return Ok(None);
    };
    let card = uplink.card(&record.name, &machine.name, machine.index);
    match &card.addresses {
        Addresses::Static(own) if !own.is_host(own.address) => {
            Err(error!("it has no address for {}: {} would be next", machine.name, own.address))
        }
        _ => Ok(Some((&uplink.by, card))),
    }
}

/// Connects a machine with the network outside that its cluster asks for, if it does.
pub fn open(record: &Record, machine: &Machine) -> Result<Option<Opened>> {
    let open = |(by, _): (&Means, Card)| match by {
        Means::User => passt().map(Opened::Frames),
        Means::Bridge(bridge) => in_bridge(bridge).map(Opened::Tap),
        Means::Tap(name) => tap(&tap_of(name, machine)).map(Opened::Tap),
    };
    let opened = wanted(record, machine).and_then(|wanted| wanted.map(open).transpose());
    opened.map_err(|why| about(why, machine))
}

/// An error if a machine can't have the network outside that its cluster asks for, as far as looking tells:
/// nothing is opened, made or started.
pub fn check(record: &Record, machine: &Machine) -> Result<()> {
    let look = |(by, _): (&Means, Card)| match by {
        Means::User => {
            with_hint(Command::new(PASST).arg("--version").output().explain(not_started)).map(drop)
        }
        Means::Bridge(bridge) => {
            check_bridge(bridge)?;
            if uid() == 0 {
                Ok(())
            } else {
                helper(bridge).map(drop)
            }
        }
        Means::Tap(name) => match tap_of(name, machine) {
            name if uid() == 0 || interface::exists(&name) => Ok(()),
            name => Err(refused(&name, false, &io::Error::from_raw_os_error(libc::EPERM))),
        },
    };
    let looked = wanted(record, machine).and_then(|wanted| wanted.map_or(Ok(()), look));
    looked.map_err(|why| about(why, machine))
}

fn about(why: Error, machine: &Machine) -> Error {
    why.about(&format!("{} gets no network outside", machine.name))
}

/// The name of a machine's tap device.
pub fn tap_of(pattern: &str, machine: &Machine) -> String {
    pattern.replacen("%d", &machine.index.to_string(), 1)
}

/// The tap device of this name.
fn tap(name: &str) -> Result<OwnedFd> {
    let was_there = interface::exists(name);
    let (tap, name) = interface::open_tap(name).map_err(|why| refused(name, was_there, &why))?;
    match (was_there, interface::is_up(&name)) {
        (true, Ok(false)) if uid() != 0 => {
            Err(error!("the tap device {name} is down").hint(format!("As root: ip link set {name} up")))
        }
        (true, Ok(_)) if uid() != 0 => Ok(tap.into()),
        _ => {
            interface::up(&name).explain(|| format!("could not bring the tap device {name} up"))?;
            Ok(tap.into())
        }
    }
}

fn refused(name: &str, was_there: bool, why: &io::Error) -> Error {
    let user = uid();
    let what = match why.raw_os_error() {
        Some(libc::EBUSY) => return error!("the tap device {name} is another machine's already"),
        Some(libc::EPERM) if was_there => format!("the tap device {name} is not this user's"),
        Some(libc::EPERM) => format!("there is no tap device {name}, and only root can make one"),
        Some(libc::ENOENT | libc::ENODEV) => return error!("this kernel has no tap devices (/dev/net/tun)"),
        Some(libc::EINVAL) if was_there => return error!("{name} is no tap device: {why}"),
        _ => return error!("could not open the tap device {name}: {why}"),
    };
    Error::new(what)
        .hint(format!("As root: ip tuntap add dev {name} mode tap user {user} && ip link set {name} up"))
}

/// An error unless this host has this bridge.
pub fn check_bridge(bridge: &str) -> Result<()> {
    match interface::exists(bridge) {
        true => Ok(()),
        false => Err(error!("this host has no bridge {bridge}")
            .hint(format!("As root: ip link add {bridge} type bridge && ip link set {bridge} up"))),
    }
}

/// A new tap device in a bridge.
fn in_bridge(bridge: &str) -> Result<OwnedFd> {
    check_bridge(bridge)?;
    if uid() != 0 {
        return by_helper(bridge);
    }
    let (tap, name) = interface::open_tap(NAMES).map_err(|why| refused(NAMES, false, &why))?;
    interface::add_to_bridge(bridge, &name).map_err(|why| match why.raw_os_error() {
        Some(libc::EOPNOTSUPP) => error!("{bridge} is no bridge"),
        _ => error!("could not put a tap device into {bridge}: {why}"),
    })?;
    interface::up(&name).explain(|| format!("could not bring the tap device {name} up"))?;
    Ok(tap.into())
}

/// A new tap device in a bridge, made by QEMU's helper, which has the rights for that, and whose own file
/// says whether it may.
fn by_helper(bridge: &str) -> Result<OwnedFd> {
    let helper = helper(bridge)?;
    let (ours, theirs) = socket_pair()?;
    let mut command = Command::new(helper);
    command.arg("--use-vnet").arg(format!("--br={bridge}"));
    let told = with_descriptor(&mut command, theirs.as_fd(), "--fd=")?;
    drop((command, theirs));
    if let Some(tap) = received(&ours).explain(|| "reading what QEMU's bridge helper has sent".into())? {
        return Ok(tap);
    }
    Err(helper_refused(helper, bridge, &String::from_utf8_lossy(&told.stderr)))
}

/// The helper that is installed.
fn helper(bridge: &str) -> Result<&'static Path> {
    HELPERS.iter().map(Path::new).find(|path| path.exists()).ok_or_else(|| {
        error!("only root can put a machine into {bridge}, and QEMU's bridge helper is not installed")
            .hint("It is in the package qemu-system-common of Debian and Ubuntu.")
    })
}

/// The error of a helper that has made no tap device.
fn helper_refused(helper: &Path, bridge: &str, said: &str) -> Error {
    let said = vshmem_base::printable(said.trim());
    let hint = match said.contains("acl") || said.contains("denied") {
        true => format!("As root, let it: mkdir -p /etc/qemu && echo 'allow {bridge}' >>{ALLOWED}"),
        false => format!("It has to be set-user-ID root; as root: chmod u+s {}", helper.display()),
    };
    error!("QEMU's bridge helper does not put a machine into {bridge}: {said}").hint(hint)
}

/// Runs a command, to its end, that has a descriptor, whose number follows this option.
fn with_descriptor(command: &mut Command, fd: impl AsFd, option: &str) -> Result<Output> {
    let fd = fd.as_fd().try_clone_to_owned().explain(|| "could not copy a descriptor".into())?;
    let number = fd.as_raw_fd();
    let program = command.get_program().to_string_lossy().into_owned();
    command.arg(format!("{option}{number}")).stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: the closure makes a system call only; the descriptor is its own.
    unsafe { command.pre_exec(move || Ok(fcntl_setfd(&fd, FdFlags::empty())?)) };
    command.stderr(Stdio::piped()).output().explain(|| format!("could not start {program}"))
}

/// The descriptor that comes by a socket with a byte; `None` if it was closed without one.
fn received(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut all = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(all.next())
}

fn not_started() -> String {
    format!("could not start {PASST}")
}

fn with_hint<T>(started: Result<T>) -> Result<T> {
    started
        .map_err(|why| why.hint("The network \"user\" takes the program passt: sudo apt-get install passt"))
}

/// A network by sockets of this user. passt goes to the background once it works, and ends with the
/// connection.
fn passt() -> Result<OwnedFd> {
    let (ours, theirs) = socket_pair()?;
    let mut command = Command::new(PASST);
    // This host's own services stay out of reach, as far as only itself reaches them.
    command.args(["--quiet", "--no-map-gw"]);
    let told = with_hint(with_descriptor(&mut command, theirs.as_fd(), "--fd="))?;
    match told.status.success() {
        true => Ok(ours),
        false => {
            let said = vshmem_base::printable(String::from_utf8_lossy(&told.stderr).trim());
            Err(error!("passt gives no network: {said}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::IoSlice;

    #[test]
    fn a_descriptor_is_received() {
        let (ours, theirs) = socket_pair().unwrap();
        let sent = std::fs::File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sent = [sent.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        sendmsg(&theirs, &[IoSlice::new(b"\0")], &mut control, SendFlags::empty()).unwrap();
        let got = received(&ours).unwrap().expect("a descriptor was sent");
        let link = std::fs::read_link(format!("/proc/self/fd/{}", got.as_raw_fd())).unwrap();
        assert_eq!(link, Path::new("/dev/null"));
        drop(theirs);
        assert!(received(&ours).unwrap().is_none());
    }

    #[test]
    fn what_stands_in_the_way_is_said_with_what_to_do() {
        let helper = Path::new("/h");
        let said = |words: &str| helper_refused(helper, "br0", words).to_string();
        let acl = said("failed to parse default acl file `/etc/qemu/bridge.conf'\n");
        assert!(acl.contains("allow br0") && acl.contains("default acl file"), "{acl}");
        assert!(said("access denied by acl file").contains("allow br0"));
        assert!(said("failed to create tun device: Operation not permitted").contains("chmod u+s /h"));
        let other = refused("tap0", true, &io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(other.contains("not this user's") && other.contains("ip tuntap add dev tap0"), "{other}");
        let busy = refused("tap0", true, &io::Error::from_raw_os_error(libc::EBUSY)).to_string();
        assert!(busy.contains("another machine's"), "{busy}");
        let none = in_bridge("vshmem-none").unwrap_err().to_string();
        assert!(none.contains("no bridge vshmem-none") && none.contains("type bridge"), "{none}");
    }
}
