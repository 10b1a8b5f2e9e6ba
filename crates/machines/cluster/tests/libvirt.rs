//! Tests of descriptions whose machines libvirt starts.

use std::path::Path;
use vshmem_base::user::uid;
use vshmem_cluster::description::file::File;
use vshmem_hypervisor::launcher::table::services;

fn default() -> String {
    services()[0].1.service(None).unwrap().unwrap()
}

/// The launcher's name and the URI.
fn resolved(text: &str) -> Result<(&'static str, Option<String>), String> {
    let file = File::parse("c".into(), text.into(), Path::new("/")).map_err(|error| error.to_string())?;
    let (launcher, options) = file.description.resolve().map_err(|fault| file.explain(fault).to_string())?;
    Ok((launcher.facts().name, options.service))
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
        ("hypervisor = 'xen'\nvia = 'libvirt'", "2:7: libvirt starts machines of qemu here, and none of xen"),
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
