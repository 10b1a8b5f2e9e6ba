//! The launcher that a description means: that of a hypervisor, or that of a service.

use super::cluster::Description;
use super::fault::Fault;
use vshmem_hypervisor::launcher::table::{by_name, launchers, services};
use vshmem_hypervisor::launcher::traits::Launcher;

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
