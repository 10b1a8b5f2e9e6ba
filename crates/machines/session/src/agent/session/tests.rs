//! Tests of sessions, with a host at the other end and with one that violates the protocol. The commands run
//! on this kernel.

use super::testing::{Machine, NONCE};
use super::BACKLOG;
use crate::commands::channel::Channel;
use crate::commands::output::Output;
use crate::commands::tasks::Tasks;
use crate::wire::ended::Ended;
use crate::wire::frame::{encode, Kind, MAX_DATA, MAX_STREAMS};
use crate::wire::greeting::{greeting, HELLO};
use crate::wire::message::{AgentMessage, HostMessage};
use crate::wire::start::{Size, Start};
use std::cell::RefCell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A request to run a shell command.
fn request(script: &str) -> Start {
    // SAFETY: these calls take nothing.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    Start {
        argv: ["sh", "-c", script].map(Into::into).to_vec(),
        env: std::env::vars_os().collect(),
        cwd: "/".into(),
        uid,
        gid,
        ..Start::default()
    }
}

/// The frame that starts a command.
fn starts(stream: u16, request: &Start) -> Vec<u8> {
    let message = HostMessage::Start(Box::new(request.clone()));
    let mut frame = Vec::new();
    encode(Kind::Message, stream, &message.to_payload().unwrap(), &mut frame);
    frame
}

/// A host and a machine, and the output of each command.
struct Run {
    machine: Machine,
    tasks: Tasks,
    said: Vec<Rc<RefCell<Vec<u8>>>>,
}

impl Run {
    fn start(requests: &[Start]) -> Run {
        let mut machine = Machine::plain();
        let host = machine.take_host();
        host.set_nonblocking(false).unwrap();
        let mut sender = host.try_clone().unwrap();
        let said: Vec<_> = requests.iter().map(|_| Rc::default()).collect();
        let outputs = said.iter().map(|list| Output::recorded(None, list)).collect();
        for (stream, request) in requests.iter().enumerate() {
            sender.write_all(&starts(stream as u16, request)).unwrap();
            machine.work();
        }
        let tasks = Tasks::on(Channel::on(host, NONCE), outputs);
        Run { machine, tasks, said }
    }

    fn step(&mut self) {
        self.machine.work();
        self.tasks.service(true).unwrap();
        assert!(self.machine.backlog() <= BACKLOG + 4 * MAX_DATA);
    }

    fn until(&mut self, done: impl Fn(&Run) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.step();
            assert!(begun.elapsed() < TIMEOUT, "it takes too long");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn code(&self, index: usize) -> Option<u8> {
        self.tasks.outcome(index).map(|outcome| outcome.code())
    }

    fn said(&self, index: usize) -> String {
        String::from_utf8_lossy(&self.said[index].borrow()).into_owned()
    }
}

fn is_gone(pid: i32) -> bool {
    // SAFETY: plain values. It is our child: reaped, if it has ended.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

#[test]
fn many_commands_have_their_own_output_and_end() {
    let requests: Vec<_> =
        (0..64).map(|i| request(&format!("echo out {i}; echo err {i} >&2; exit {i}"))).collect();
    let mut run = Run::start(&requests);
    run.until(|run| !run.tasks.runs());
    for i in 0..64 {
        assert_eq!(run.code(i), Some(i as u8));
        let said = run.said(i);
        let mut lines: Vec<_> = said.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [format!("err {i}"), format!("out {i}")]);
    }
}

#[test]
fn a_command_that_floods_delays_no_other() {
    let mut requests = vec![request("exec yes"), request("exec yes >&2")];
    requests.extend((0..20).map(|i| request(&format!("echo {i}; sleep 0.2; exit {i}"))));
    let mut run = Run::start(&requests);
    run.until(|run| (2..22).all(|i| run.code(i).is_some()));
    for i in 2..22 {
        assert_eq!(run.said(i), format!("{}\n", i - 2));
        assert_eq!(run.code(i), Some(i as u8 - 2));
    }
    for i in [0, 1] {
        let len = run.said[i].borrow().len();
        assert!(len > MAX_DATA, "it has had its turn: {len}");
        assert_eq!(run.code(i), None);
    }
    run.tasks.signal(libc::SIGKILL);
    run.until(|run| !run.tasks.runs());
    assert_eq!((run.code(0), run.code(1)), (Some(137), Some(137)));
}

#[test]
fn a_host_that_does_not_read_costs_no_memory() {
    let mut run = Run::start(&[request("exec yes"), request("exec yes")]);
    for _ in 0..200 {
        run.machine.work();
        assert!(run.machine.backlog() <= BACKLOG + 4 * MAX_DATA);
    }
    run.tasks.signal(libc::SIGTERM);
    run.until(|run| !run.tasks.runs());
    assert_eq!(run.code(0), Some(143));
}

#[test]
fn input_goes_to_its_command_as_it_takes_it() {
    let start = Start { stdin: true, ..request("sleep 0.2; cat; exit 5") };
    let mut run = Run::start(&[start, request("cat; exit 6")]);
    let mut sent = Vec::new();
    while sent.len() < 1 << 20 {
        if let Some(room @ 1..) = run.tasks.input_room(0) {
            let part: Vec<u8> = (0..room).map(|i| (i % 251) as u8).collect();
            run.tasks.input(0, &part);
            sent.extend(part);
        }
        run.step();
    }
    run.tasks.input(0, &[]);
    run.until(|run| !run.tasks.runs());
    assert!(*run.said[0].borrow() == sent, "as it was sent");
    assert_eq!((run.code(0), run.code(1)), (Some(5), Some(6)));
    assert!(run.said[1].borrow().is_empty());
}

#[test]
fn a_terminal_is_one() {
    // A shell that runs the tests in the background ignores it, and programs inherit that. SAFETY: plain
    // values.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let terminal = Some(Size { rows: 11, columns: 77 });
    let start = Start { stdin: true, terminal, ..request("tty; stty size; cat; exit 3") };
    let mut run = Run::start(&[start]);
    run.until(|run| run.said(0).contains("11 77\r\n"));
    assert!(run.said(0).starts_with("/dev/pts/"), "{}", run.said(0));
    // An interrupted shell goes on with its next command, so both first report that they wait.
    run.tasks.input(0, b"x\n");
    run.until(|run| run.said(0).ends_with("x\r\nx\r\n"));
    run.tasks.input(0, b"\x03");
    run.until(|run| !run.tasks.runs());
    assert_eq!(run.code(0), Some(130), "{}", run.said(0));
    // The end of input is a character.
    let start = Start { stdin: true, terminal, ..request("cat; exit 4") };
    let mut run = Run::start(&[start]);
    run.tasks.input(0, &[]);
    run.until(|run| !run.tasks.runs());
    assert_eq!(run.code(0), Some(4));
}

#[test]
fn a_login_shell_is_the_first_that_exists() {
    let start = Start {
        argv: vec!["/no/such/shell".into(), "/bin/sh".into()],
        login: true,
        stdin: true,
        ..request("")
    };
    let mut run = Run::start(&[start]);
    run.tasks.input(0, b"echo $0 $SHELL; exit 9\n");
    run.until(|run| !run.tasks.runs());
    assert!(run.said(0).contains("-sh /bin/sh\n"), "{}", run.said(0));
    assert_eq!(run.code(0), Some(9));
}

#[test]
fn a_number_is_free_again_after_its_commands_end() {
    let mut run = Run::start(&[request("exit 1")]);
    run.until(|run| !run.tasks.runs());
    let mut again = Machine::plain();
    for _ in 0..3 {
        again.receive(&starts(5, &request("exit 0")));
        let begun = Instant::now();
        again.work();
        while !again.pids().is_empty() && begun.elapsed() < TIMEOUT {
            again.work();
        }
        again.work();
        assert!(again.has_host());
    }
    // Not while its command runs.
    for expected in [true, false] {
        again.receive(&starts(5, &request("exec sleep 60")));
        again.work();
        assert_eq!(again.has_host(), expected);
    }
}

/// The kernel reports that as a reset, once.
#[test]
fn the_end_of_a_host_that_has_not_read_all_is_noticed() {
    assert!(Machine::plain().notices_the_end());
}

#[test]
fn a_host_that_hangs_up_ends_its_commands() {
    for greets in [false, true] {
        let mut machine = Machine::plain();
        let host: UnixStream = machine.take_host();
        for stream in [0, 1, MAX_STREAMS - 1] {
            (&host).write_all(&starts(stream, &request("exec sleep 60"))).unwrap();
        }
        machine.work();
        let pids = machine.pids();
        assert_eq!(pids.len(), 3);
        if greets {
            // Another host at the same port.
            (&host).write_all(&greeting(&HELLO, &[8; 16])).unwrap();
        } else {
            drop(host);
        }
        let begun = Instant::now();
        while !pids.iter().all(|&pid| is_gone(pid)) {
            assert!(begun.elapsed() < TIMEOUT, "they live on");
            std::thread::sleep(Duration::from_millis(10));
            machine.work();
        }
        assert_eq!(machine.has_host(), greets);
    }
}

/// Valid frames in any order, among noise.
#[test]
fn no_host_brings_an_agent_down() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 8) % below
    };
    let start = Start { stdin: true, ..request("echo") };
    let messages = [
        HostMessage::Start(Box::new(start)),
        HostMessage::Signal(0),
        HostMessage::Resize(Size { rows: 1, columns: 1 }),
    ];
    let messages = messages.map(|message| message.to_payload().unwrap());
    let wrong = serde_json::to_vec(&AgentMessage::Ended(Ended::Exited(0))).unwrap();
    for _ in 0..50 {
        let mut machine = Machine::echoes();
        for _ in 0..100 {
            let noise = vec![0; random(40) as usize];
            let (kind, payload) = match random(100) {
                0 => (Kind::Message, &wrong),
                1 => (Kind::Stdout, &noise),
                2 => (Kind::Message, &noise),
                other if other % 4 == 0 => (Kind::Stdin, &noise),
                other => (Kind::Message, &messages[other as usize % messages.len()]),
            };
            let mut said = Vec::new();
            let stream = random(u64::from(MAX_STREAMS)) as u16;
            encode(kind, stream % 8, payload, &mut said);
            if random(20) == 0 {
                said.extend(greeting(&HELLO, &NONCE));
            }
            said.truncate(said.len() - usize::from(random(500) == 0));
            machine.receive(&said);
            machine.work();
            assert!(machine.backlog() <= BACKLOG + 4 * MAX_DATA);
        }
    }
}
