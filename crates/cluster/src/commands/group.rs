//! The commands of one run, on this kernel and in machines. Those in one machine share a channel.

use super::channel::{protocol_error, Channel, PING_INTERVAL};
use super::job::{Job, Location};
use super::local::Local;
use super::outcome::Outcome;
use super::output::Output;
use super::task::{Body, Remote, Task};
use super::terminal;
use crate::descriptors;
use crate::error::{error, Result, OUR_FAILURE};
use crate::launcher::table;
use crate::state::record::{Machine, Record};
use crate::wire::frame::{Kind, MAX_STREAMS};
use rustix::event::PollFd;
use std::io;
use std::time::Duration;

/// How long a machine's agent may take to answer before commands are started.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Commands that were started.
#[derive(Default)]
pub struct Group {
    tasks: Vec<Task>,
    channels: Vec<MachineChannel>,
    /// Indices of tasks that have ended and were not taken yet.
    ended: Vec<usize>,
}

/// A machine's channel.
struct MachineChannel {
    channel: Channel,
    /// Indices of its tasks; a task's stream is its index in this list.
    tasks: Vec<usize>,
}

/// The jobs of one machine.
struct MachineJobs<'a> {
    record: &'a Record,
    machine: &'a Machine,
    jobs: usize,
}

impl Group {
    /// Starts jobs. With `prefix`, a job's label precedes each line of its output. If one fails, those that
    /// were started end with their channels.
    pub fn start(jobs: &[Job], prefix: bool) -> Result<Group> {
        let mut group = Group::default();
        let by_machine = by_machine(jobs)?;
        for of_machine in &by_machine {
            let channel = {
                let hang_up = !table::of(of_machine.record).facts().reports_hang_up;
                Channel::open(of_machine.record, of_machine.machine, hang_up, ANSWER_TIMEOUT)?
            };
            let tasks = Vec::with_capacity(of_machine.jobs);
            group.channels.push(MachineChannel { channel, tasks });
        }
        let limit = descriptors::raise();
        for job in jobs {
            let body = match &job.location {
                Location::Machine(record, machine) => {
                    let here = |of_machine: &MachineJobs| of_machine.is_of(record, machine);
                    let link = by_machine.iter().position(here).expect("each machine has one");
                    let MachineChannel { channel, tasks } = &mut group.channels[link];
                    let stream = tasks.len() as u16;
                    channel.send(Kind::Start, stream, &job.request().encode()?)?;
                    tasks.push(group.tasks.len());
                    Body::Remote(Remote::new(link, stream))
                }
                Location::Local => Body::Local(Box::new(Local::start(job, &limit)?)),
            };
            let output = Output::new(prefix.then_some(&job.label));
            group.tasks.push(Task::new(output, body, job.stdin));
        }
        Ok(group)
    }

    /// A group whose commands run at the other end of a channel.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn on(channel: Channel, outputs: Vec<Output>) -> Group {
        let tasks = (0..outputs.len()).collect();
        let remote = |(stream, output)| {
            let body = Body::Remote(Remote::new(0, stream as u16));
            Task::new(output, body, stream == 0)
        };
        Group {
            tasks: outputs.into_iter().enumerate().map(remote).collect(),
            channels: vec![MachineChannel { channel, tasks }],
            ended: vec![],
        }
    }

    /// How a task ended, if it has.
    pub fn outcome(&self, index: usize) -> Option<&Outcome> {
        self.tasks[index].outcome.as_ref()
    }

    /// Some tasks have not ended.
    pub fn runs(&self) -> bool {
        self.tasks.iter().any(|task| task.outcome.is_none())
    }

    /// Indices of tasks that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ended)
    }

    /// How long to wait at most for the next call of [`Group::service`].
    pub fn poll_interval(&self) -> Option<Duration> {
        let remote = self.channels.iter().any(|link| self.channel_runs(link));
        remote.then_some(PING_INTERVAL)
    }

    fn channel_runs(&self, link: &MachineChannel) -> bool {
        link.tasks.iter().any(|&index| self.tasks[index].outcome.is_none())
    }

    /// Descriptors and events to poll.
    pub fn descriptors(&self) -> Vec<PollFd<'_>> {
        let mut out = Vec::new();
        for link in self.channels.iter().filter(|link| self.channel_runs(link)) {
            out.push(link.channel.descriptor());
        }
        for task in self.tasks.iter().filter(|task| task.outcome.is_none()) {
            if let Body::Local(local) = &task.body {
                out.extend(local.descriptors());
            }
        }
        out
    }

    /// Does what can be done without waiting. An error is about our own output.
    pub fn service(&mut self) -> io::Result<()> {
        for link in 0..self.channels.len() {
            if self.channel_runs(&self.channels[link]) {
                self.service_channel(link)?;
            }
        }
        for index in 0..self.tasks.len() {
            let task = &mut self.tasks[index];
            if let (Body::Local(local), None) = (&mut task.body, &task.outcome) {
                if let Some(outcome) = local.service(&mut task.output)? {
                    self.finish(index, outcome)?;
                }
            }
        }
        Ok(())
    }

    fn service_channel(&mut self, number: usize) -> io::Result<()> {
        let channel = &mut self.channels[number].channel;
        let moved = channel.ping().and_then(|()| channel.receive());
        let lost = loop {
            let link = &mut self.channels[number];
            let frame = match link.channel.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break moved.err(),
                Err(error) => break Some(error),
            };
            let Some(&index) = link.tasks.get(usize::from(frame.stream)) else {
                break Some(protocol_error("there is no such command"));
            };
            let task = &mut self.tasks[index];
            if task.outcome.is_none() {
                match task.take(&frame)? {
                    Ok(None) => (),
                    Ok(Some(outcome)) => self.finish(index, outcome)?,
                    Err(error) => break Some(error),
                }
            }
        };
        match lost {
            Some(why) => self.lose(number, &Outcome::Failed(OUR_FAILURE, why.to_string())),
            None => Ok(()),
        }
    }

    fn finish(&mut self, index: usize, outcome: Outcome) -> io::Result<()> {
        self.tasks[index].outcome = Some(outcome);
        self.ended.push(index);
        self.tasks[index].output.end()
    }

    fn lose(&mut self, link: usize, outcome: &Outcome) -> io::Result<()> {
        for i in 0..self.channels[link].tasks.len() {
            let index = self.channels[link].tasks[i];
            if self.tasks[index].outcome.is_none() {
                self.finish(index, outcome.clone())?;
            }
        }
        Ok(())
    }

    /// Gives up machines that have been silent for so long; their tasks fail with `code`. When such a machine
    /// goes on, its commands end with the channel.
    pub fn give_up(&mut self, silence: Duration, code: u8) -> io::Result<()> {
        let why = "the machine does not answer (is it paused?): what runs there is killed when it goes on";
        for link in 0..self.channels.len() {
            if self.channels[link].channel.silence() >= silence {
                self.lose(link, &Outcome::Failed(code, why.into()))?;
            }
        }
        Ok(())
    }

    /// Bytes of input that can be taken now; `None` if no task takes input any more.
    pub fn input_room(&self) -> Option<usize> {
        self.tasks.iter().find_map(Task::input_room)
    }

    /// Passes input to the task that takes it; empty input ends it.
    pub fn input(&mut self, bytes: &[u8]) {
        let channels = &mut self.channels;
        let mut tasks = self.tasks.iter_mut();
        if let Some(task) = tasks.find(|task| task.input_room().is_some()) {
            task.input(bytes, |link| &mut channels[link].channel);
        }
    }

    /// Sends all tasks a signal; SIGKILL reaches their descendants too.
    pub fn signal(&mut self, signal: i32) {
        for task in self.tasks.iter().filter(|task| task.outcome.is_none()) {
            match &task.body {
                Body::Remote(remote) => {
                    let channel = &mut self.channels[remote.channel].channel;
                    // A lost machine is noticed when its output is read.
                    let _ = channel.send(Kind::Signal, remote.stream, &[signal as u8]);
                }
                Body::Local(local) => local.signal(signal),
            }
        }
    }

    /// Reports the size of the user's terminal to programs that have it.
    pub fn resize(&mut self) {
        let Some(size) = terminal::size() else { return };
        for task in self.tasks.iter().filter(|task| task.outcome.is_none()) {
            if let Body::Remote(remote) = &task.body {
                let channel = &mut self.channels[remote.channel].channel;
                let _ = channel.send(Kind::Resize, remote.stream, &size.to_bytes());
            }
        }
    }
}

impl MachineJobs<'_> {
    fn is_of(&self, record: &Record, machine: &Machine) -> bool {
        (&self.record.name, &self.machine.name) == (&record.name, &machine.name)
    }
}

/// The jobs of each machine.
fn by_machine(jobs: &[Job]) -> Result<Vec<MachineJobs<'_>>> {
    let mut out: Vec<MachineJobs<'_>> = Vec::new();
    for job in jobs {
        let Location::Machine(record, machine) = &job.location else {
            continue;
        };
        match out.iter_mut().find(|of_machine| of_machine.is_of(record, machine)) {
            Some(of_machine) => of_machine.jobs += 1,
            None => out.push(MachineJobs { record, machine, jobs: 1 }),
        }
    }
    let most = usize::from(MAX_STREAMS);
    match out.iter().find(|of_machine| of_machine.jobs > most) {
        Some(MachineJobs { machine, jobs, .. }) => Err(error!(
            "one vshmem run can start {most} processes in a machine, and {jobs} are for {}",
            machine.name
        )
        .hint("Spread them over more machines, or start them by several vshmem run.")),
        None => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Identity;
    use serde_json::json;

    fn record() -> Record {
        let machine = |name| json!({"name": name, "index": 0, "runs": null, "address": null, "cores": []});
        let record = json!({
            "version": 2, "name": "c", "boot": "", "starter": null, "accel": "", "kernel": "/kernel", "cpus": 1, "memory": 1, "pool": "",
            "pool_size": 1, "channels": 1, "since": 1, "machines": [machine("vm0"), machine("vm1")]
        });
        serde_json::from_value(record).expect("a record")
    }

    #[test]
    fn a_machine_takes_a_limited_number_of_commands() {
        let record = record();
        let job = |number: usize| Job {
            location: Location::Machine(Box::new(record.clone()), record.machines[number % 2].clone()),
            label: "p".into(),
            argv: vec!["true".into()],
            env: vec![],
            cwd: None,
            stdin: false,
            terminal: false,
            login: false,
            identity: Identity::current(),
            needs: vec![],
        };
        let many: Vec<_> = (0..2048).map(job).collect();
        let of = |jobs| -> Vec<usize> {
            let by_machine: Vec<MachineJobs> = by_machine(jobs).expect("they are taken");
            by_machine.iter().map(|of_machine| of_machine.jobs).collect()
        };
        assert_eq!(of(&many), [1024, 1024]);
        assert_eq!(of(&many[..5]), [3, 2]);
        let more: Vec<_> = (0..2049).map(job).collect();
        let why = by_machine(&more).map(|_| ()).expect_err("they are too many");
        assert!(why.to_string().contains("1025 are for vm0"), "{why}");
    }
}
