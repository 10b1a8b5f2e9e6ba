//! The options that libvirt can't serve.

use crate::launcher::options::{ClusterOptions, Refusal, RefusedOption};
use vshmem_base::user::uid;
use vshmem_guest::settings::uplink::Means;
use vshmem_placement::pages::Pages;

/// The reason why machines have no network between them.
const ROOTS: &str =
    "libvirt makes networks for root only, and none in a session: leave this out, or let vshmem \
    start the machines itself";
/// The reason why machines have no network outside by sockets of their user.
pub const USER: &str =
    "by libvirt's network of this kind machines reach what listens on this host's loopback \
    address: name a bridge or a tap device, or let vshmem start the machines itself";
/// The reason why machines can't have their memory in small pages.
const SMALL: &str =
    "libvirt can't keep a machine's memory out of transparent huge pages: leave this out, or let vshmem \
    start the machines itself";

/// An error if libvirt can't do what is asked for.
pub fn check(options: &ClusterOptions) -> Result<(), Refusal> {
    if options.network && uid() != 0 {
        return Err(Refusal::new(RefusedOption::Network, ROOTS));
    }
    if options.uplink.as_ref().is_some_and(|uplink| uplink.by == Means::User) {
        return Err(Refusal::new(RefusedOption::Uplink, USER));
    }
    let small = options.machines.iter().position(|machine| machine.pages == Some(Pages::Small));
    if let Some(index) = small {
        return Err(Refusal::new(RefusedOption::Pages(index), SMALL));
    }
    match options.pools.iter().find(|pool| pool.name.contains('.')) {
        Some(pool) => {
            let what = "libvirt takes no dots in names of pools: choose another";
            Err(Refusal::new(RefusedOption::Pool(pool.name.clone()), what))
        }
        None => Ok(()),
    }
}
