//! Configures the machine's network card, by the ioctls of netdevice(7).

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Sets an interface's address and net mask, and brings it up.
pub fn configure(interface: &str, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut request = request(interface);
    request.ifr_ifru.ifru_addr = socket_address(address);
    ioctl(&socket, libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = socket_address(mask);
    ioctl(&socket, libc::SIOCSIFNETMASK, &mut request)?;
    up(&socket, interface)
}

/// Brings the loopback interface up.
pub fn loopback_up() -> io::Result<()> {
    up(&UdpSocket::bind("0.0.0.0:0")?, "lo")
}

fn up(socket: &UdpSocket, interface: &str) -> io::Result<()> {
    let mut request = request(interface);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(socket, libc::SIOCSIFFLAGS, &mut request)
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

fn ioctl(socket: &UdpSocket, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each of these calls reads one ifreq, which lives across the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), call, request as *mut libc::ifreq) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
