//! The DHCP client, which leases a machine's address on its uplink and keeps it leased. The protocol is
//! smoltcp's, on a packet socket; the kernel has the address.

use super::console::print;
use super::uplink::configure;
use crate::settings::uplink::Static;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{wait, Medium, RawSocket};
use smoltcp::socket::dhcpv4::{Event, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::EthernetAddress;
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::{interface, random};

/// Leases an address for this interface for good.
pub fn lease(name: &str) -> Result<()> {
    interface::up(name).explain(|| format!("could not bring {name} up"))?;
    let failed = || format!("could not listen on {name}");
    let mac = fs::read_to_string(format!("/sys/class/net/{name}/address")).explain(failed)?;
    let mac: EthernetAddress = mac.trim().parse().map_err(|()| error!("{name} has no Ethernet address"))?;
    let mut device = RawSocket::new(name, Medium::Ethernet).explain(failed)?;
    let mut config = Config::new(mac.into());
    let seed = random::bytes::<8>()?;
    config.random_seed = u64::from_ne_bytes(seed);
    let mut stack = Interface::new(config, &mut device, Instant::now());
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(Socket::new());
    loop {
        let now = Instant::now();
        stack.poll(now, &mut device, &mut sockets);
        match sockets.get_mut::<Socket<'_>>(handle).poll() {
            None => (),
            Some(Event::Configured(lease)) => {
                let own = Static {
                    address: lease.address.address(),
                    prefix: lease.address.prefix_len(),
                    gateway: lease.router,
                    dns: lease.dns_servers.to_vec(),
                };
                print(&format!("vshmem: {name} has the address {}/{}", own.address, own.prefix));
                configure(name, &own)?;
            }
            Some(Event::Deconfigured) => {
                drop(interface::configure(name, Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED))
            }
        }
        let pause = stack.poll_delay(now, &sockets);
        wait(device.as_raw_fd(), pause).explain(failed)?;
    }
}
