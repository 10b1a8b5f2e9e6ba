//! What starts the machines that a description means: the launcher of a hypervisor, or that of a service.

use super::cluster::Description;
use super::fault::Fault;
use crate::launcher::table::{by_name, launchers, services};
use crate::launcher::traits::Launcher;

/// The launcher that is meant.
pub fn launcher(description: &Description) -> Result<&'static dyn Launcher, Fault> {
    let hypervisor = match &description.hypervisor {
        None => launchers()[0],
        Some(name) => by_name(name).ok_or_else(|| {
            let all = launchers().map(|launcher| launcher.facts().name).join(", ");
            Fault::new(&["hypervisor"], format!("there is no hypervisor {name}: choose one of {all}"))
        })?,
    };
    match &description.via {
        None => Ok(hypervisor),
        Some(service) => of_service(service, hypervisor.facts().name),
    }
}

/// The launcher of a service that starts machines of a hypervisor.
fn of_service(service: &str, hypervisor: &str) -> Result<&'static dyn Launcher, Fault> {
    let fault = |what: String| Err(Fault::new(&["via"], what));
    let Some((of, launcher)) = services().into_iter().find(|(_, it)| it.facts().name == service) else {
        let all = services().map(|(_, launcher)| launcher.facts().name).join(", ");
        return fault(format!("nothing is called {service} that starts machines: choose one of {all}"));
    };
    match of == hypervisor {
        true => Ok(launcher),
        false => fault(format!("{service} starts machines of {of} here, and none of {hypervisor}")),
    }
}

/// The URI of the service that starts machines, if one does.
pub fn uri(description: &Description, launcher: &dyn Launcher) -> Result<Option<String>, Fault> {
    let chosen = launcher.service(description.uri.as_deref());
    chosen.map_err(|error| Fault::because(&["uri"], error.code(2)))
}

#[cfg(test)]
mod tests {
    use crate::description::testing::launched;
    use crate::launcher::table::services;
    use vshmem_base::user::uid;

    fn default() -> String {
        services()[0].1.service(None).unwrap().unwrap()
    }

    /// The launcher's name and the URI.
    fn resolved(text: &str) -> Result<(&'static str, Option<String>), String> {
        launched(text).map(|(launcher, options)| (launcher.facts().name, options.service))
    }

    #[test]
    fn libvirt_starts_machines_of_qemu() {
        assert_eq!(resolved("").unwrap(), ("qemu", None));
        assert_eq!(resolved("via = 'libvirt'").unwrap(), ("libvirt", Some(default())));
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
