//! Network interfaces of this kernel, by the ioctls of netdevice(7), of bridges and of tap devices.

use rustix::net::netdevice;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// The directory in which the kernel lists interfaces.
const INTERFACES: &str = "/sys/class/net";
/// Adds an interface to a bridge (`linux/sockios.h`); the crate libc lacks it.
const ADD_TO_BRIDGE: libc::c_ulong = 0x89a2;

/// Sets an interface's address and net mask, and brings it up.
pub fn configure(interface: &str, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut request = request(interface);
    request.ifr_ifru.ifru_addr = socket_address(address);
    ioctl(&socket, libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = socket_address(mask);
    ioctl(&socket, libc::SIOCSIFNETMASK, &mut request)?;
    up(interface)
}

/// Brings the loopback interface up.
pub fn loopback_up() -> io::Result<()> {
    up("lo")
}

/// Brings an interface up.
pub fn up(interface: &str) -> io::Result<()> {
    let mut request = request(interface);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(&UdpSocket::bind("0.0.0.0:0")?, libc::SIOCSIFFLAGS, &mut request)
}

/// Whether an interface is up.
pub fn is_up(interface: &str) -> io::Result<bool> {
    let mut request = request(interface);
    ioctl(&UdpSocket::bind("0.0.0.0:0")?, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call has just filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(flags as libc::c_int & libc::IFF_UP != 0)
}

/// Whether there is an interface of this name.
pub fn exists(interface: &str) -> bool {
    let socket = UdpSocket::bind("0.0.0.0:0");
    socket.is_ok_and(|socket| netdevice::name_to_index(socket, interface).is_ok())
}

/// The interface with this address, if there is one.
pub fn with_mac(mac: &str) -> Option<String> {
    let mut all = fs::read_dir(INTERFACES).into_iter().flatten().flatten();
    let has = |path: &Path| fs::read_to_string(path.join("address")).is_ok_and(|it| it.trim() == mac);
    let found = all.find(|entry| has(&entry.path()))?;
    found.file_name().into_string().ok()
}

/// Gives an interface that is down this address, such as `52:54:00:77:00:01`.
pub fn set_mac(interface: &str, mac: &str) -> io::Result<()> {
    let mut request = request(interface);
    let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    for (to, byte) in address.sa_data.iter_mut().zip(mac.split(':')) {
        let byte = u8::from_str_radix(byte, 16).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_hwaddr = address;
    ioctl(&UdpSocket::bind("0.0.0.0:0")?, libc::SIOCSIFHWADDR, &mut request)
}

/// Adds an interface to a bridge, which it leaves when it ceases to be.
pub fn add_to_bridge(bridge: &str, interface: &str) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let index = netdevice::name_to_index(&socket, interface)?;
    let mut request = request(bridge);
    request.ifr_ifru.ifru_ifindex = index as libc::c_int;
    ioctl(&socket, ADD_TO_BRIDGE, &mut request)
}

/// Has packets for other networks go to this router.
pub fn route_by(router: Ipv4Addr) -> io::Result<()> {
    let mut route = Route {
        padding: [0; 8],
        to: socket_address(Ipv4Addr::UNSPECIFIED),
        router: socket_address(router),
        mask: socket_address(Ipv4Addr::UNSPECIFIED),
        flags: libc::RTF_UP | libc::RTF_GATEWAY,
        rest: [0; 62],
    };
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: the call reads one structure of this size, which lives across it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw mut route) };
    let outcome = if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    match outcome {
        // It is there already, as after a lease was renewed.
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// A route (`struct rtentry` of `linux/route.h`), which the crate libc lacks; what follows the flags stays
/// zero.
#[repr(C, align(8))]
struct Route {
    padding: [u8; 8],
    to: libc::sockaddr,
    router: libc::sockaddr,
    mask: libc::sockaddr,
    flags: u16,
    rest: [u8; 62],
}

/// Opens a tap device: the one of this name, or if there is none a new one, which ceases to be when the last
/// copy of the descriptor is closed. A `%d` in the name is replaced by a free number. Returns its name.
pub fn open_tap(name: &str) -> io::Result<(File, String)> {
    let tap = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    ioctl(&tap, libc::TUNSETIFF as libc::c_ulong, &mut request)?;
    let name = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char);
    Ok((tap, name.collect()))
}

fn request(interface: &str) -> libc::ifreq {
    // SAFETY: all zeros is a valid value of this C structure of integers and pointers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut out = libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: [0; 14] };
    // A sockaddr_in is the port (two bytes), then the address in network order.
    for (to, from) in out.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    out
}

fn ioctl(file: &impl AsFd, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each of these calls reads and writes one ifreq, which lives across the call.
    if unsafe { libc::ioctl(file.as_fd().as_raw_fd(), call, request as *mut libc::ifreq) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_as_the_kernel_has_it() {
        assert_eq!(std::mem::size_of::<Route>(), 120);
        assert_eq!(std::mem::offset_of!(Route, flags), 56);
    }

    #[test]
    fn interfaces_have_names_and_addresses() {
        assert!(exists("lo") && !exists("vshmem-none"));
        assert!(is_up("vshmem-none").is_err());
        assert_eq!(with_mac("00:00:00:00:00:01"), None);
    }
}
