//! The commands of one run, on this kernel and in machines. Those in one place share a channel.

use super::channel::{protocol_error, Channel, PING_INTERVAL};
use super::job::{Job, Location};
use super::outcome::Outcome;
use super::output::Output;
use super::task::Task;
use super::{local, terminal};
use crate::error::{error, Result, OUR_FAILURE};
use crate::launcher::table;
use crate::wire::frame::MAX_STREAMS;
use crate::wire::message::HostMessage;
use rustix::event::PollFd;
use std::io;
use std::time::Duration;

/// How long a machine's agent may take to answer before commands are started.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Commands that were started.
#[derive(Default)]
pub struct Group {
    tasks: Vec<Task>,
    links: Vec<Link>,
    /// Indices of tasks that have ended and were not taken yet.
    ended: Vec<usize>,
}

/// A channel.
struct Link {
    channel: Channel,
    /// Indices of its tasks; a task's stream is its index in this list.
    tasks: Vec<usize>,
}

impl Group {
    /// Starts jobs. With `prefix`, a job's label precedes each line of its output. If one fails, those that
    /// were started end with their channels.
    pub fn start(jobs: &[Job], prefix: bool) -> Result<Group> {
        let mut group = Group::default();
        let (locations, places) = places(jobs)?;
        for location in locations {
            group.links.push(Link { channel: open(location)?, tasks: Vec::new() });
        }
        for (index, (job, number)) in jobs.iter().zip(places).enumerate() {
            let Link { channel, tasks } = &mut group.links[number];
            let stream = tasks.len() as u16;
            channel.send(stream, &HostMessage::Start(Box::new(job.request.clone())))?;
            tasks.push(index);
            let output = Output::new(prefix.then_some(&job.label));
            group.tasks.push(Task::new(output, number, stream, job.request.stdin));
        }
        Ok(group)
    }

    /// A group whose commands run at the other end of a channel.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn on(channel: Channel, outputs: Vec<Output>) -> Group {
        let tasks = (0..outputs.len()).collect();
        let task = |(stream, output)| Task::new(output, 0, stream as u16, stream == 0);
        let outputs = outputs.into_iter().enumerate();
        Group { tasks: outputs.map(task).collect(), links: vec![Link { channel, tasks }], ended: vec![] }
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
        self.runs().then_some(PING_INTERVAL)
    }

    fn link_runs(&self, link: &Link) -> bool {
        link.tasks.iter().any(|&index| self.tasks[index].outcome.is_none())
    }

    /// Descriptors and events to poll.
    pub fn descriptors(&self) -> Vec<PollFd<'_>> {
        let links = self.links.iter().filter(|link| self.link_runs(link));
        links.map(|link| link.channel.descriptor()).collect()
    }

    /// Does what can be done without waiting. An error is about our own output.
    pub fn service(&mut self) -> io::Result<()> {
        for number in 0..self.links.len() {
            if self.link_runs(&self.links[number]) {
                self.service_link(number)?;
            }
        }
        Ok(())
    }

    fn service_link(&mut self, number: usize) -> io::Result<()> {
        let channel = &mut self.links[number].channel;
        let moved = channel.ping().and_then(|()| channel.receive());
        let lost = loop {
            let link = &mut self.links[number];
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
        for i in 0..self.links[link].tasks.len() {
            let index = self.links[link].tasks[i];
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
        for link in 0..self.links.len() {
            if self.links[link].channel.silence() >= silence {
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
        if let Some(task) = self.tasks.iter_mut().find(|task| task.input_room().is_some()) {
            task.input(bytes, &mut self.links[task.channel].channel);
        }
    }

    /// Sends all tasks a signal; SIGKILL reaches their descendants too.
    pub fn signal(&mut self, signal: i32) {
        self.tell_all(&HostMessage::Signal(signal));
    }

    /// Reports the size of the user's terminal to programs that have it.
    pub fn resize(&mut self) {
        if let Ok(size) = terminal::size() {
            self.tell_all(&HostMessage::Resize(size));
        }
    }

    fn tell_all(&mut self, message: &HostMessage) {
        for task in self.tasks.iter().filter(|task| task.outcome.is_none()) {
            // A lost machine is noticed when its output is read.
            let _ = self.links[task.channel].channel.send(task.stream, message);
        }
    }
}

/// Opens a channel to where commands are to run.
fn open(location: &Location) -> Result<Channel> {
    match location {
        Location::Local => local::channel(),
        Location::Machine(record, machine) => {
            let hang_up = !table::of(record).facts().reports_hang_up;
            Channel::open(record, machine, hang_up, ANSWER_TIMEOUT)
        }
    }
}

/// Where jobs run that share a channel, and the index of each job's place among these. This kernel is as many
/// places as it takes, a machine is one.
fn places(jobs: &[Job]) -> Result<(Vec<&Location>, Vec<usize>)> {
    let most = usize::from(MAX_STREAMS);
    let mut places: Vec<(&Location, usize)> = Vec::new();
    let mut numbers = Vec::new();
    for Job { location, .. } in jobs {
        let has_room = |(place, taken): &(&Location, usize)| match (place.name(), location.name()) {
            (None, None) => *taken < most,
            (one, other) => one == other,
        };
        let number = places.iter().position(has_room).unwrap_or(places.len());
        if number == places.len() {
            places.push((location, 0));
        }
        places[number].1 += 1;
        numbers.push(number);
    }
    let full = places.iter().find(|(_, taken)| *taken > most);
    if let Some((Location::Machine(_, machine), taken)) = full {
        let name = &machine.name;
        return Err(error!(
            "one vshmem run can start {most} processes in a machine, and {taken} are for {name}"
        )
        .hint("Spread them over more machines, or start them by several vshmem run."));
    }
    Ok((places.into_iter().map(|(location, _)| location).collect(), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::record::Record;
    use crate::wire::start::Start;
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
        let job = |number: usize| {
            let machine = record.machines[number % 2].clone();
            let location = Location::Machine(Box::new(record.clone()), machine);
            Job { location, label: "p".into(), request: Start::default() }
        };
        let many: Vec<_> = (0..2048).map(job).collect();
        let of = |jobs| -> Vec<usize> {
            let (locations, numbers) = places(jobs).expect("they are taken");
            let taken = |place| numbers.iter().filter(|number| **number == place).count();
            (0..locations.len()).map(taken).collect()
        };
        assert_eq!(of(&many), [1024, 1024]);
        assert_eq!(of(&many[..5]), [3, 2]);
        let more: Vec<_> = (0..2049).map(job).collect();
        let why = places(&more).map(|_| ()).expect_err("they are too many");
        assert!(why.to_string().contains("1025 are for vm0"), "{why}");
        let here: Vec<_> = more.into_iter().map(|job| Job { location: Location::Local, ..job }).collect();
        assert_eq!(of(&here), [1024, 1024, 1], "this kernel takes more");
    }
}
