//! The values of options on the command line, with what `--help` says of each.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use vshmem_hypervisor::launcher::options::RootKind;
use vshmem_hypervisor::launcher::table::launchers;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_placement::pages::Pages;
use vshmem_placement::rules::Policy;

/// The word that leaves the choice of an accelerator to the launcher.
pub const AUTO: &str = "auto";

/// Values of `--pages` and `--pool-pages`.
pub fn pages() -> impl TypedValueParser<Value = Pages> {
    let about = [
        "Those of 4 KiB, and no others",
        "Those of 2 MiB that the kernel puts together where it finds the room",
        "Those of 2 MiB that the host has reserved (vm.nr_hugepages)",
        "Those of 1 GiB that the host has reserved",
    ];
    let values =
        Pages::ALL.into_iter().zip(about).map(|((name, _), about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| Pages::named(&name).ok_or("there are no such pages"))
}

/// Values of `--placement`.
pub fn policies() -> impl TypedValueParser<Value = Policy> {
    let about = [
        "Wherever the kernel's scheduler puts them",
        "Each on a core of its own, in the order of cores",
        "All of a machine on any core of one socket",
        "Each on a core of its own, on as few memory nodes as can be",
    ];
    let values =
        Policy::ALL.into_iter().zip(about).map(|((name, _), about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| Policy::named(&name).ok_or("there is no such policy"))
}

/// Values of `--root`.
pub fn roots() -> impl TypedValueParser<Value = RootKind> {
    let about = ["By a file server, as they are", "As a disk, as they were when the machines started"];
    let values =
        RootKind::ALL.into_iter().zip(about).map(|((name, _), about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| RootKind::named(&name).ok_or("there is no such root"))
}

/// Values of `--hypervisor`.
pub fn hypervisors() -> PossibleValuesParser {
    let value =
        |launcher: &dyn Launcher| PossibleValue::new(launcher.facts().name).help(launcher.facts().about);
    PossibleValuesParser::new(launchers().map(value))
}

/// Values of `--transport`.
pub fn transports() -> PossibleValuesParser {
    let all = launchers().into_iter().flat_map(|launcher| launcher.facts().transports);
    PossibleValuesParser::new(all.map(|name| PossibleValue::new(*name)))
}

/// Values of `--accel`.
pub fn accelerators() -> PossibleValuesParser {
    let auto = PossibleValue::new(AUTO).help("The first of these on which a machine boots, which is tried");
    let all = launchers().into_iter().flat_map(|launcher| launcher.facts().accelerators);
    let chosen = all.filter(|(_, about)| !about.is_empty());
    let values = chosen.map(|(name, about)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(std::iter::once(auto).chain(values))
}
