//! The command `vshmem mpirun --explain`: the plan of a job, with the reason of each setting.

use super::plan::Plan;
use crate::json::print_document;
use crate::output::{columns, print, wrapped};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use vshmem_base::Result;
use vshmem_mpi::installation::Library;

/// The plan of a job, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Explained {
    /// The implementation of MPI: MPICH or Open MPI.
    mpi: String,
    /// Its library.
    library: Found,
    /// The UCX that it loads.
    ucx: Found,
    /// The launcher and its arguments; RSH stands for the remote shell that it is given.
    command: Vec<String>,
    /// The libraries that are preloaded into ranks.
    preload: Vec<String>,
    /// The hosts; the launcher runs in the first.
    hosts: Vec<HostOf>,
    /// Some ranks share no pool with others, and talk with them over the network.
    mixed: bool,
    /// A host has more ranks than processors.
    oversubscribed: bool,
    /// The variables that are set.
    settings: Vec<SettingOf>,
}

/// A library.
#[derive(Serialize, JsonSchema)]
struct Found {
    /// Its file.
    file: String,
    /// Its version; null: it can't be told.
    version: Option<String>,
}

/// A host.
#[derive(Serialize, JsonSchema)]
struct HostOf {
    /// Its name.
    name: String,
    /// Its ranks.
    ranks: u32,
    /// Its processors; null: unknown.
    processors: Option<u32>,
    /// The processors that its ranks are bound to, in the words of hwloc; null: it shares them with no other
    /// host, or ranks are not bound.
    part: Option<String>,
    /// The pool of its ranks, as it is called there. Hosts with the same are one group.
    pool: String,
}

/// A variable.
#[derive(Serialize, JsonSchema)]
struct SettingOf {
    /// Its name.
    name: &'static str,
    /// Its value.
    value: String,
    /// The reason for which it is set.
    reason: &'static str,
    /// The value is the user's own.
    own: bool,
    /// The harm that this value does; null: none.
    harm: Option<&'static str>,
}

/// Shows a plan.
pub fn explain(plan: &Plan, json: bool) -> Result<u8> {
    let explained = Explained::of(plan);
    match json {
        true => print_document(&explained)?,
        false => print(&explained.text(columns()))?,
    }
    Ok(0)
}

impl Explained {
    fn of(plan: &Plan) -> Explained {
        let command = plan.mpi.command(&plan.line, Path::new("RSH"));
        let host = |host: &super::hosts::Host| HostOf {
            name: host.name.clone(),
            ranks: host.ranks,
            processors: host.processors,
            part: host.part.clone(),
            pool: host.pool.clone().unwrap_or("default".into()),
        };
        let setting = |it: &vshmem_mpi::settings::Setting| SettingOf {
            name: it.name,
            value: it.value.to_string_lossy().into_owned(),
            reason: it.reason,
            own: it.own,
            harm: it.harm,
        };
        Explained {
            mpi: plan.mpi.implementation.to_string(),
            library: found(&plan.mpi.library),
            ucx: found(&plan.mpi.ucx),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            preload: plan.libraries.iter().map(|file| file.display().to_string()).collect(),
            hosts: plan.hosts.iter().map(host).collect(),
            mixed: plan.situation.mixed,
            oversubscribed: plan.situation.oversubscribed,
            settings: plan.settings.iter().map(setting).collect(),
        }
    }

    /// The plan as text, with reasons in lines of so many columns. The command stays one, to be copied.
    fn text(&self, columns: Option<usize>) -> String {
        let mut out = String::new();
        let said = |text: &str| {
            let text = format!("{:13}{text}", "");
            columns.map_or(text.clone(), |columns| wrapped(&text, columns)) + "\n"
        };
        let row = |head: &str, text: &str| format!("{head:<9}{text}\n");
        out += &row("mpi", &format!("{} {}", self.mpi, self.library.text()));
        out += &row("ucx", &self.ucx.text());
        out += &row("command", &self.command.join(" "));
        for (i, file) in self.preload.iter().enumerate() {
            out += &row(if i == 0 { "preload" } else { "" }, file);
        }
        for (i, host) in self.hosts.iter().enumerate() {
            let processors = host.processors.map_or("unknown".into(), |count| count.to_string());
            let part = host.part.as_ref().map_or(String::new(), |part| format!(", bound in {part}"));
            let text = format!(
                "{}: ranks {}, processors {processors}, pool {}{part}",
                host.name, host.ranks, host.pool
            );
            out += &row(if i == 0 { "hosts" } else { "" }, &text);
        }
        for (i, it) in self.settings.iter().enumerate() {
            let own = if it.own { " (yours)" } else { "" };
            out += &row(if i == 0 { "set" } else { "" }, &format!("{}={}{own}", it.name, it.value));
            out += &said(it.reason);
            if let Some(harm) = it.harm {
                out += &said(&format!("warning: {harm}"));
            }
        }
        out
    }
}

fn found(library: &Library) -> Found {
    let version = library.version.map(|version| version.to_string());
    Found { file: library.file.display().to_string(), version }
}

impl Found {
    fn text(&self) -> String {
        format!("{}: {}", self.version.as_deref().unwrap_or("of an unknown version"), self.file)
    }
}
