//! Thawing a machine of a cluster, if it can: its template is found or made first.

use super::super::options::{Beginning, MachineSpec};
use super::super::spec::kernel;
use super::dialogue::{make, thaw};
use super::{key, obstacle, settings, shares_pages, spec, Parts};
use crate::launcher::options::Progress;
use crate::launcher::traits::StartOptions;
use crate::shared::sandbox::KillGuard;
use crate::shared::sockets::remove_sockets;
use crate::state::record::Record;
use crate::template::key::Key;
use crate::template::store::Kind;
use crate::template::{memory, Template};
use std::fs;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use vshmem_base::directories::private_directory;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::process::Process;
use vshmem_guest::settings::Settings;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::Placed;

/// The directory of a template that is made, in that of the machine that it is made for.
const DIRECTORY: &str = "template";

/// A machine that may thaw.
pub struct Thawing<'a> {
    options: &'a StartOptions<'a>,
    /// The reason why it can't, if it can't.
    obstacle: Option<&'static str>,
    /// Whether it shares pages with its template.
    shares_pages: bool,
    /// The settings of its template.
    settings: Settings,
    /// Its record, and the machine's index there.
    of: (&'a Record, usize),
    /// The placement of its template, which comes from no node of the host's.
    placement: Option<Placed>,
    /// The directory of its template while that is made.
    directory: PathBuf,
}

impl<'a> Thawing<'a> {
    /// The machine with this index in a record.
    pub fn of(
        record: &'a Record,
        index: usize,
        machine: &MachineSpec<'_>,
        options: &'a StartOptions,
    ) -> Thawing<'a> {
        let placement = machine.placement.map(|it| Placed { nodes: CpuSet::default(), ..it.clone() });
        Thawing {
            options,
            of: (record, index),
            obstacle: obstacle(record, index, machine),
            shares_pages: shares_pages(machine),
            settings: settings(machine.settings),
            placement,
            directory: machine.directory.join(DIRECTORY),
        }
    }

    /// Thaws the machine. `None`: it has to boot, as its parts say before and after.
    pub fn thaw(
        &self,
        machine: &mut MachineSpec<'_>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Option<(Process, KillGuard)>> {
        if !self.options.templates.allowed() || self.obstacle.is_some() {
            return Ok(None);
        }
        let mut tell = |text: String| report(Progress::Message(text));
        let (key, template) = self.template(machine, &mut tell)?;
        let Some(template) = template else { return Ok(None) };
        // The kernel on its line is what it boots when it is reset: its own.
        machine.beginning = Beginning::Thaw(template.memory.as_ref().map(AsRawFd::as_raw_fd));
        let thawed = thaw(machine, &template.state);
        machine.beginning = Beginning::Boot;
        interrupt::check()?;
        match thawed {
            Ok(thawed) => Ok(Some(thawed)),
            Err(why) => {
                remove_sockets(machine.directory);
                if self.options.templates.forget(&key) {
                    let name = &machine.settings.name;
                    tell(format!("{name} boots: it did not thaw from its template, which is removed: {why}"));
                }
                Ok(None)
            }
        }
    }

    /// Makes its template, if there is none yet. Returns the template's name.
    pub fn prepare(&self, machine: &MachineSpec<'_>, report: &mut dyn FnMut(Progress)) -> Result<String> {
        let name = &machine.settings.name;
        if let Some(why) = self.obstacle {
            return Err(error!("{name} can't thaw from a template: {why}").code(1));
        }
        let mut why = None;
        let (key, template) = self.template(machine, &mut |text| {
            report(Progress::Message(text.clone()));
            why = Some(text);
        })?;
        match template {
            Some(_) => Ok(key.id()),
            None => Err(error!("there is no template of {name}: {}", why.unwrap_or_default())),
        }
    }

    /// The template of the machine, if it can be had, and its key.
    fn template(
        &self,
        machine: &MachineSpec<'_>,
        tell: &mut dyn FnMut(String),
    ) -> Result<(Key, Option<Arc<Template>>)> {
        let (record, index) = self.of;
        let kernel = kernel(&record.machines[index], machine.directory, self.options, &self.settings)?;
        let kernel = kernel.unwrap_or_default();
        let of_template = |memory: Option<RawFd>| {
            let (settings, kernel, directory) = (&self.settings, kernel.clone(), &*self.directory);
            spec(machine, Parts { settings, kernel, memory, placement: self.placement.as_ref(), directory })
        };
        // Which descriptor it is makes no difference.
        let key = key(&of_template(self.shares_pages.then_some(0)), self.options.templates)?;
        let kind = Kind {
            cpus: machine.cpus,
            memory: machine.memory,
            accel: machine.accel.name().into(),
            kernel: self.options.software.kernel.version.clone(),
        };
        let make = || {
            let memory = self.shares_pages.then(|| memory::create(machine.memory)).transpose();
            let memory = memory.explain(|| "could not make memory for a template".into())?;
            private_directory(&self.directory)?;
            let made = make(&of_template(memory.as_ref().map(AsRawFd::as_raw_fd)), memory.as_ref());
            let _ = fs::remove_dir_all(&self.directory);
            Ok(Template { state: made?, memory })
        };
        let template = self.options.templates.get(&key, &kind, make, tell)?;
        Ok((key, template))
    }
}
