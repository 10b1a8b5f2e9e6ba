//! What of a description libvirt can't do.

use crate::description::cluster::Description;
use crate::description::fault::Fault;
use vshmem_base::user::uid;
use vshmem_placement::pages::Pages;

/// Why machines have no network between them.
const ROOTS: &str =
    "libvirt makes networks for root only, and none in a session: leave this out, or let vshmem \
    start the machines itself";
/// Why machines have no network outside by sockets of their user.
pub const USER: &str =
    "by libvirt's network of this kind machines reach what listens on this host's loopback \
    address: name a bridge or a tap device, or let vshmem start the machines itself";

/// An error if libvirt can't do what a description asks for.
pub fn check(description: &Description) -> Result<(), Fault> {
    let fault = |at: &[&str], what: &str| Err(Fault::new(at, what));
    if let Some(network) = &description.network {
        if network.private == Some(true) && uid() != 0 {
            return fault(&["network", "private"], ROOTS);
        }
        if network.user == Some(true) {
            return fault(&["network", "user"], USER);
        }
    }
    let small =
        "libvirt can't keep a machine's memory out of transparent huge pages: leave this out, or let vshmem \
        start the machines itself";
    if description.pages.as_ref().is_some_and(|pages| pages.machines == Some(Pages::Small)) {
        return fault(&["pages", "machines"], small);
    }
    if let Some(place) = description.machines.iter().position(|group| group.pages == Some(Pages::Small)) {
        return fault(&["machines", &place.to_string(), "pages"], small);
    }
    match description.pools.keys().find(|name| name.contains('.')) {
        Some(name) => fault(&["pools", name], "libvirt takes no dots in names of pools: choose another"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::uid;
    use crate::description::testing::launched;
    use crate::launcher::libvirt::uri::default;

    /// The launcher's name and the URI.
    fn resolved(text: &str) -> Result<(&'static str, Option<String>), String> {
        launched(text).map(|(launcher, options)| (launcher.facts().name, options.service))
    }

    #[test]
    fn libvirt_starts_machines_of_qemu() {
        assert_eq!(resolved("").unwrap(), ("qemu", None));
        assert_eq!(resolved("via = 'libvirt'").unwrap(), ("libvirt", Some(default().into())));
        let uri = format!("{}?socket=/x", default());
        let text = format!("via = 'libvirt'\nhypervisor = 'qemu'\nuri = '{uri}'");
        assert_eq!(resolved(&text).unwrap(), ("libvirt", Some(uri)));
    }

    #[test]
    fn only_root_has_libvirt_make_a_network() {
        let text = "via = 'libvirt'\n[network]\nprivate = true\nbridge = 'br0'";
        match uid() {
            0 => assert_eq!(resolved(text).unwrap().0, "libvirt"),
            _ => assert!(resolved(text).unwrap_err().starts_with("c:3:11: libvirt makes networks for root")),
        }
        assert_eq!(resolved("via = 'libvirt'\n[network]\nbridge = 'br0'").unwrap().0, "libvirt");
    }

    #[test]
    fn what_libvirt_can_not_do_is_refused_where_it_stands() {
        let cases = [
            ("uri = 'qemu:///system'", "1:7: it leads to what starts the machines"),
            ("via = 'virsh'", "1:7: nothing is called virsh that starts machines: choose one of libvirt"),
            (
                "hypervisor = 'xen'\nvia = 'libvirt'",
                "2:7: libvirt starts machines of qemu here, and none of xen",
            ),
            ("via = 'libvirt'\nuri = 'qemu+ssh://a/system'", "2:7: machines share memory with this host"),
            ("via = 'libvirt'\n[network]\nuser = true", "3:8: by libvirt's network of this kind"),
            ("via = 'libvirt'\n[pages]\nmachines = 'small'", "3:12: libvirt can't keep"),
            ("via = 'libvirt'\n[[machines]]\n[[machines]]\npages = 'small'", "4:9: libvirt can't keep"),
            ("via = 'libvirt'\n[pools.'a.b']", "2:1: libvirt takes no dots"),
            (
                "via = 'libvirt'\n[pools.a]\ntransport = 'dax'",
                "3:13: machines that libvirt starts are not given pools by dax",
            ),
        ];
        for (text, said) in cases {
            let why = resolved(text).unwrap_err();
            assert!(why.starts_with(&format!("c:{said}")), "{text}: {why}");
        }
    }
}
