//! The tasks of one run: its commands, on this kernel and in machines. Those in one place share a channel.

use super::channel::{protocol_error, Channel, PING_INTERVAL};
use super::job::Job;
use super::location::{Location, Place};
use super::outcome::Outcome;
use super::output::Output;
use super::task::Task;
use super::{local, reached, terminal};
use crate::wire::frame::MAX_STREAMS;
use crate::wire::message::HostMessage;
use rustix::event::PollFd;
use std::io;
use std::time::Duration;
use vshmem_base::error::{error, Result, OUR_FAILURE};

/// Time that a machine's agent may take to answer before commands are started.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A machine that has not taken this many bytes gets no input; one that has not taken [`MAX_QUEUED`] gets
/// no further command. Its agent may claim to have read what it has not.
const MAX_UNSENT: usize = 1 << 20;
/// Room for the commands and environments of many tasks, and still little of this process's memory.
const MAX_QUEUED: usize = 16 << 20;

/// The commands of a run that were started. More can be added while they run.
#[derive(Default)]
pub struct Tasks {
    tasks: Vec<Task>,
    channels: Vec<OpenChannel>,
    /// Indices of tasks that have ended and were not taken yet.
    ended: Vec<usize>,
    /// Indices of tasks that were forgotten: the next ones get them.
    free: Vec<usize>,
}

/// A channel, and the tasks on it.
struct OpenChannel {
    channel: Channel,
    /// The location of its tasks; `None` in tests.
    location: Option<Location>,
    /// Index of each stream's task, until that ends; a task's stream is its place in this list.
    tasks: Vec<Option<usize>>,
    /// It is serviced even while it has no task, so that its loss is noticed.
    serviced_idle: bool,
    /// The reason of its loss, if it was lost.
    lost: Option<String>,
}

impl OpenChannel {
    fn open(location: &Location, serviced_idle: bool) -> Result<OpenChannel> {
        let location = Some(location.clone());
        let channel = open(location.as_ref().expect("it was just made"))?;
        Ok(OpenChannel { channel, location, tasks: Vec::new(), serviced_idle, lost: None })
    }

    fn runs(&self) -> bool {
        self.lost.is_none() && (self.serviced_idle || self.tasks.iter().any(Option::is_some))
    }

    fn has_room(&self) -> bool {
        self.tasks.iter().flatten().count() < usize::from(MAX_STREAMS)
    }
}

impl Tasks {
    /// Starts jobs, each with its output. If one can't be started, the others end with their channels.
    pub fn start(jobs: &[Job], output: impl Fn(&Job) -> Output) -> Result<Tasks> {
        let mut tasks = Tasks::default();
        let (locations, places) = places(jobs)?;
        for location in locations {
            tasks.channels.push(OpenChannel::open(location, false)?);
        }
        for (job, channel) in jobs.iter().zip(places) {
            tasks.start_on(channel, job, output(job))?;
        }
        Ok(tasks)
    }

    /// Opens a channel for jobs that will be added, unless there is one. Its loss is noticed even while no
    /// job runs there.
    pub fn open_channel(&mut self, location: &Location) -> Result<()> {
        if self.channel_to(location).is_none() {
            self.channels.push(OpenChannel::open(location, true)?);
        }
        Ok(())
    }

    fn channel_to(&self, location: &Location) -> Option<usize> {
        let is_there = |channel: &OpenChannel| {
            channel.location.as_ref().is_some_and(|it| it.place() == location.place())
        };
        self.channels.iter().position(is_there)
    }

    /// Starts one more job where a channel was opened for it. Returns its index.
    pub fn add(&mut self, job: &Job, output: Output) -> Result<usize> {
        let channel = self.channel_to(&job.location).filter(|channel| self.channels[*channel].lost.is_none());
        let channel = channel.ok_or_else(|| error!("there is no channel to {}", job.runs_on()))?;
        if !self.channels[channel].has_room() {
            return Err(error!("{MAX_STREAMS} commands run in {}, and no more can", job.runs_on()));
        }
        if self.channels[channel].channel.unsent() > MAX_QUEUED {
            return Err(error!("{} does not take what it is sent", job.runs_on()));
        }
        self.start_on(channel, job, output)
    }

    fn start_on(&mut self, number: usize, job: &Job, output: Output) -> Result<usize> {
        let OpenChannel { channel, tasks, .. } = &mut self.channels[number];
        let stream = tasks.iter().position(Option::is_none).unwrap_or(tasks.len());
        channel.send(stream as u16, &HostMessage::Start(Box::new(job.request.clone())))?;
        let task = Task::new(output, number, stream as u16, job.request.stdin);
        let index = match self.free.pop() {
            Some(index) => {
                self.tasks[index] = task;
                index
            }
            None => {
                self.tasks.push(task);
                self.tasks.len() - 1
            }
        };
        match tasks.get_mut(stream) {
            Some(entry) => *entry = Some(index),
            None => tasks.push(Some(index)),
        }
        Ok(index)
    }

    /// Forgets a task that has ended and was taken; another may get its index.
    pub fn forget(&mut self, index: usize) {
        self.free.push(index);
    }

    /// Tasks that run at the other end of a channel, for tests.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn on(channel: Channel, outputs: Vec<Output>) -> Tasks {
        let tasks = (0..outputs.len()).map(Some).collect();
        let task = |(stream, output)| Task::new(output, 0, stream as u16, stream == 0);
        let outputs = outputs.into_iter().enumerate();
        let channel = OpenChannel { channel, location: None, tasks, serviced_idle: false, lost: None };
        let mut tasks = Tasks::default();
        tasks.tasks = outputs.map(task).collect();
        tasks.channels = vec![channel];
        tasks
    }

    /// The outcome of a task, if it has ended.
    pub fn outcome(&self, index: usize) -> Option<&Outcome> {
        self.tasks[index].outcome.as_ref()
    }

    /// The location of a task, also when it has ended.
    pub fn location(&self, index: usize) -> Option<&Location> {
        self.channels[self.tasks[index].channel].location.as_ref()
    }

    /// Whether some tasks have not ended.
    pub fn runs(&self) -> bool {
        self.tasks.iter().any(|task| task.outcome.is_none())
    }

    /// Indices of tasks that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ended)
    }

    /// The longest time to wait for the next call of [`Tasks::service`]; `None`: no task runs.
    pub fn poll_interval(&self) -> Option<Duration> {
        self.runs().then_some(PING_INTERVAL)
    }

    /// Descriptors and events to poll; only what there is to send, unless it also `receives`.
    pub fn descriptors(&self, receives: bool) -> impl Iterator<Item = PollFd<'_>> {
        let running = self.channels.iter().filter(|channel| channel.runs());
        running.filter_map(move |channel| channel.channel.descriptor(receives))
    }

    /// Sends and receives without waiting; only sends, unless it also `receives`. An error is about our
    /// own output.
    pub fn service(&mut self, receives: bool) -> io::Result<()> {
        for number in 0..self.channels.len() {
            if self.channels[number].runs() {
                self.service_channel(number, receives)?;
            }
        }
        Ok(())
    }

    fn service_channel(&mut self, number: usize, receives: bool) -> io::Result<()> {
        let channel = &mut self.channels[number].channel;
        let moved = match receives {
            true => channel.ping().and_then(|()| channel.receive()),
            false => channel.send_only(),
        };
        let lost = loop {
            let channel = &mut self.channels[number];
            let frame = match channel.channel.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break moved.err(),
                Err(error) => break Some(error),
            };
            let index = match channel.tasks.get(usize::from(frame.stream)) {
                Some(Some(index)) => *index,
                // Its task has ended.
                Some(None) => continue,
                None => break Some(protocol_error("there is no such command")),
            };
            match self.tasks[index].handle(&frame)? {
                Ok(None) => (),
                Ok(Some(outcome)) => self.finish(index, outcome)?,
                Err(error) => break Some(error),
            }
        };
        match lost {
            Some(why) => self.lose(number, &Outcome::Failed(OUR_FAILURE, why.to_string())),
            None => Ok(()),
        }
    }

    fn finish(&mut self, index: usize, outcome: Outcome) -> io::Result<()> {
        let task = &mut self.tasks[index];
        task.outcome = Some(outcome);
        self.channels[task.channel].tasks[usize::from(task.stream)] = None;
        self.ended.push(index);
        task.output.end()
    }

    fn lose(&mut self, channel: usize, outcome: &Outcome) -> io::Result<()> {
        if let Outcome::Failed(_, why) = outcome {
            self.channels[channel].lost = Some(why.clone());
        }
        for index in self.channels[channel].tasks.clone().into_iter().flatten() {
            self.finish(index, outcome.clone())?;
        }
        Ok(())
    }

    /// The locations of channels that were opened and then lost, each with the reason.
    pub fn lost(&self) -> impl Iterator<Item = (&Location, &str)> {
        self.channels
            .iter()
            .filter_map(|channel| Some((channel.location.as_ref()?, channel.lost.as_deref()?)))
    }

    /// Gives up machines that have been silent for so long; their tasks fail with `code`, and this reason.
    /// When such a machine goes on, its commands end with the channel.
    pub fn give_up(&mut self, silence: Duration, code: u8, why: &str) -> io::Result<()> {
        for channel in 0..self.channels.len() {
            if self.channels[channel].runs() && self.channels[channel].channel.silence() >= silence {
                self.lose(channel, &Outcome::Failed(code, why.into()))?;
            }
        }
        Ok(())
    }

    /// The task that takes input, if any does.
    pub fn input_task(&self) -> Option<usize> {
        self.tasks.iter().position(|task| task.input_room().is_some())
    }

    /// Bytes of input that a task can take now; `None` if it takes no more.
    pub fn input_room(&self, index: usize) -> Option<usize> {
        let task = &self.tasks[index];
        let unsent = self.channels[task.channel].channel.unsent();
        task.input_room().map(|room| if unsent > MAX_UNSENT { 0 } else { room })
    }

    /// Passes input to a task; empty input ends it.
    pub fn input(&mut self, index: usize, bytes: &[u8]) {
        let task = &mut self.tasks[index];
        task.input(bytes, &mut self.channels[task.channel].channel);
    }

    /// Sends all tasks a signal; SIGKILL reaches their descendants too.
    pub fn signal(&mut self, signal: i32) {
        self.send_all(&HostMessage::Signal(signal));
    }

    /// Sends one task a signal.
    pub fn signal_one(&mut self, index: usize, signal: i32) {
        self.send(index, &HostMessage::Signal(signal));
    }

    /// Reports the size of the user's terminal to programs that have it.
    pub fn resize(&mut self) {
        if let Ok(size) = terminal::size() {
            self.send_all(&HostMessage::Resize(size));
        }
    }

    fn send_all(&mut self, message: &HostMessage) {
        for index in 0..self.tasks.len() {
            self.send(index, message);
        }
    }

    fn send(&mut self, index: usize, message: &HostMessage) {
        let task = &self.tasks[index];
        if task.outcome.is_none() {
            // A lost machine is noticed when its output is read.
            let _ = self.channels[task.channel].channel.send(task.stream, message);
        }
    }
}

/// Has all agents begin to end; then the drop of each channel waits for its agent.
impl Drop for Tasks {
    fn drop(&mut self) {
        for channel in &self.channels {
            channel.channel.hang_up();
        }
    }
}

/// Opens a channel to where commands are to run.
fn open(location: &Location) -> Result<Channel> {
    match location {
        Location::Local => local::channel(),
        Location::Machine(machine) => Channel::open(machine, ANSWER_TIMEOUT),
        Location::Reached(place) => reached::channel(place),
    }
}

/// The locations of jobs that share a channel, and the index of each job's location among these. This kernel
/// counts as often as it takes, a machine once.
fn places(jobs: &[Job]) -> Result<(Vec<&Location>, Vec<usize>)> {
    let most = usize::from(MAX_STREAMS);
    let mut places: Vec<(&Location, usize)> = Vec::new();
    let mut numbers = Vec::new();
    for Job { location, .. } in jobs {
        let has_room = |(place, taken): &(&Location, usize)| match (place.place(), location.place()) {
            (Place::Here, Place::Here) => *taken < most,
            (one, other) => one == other,
        };
        let number = places.iter().position(has_room).unwrap_or(places.len());
        if number == places.len() {
            places.push((location, 0));
        }
        places[number].1 += 1;
        numbers.push(number);
    }
    if let Some((location, taken)) = places.iter().find(|(_, taken)| *taken > most) {
        let name = location.name().unwrap_or_default();
        return Err(error!(
            "one vshmem run can start {most} processes in a machine, and {taken} are for {name}"
        )
        .hint("Spread them over more machines, or start them by several vshmem run."));
    }
    Ok((places.into_iter().map(|(location, _)| location).collect(), numbers))
}

#[cfg(test)]
mod tests {
    use super::super::location::MachineLocation;
    use super::*;
    use crate::wire::start::Start;

    fn machine(number: usize) -> Location {
        Location::Machine(MachineLocation {
            cluster: "c".into(),
            name: format!("vm{number}"),
            channels: 1,
            reports_hang_up: true,
            pool: "default".into(),
            shares: Vec::new(),
        })
    }

    #[test]
    fn a_machine_takes_a_limited_number_of_commands() {
        let job = |number: usize| Job {
            location: machine(number % 2),
            label: "p".into(),
            request: Start::default(),
            files: None,
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

    #[test]
    fn a_machine_that_takes_nothing_is_sent_no_more() {
        let output = || Output::recorded(None, &Default::default());
        let (stream, _agent) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let location = machine(0);
        let request = Start { argv: vec!["x".repeat(1 << 20).into()], stdin: true, ..Start::default() };
        let job = Job { location: location.clone(), label: "p".into(), request, files: None };
        let mut tasks = Tasks::default();
        let channel = Channel::on(stream, [7; 16]);
        let location = Some(location);
        tasks.channels.push(OpenChannel {
            channel,
            location,
            tasks: Vec::new(),
            serviced_idle: true,
            lost: None,
        });
        assert_eq!(tasks.add(&job, output()).ok(), Some(0));
        assert_eq!(tasks.input_room(0), Some(0), "the command itself was not taken");
        let refused = (1..100).find(|_| tasks.add(&job, output()).is_err());
        assert!(refused.is_some_and(|count| count < 20), "{refused:?}");
        assert!(tasks.channels[0].channel.unsent() < MAX_QUEUED + (8 << 20));
    }
}
