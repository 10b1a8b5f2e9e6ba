//! Parsers of files, answers and messages, each as a function of bytes. It panics if a parser is at fault.

use crate::description::file::File;
use std::cell::RefCell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use vshmem_agent::guest::protocol::{GrantResponse, GuestStatus};
use vshmem_agent::guest::Lines;
use vshmem_base::{elf, user};
use vshmem_guest::settings::Settings;
use vshmem_hypervisor::boot::{initramfs, kernel, modules, vmlinux};
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::shared::front_end;
use vshmem_hypervisor::state::record::Record;
use vshmem_inspect::processes;
use vshmem_placement::{binding, cpuset::CpuSet};
use vshmem_session::agent::session::testing::Machine;
use vshmem_session::commands::channel::Channel;
use vshmem_session::commands::launch::requests::{Request, Requests};
use vshmem_session::commands::launch::words;
use vshmem_session::commands::output::{self, Output};
use vshmem_session::commands::tasks::Tasks;
use vshmem_session::wire::frame::{encode, Interruption, Parser, MAX_PAYLOAD};
use vshmem_session::wire::greeting::{find_greeting, HELLO, WELCOME};
use vshmem_session::wire::message::{AgentMessage, HostMessage};

/// A parser under test.
pub type Reader = fn(&[u8]);

/// The parsers, by name.
pub const READERS: &[(&str, Reader)] = &[
    ("record", record),
    ("front end", front_end_answers),
    ("frames", frames),
    ("start", start),
    ("elf", elf_file),
    ("image", image),
    ("settings", settings),
    ("lists", lists),
    ("name", name),
    ("guest session", guest_session),
    ("host session", host_session),
    ("relay", relay),
    ("remote command", remote_command),
    ("description", description),
];

/// The launchers' parsers.
pub use vshmem_hypervisor::launcher::table::READERS as LAUNCHER_READERS;

/// Separates the pieces in which a stream arrives.
const SEAM: u8 = 0xff;

/// Records of clusters: a record that was read is written and read again.
fn record(text: &[u8]) {
    if let Ok(record) = serde_json::from_slice::<Record>(text) {
        let written = serde_json::to_vec(&record).expect("plain data");
        serde_json::from_slice::<Record>(&written).expect("what was written");
        let _ = table::of(&record).wakes(&record);
    }
}

/// Answers of a machine's front end.
fn front_end_answers(stream: &[u8]) {
    let mut lines = Lines::default();
    for piece in stream.split(|c| *c == SEAM) {
        lines.push(piece);
        while let Some(line) = lines.next() {
            let _ = front_end::parse_answer::<GrantResponse>(&line, 7).map(|answer| answer.is_ok());
            if let Some(Ok(status)) = front_end::parse_answer::<GuestStatus>(&line, 7) {
                let why = front_end::driver_error(&status).unwrap_or_default();
                assert!(!why.chars().any(char::is_control), "fit for a terminal");
            }
        }
    }
}

/// A session with a machine's agent: noise, a greeting, frames. The frames don't depend on how the stream is
/// cut.
fn frames(stream: &[u8]) {
    let mut noise = Vec::new();
    for piece in stream.split(|c| *c == SEAM) {
        noise.extend_from_slice(piece);
        match find_greeting(&mut noise, &HELLO) {
            Some(_) => noise.clear(),
            None => assert!(noise.len() < 32, "noise is not kept"),
        }
    }
    let whole: Vec<u8> = stream.iter().copied().filter(|c| *c != SEAM).collect();
    let mut at_once = Parser::new(whole);
    let mut in_pieces = Parser::new(Vec::new());
    let mut pieces = stream.split(|c| *c == SEAM);
    loop {
        let one = at_once.next_frame();
        let other = loop {
            match in_pieces.next_frame() {
                Ok(None) => match pieces.next() {
                    Some(piece) => in_pieces.push(piece),
                    None => break Ok(None),
                },
                other => break other,
            }
        };
        assert_eq!(one, other, "pieces make no difference");
        match one {
            Ok(Some(frame)) => {
                let _ = frame.message::<AgentMessage>();
                let mut again = Vec::new();
                encode(frame.kind, frame.stream, &frame.payload, &mut again);
                assert_eq!(Parser::new(again).next_frame(), Ok(Some(frame)), "and again");
            }
            Ok(None) => break,
            Err(_) => {
                let seen = at_once.interruption(&WELCOME);
                assert!(seen == Interruption::None || stream.len() >= 4, "a greeting");
                break;
            }
        }
    }
}

/// A machine's agent, and the bytes of a host after the greeting.
fn guest_session(stream: &[u8]) {
    let mut machine = Machine::echoes();
    for piece in stream.split(|c| *c == SEAM) {
        machine.receive(piece);
        machine.work();
        assert!(machine.backlog() < 1 << 20, "what is not read is not kept");
    }
}

/// A host that runs three commands in a machine, and the bytes of the machine.
fn host_session(stream: &[u8]) {
    let (host, mut machine) = UnixStream::pair().expect("a pair");
    machine.set_nonblocking(true).expect("a socket");
    let said = Rc::new(RefCell::new(Vec::new()));
    let outputs = [None, None, Some("vm0.2")].map(|label| Output::recorded(label, &said));
    let mut tasks = Tasks::on(Channel::on(host, [7; 16]), outputs.into());
    for piece in stream.split(|c| *c == SEAM) {
        let _ = machine.write(piece);
        tasks.service(true).expect("a list takes all");
        if let Some(room) = tasks.input_room(0) {
            tasks.input(0, &vec![b'x'; room.min(100)]);
        }
        tasks.signal(libc::SIGTERM);
        for index in tasks.take_ended() {
            let code = tasks.outcome(index).map(|outcome| outcome.code());
            assert!(code.is_some(), "it has ended");
        }
    }
    let most = stream.len() * 10;
    assert!(said.borrow().len() <= most, "no more than was said");
}

/// The messages of a launcher's relay to the host, which starts the commands that it asks for, or refuses
/// them.
fn relay(stream: &[u8]) {
    let mut requests = Requests::default();
    let (mut tasks, mut answered) = (0, 0);
    for piece in stream.split(|c| *c == SEAM) {
        let Ok(wanted) = requests.receive(piece) else {
            return;
        };
        for request in wanted {
            match request {
                Request::Begin(shell) => assert!(!shell.to_string_lossy().contains(char::is_control)),
                Request::Start { id, command, .. } if command.len() % 2 == 0 => {
                    requests.started(id, tasks);
                    tasks += 1;
                }
                Request::Start { id, host, .. } => requests.refuse(id, &host),
                Request::End(id) => {
                    if let Some(task) = requests.task(id) {
                        assert!(task < tasks && requests.ended(task, 7), "it was started");
                    }
                }
            }
        }
        let Ok(answers) = requests.answers(100) else {
            return;
        };
        assert!(answers.len() <= 100, "as much as there is room for");
        answered += answers.len();
    }
    assert!(answered <= stream.len() * 100, "an answer to each request");
}

/// The text of a remote command, and its words as a judge gets them.
fn remote_command(text: &[u8]) {
    if let Some(words) = words::split(&String::from_utf8_lossy(text)) {
        let len: usize = words.iter().map(|word| word.len()).sum();
        assert!(len <= String::from_utf8_lossy(text).len(), "nothing is added");
    }
}

/// The request of a host to start a command.
fn start(payload: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<HostMessage>(payload) {
        let again = message.to_payload().map(|bytes| serde_json::from_slice(&bytes).ok());
        assert_eq!(again.ok().flatten(), Some(message), "and again");
        assert!(payload.len() <= MAX_PAYLOAD);
    }
}

/// Programs, modules and unpacked kernels.
fn elf_file(bytes: &[u8]) {
    let _ = elf::interpreter(bytes);
    assert!(elf::loaded_part(bytes).len() <= bytes.len(), "a part");
    let _ = elf::section(bytes, ".modinfo").map(<[u8]>::len);
    let _ = modules::dependencies(bytes);
    let _ = vmlinux::has_pvh_entry(bytes);
}

/// A kernel's image.
fn image(bytes: &[u8]) {
    let _ = kernel::image_version(bytes);
    let _ = vmlinux::payload(bytes).map(<[u8]>::len);
}

/// The kernel's command line, as a machine's first process reads it.
fn settings(text: &[u8]) {
    if let Ok(settings) = Settings::from_command_line(&String::from_utf8_lossy(text)) {
        let again = Settings::from_command_line(&settings.to_command_line());
        assert_eq!(again.ok(), Some(settings), "and again");
    }
}

/// Texts made of lines: of /proc and /sys, of apt, of our own files.
fn lists(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let _ = kernel::dependency_in(text, "linux-image-");
    let _ = initramfs::mapped_libraries(text, Path::new("/usr/bin/vshmem"));
    let _ = text.parse::<CpuSet>().map(|set| assert_eq!(set.to_string().parse(), Ok(set)));
    binding::read(text);
    let _ = modules::parse_wanted(text);
    let (who, passwd) = text.split_once('\n').unwrap_or((text, ""));
    let _ = user::parse_identity(who, passwd);
    let mut kept = Vec::new();
    for piece in bytes.split(|c| *c == SEAM) {
        let out = output::whole_lines(&mut kept, "vm: ", piece);
        assert!(out.is_empty() || out.ends_with(b"\n"), "whole lines");
    }
}

/// The file of a cluster. A mistake has a place in it.
fn description(text: &[u8]) {
    let text = String::from_utf8_lossy(text).into_owned();
    match File::parse("c.toml".into(), text, Path::new("/d")) {
        Err(error) => assert!(error.to_string().starts_with("c.toml:"), "{error}"),
        Ok(file) => match file.description.resolve() {
            Ok((_, options)) => assert!(!options.machines.is_empty() && !options.pools.is_empty()),
            Err(fault) => drop(file.explain(fault).to_string()),
        },
    }
}

/// A name that a member wrote into a pool.
fn name(bytes: &[u8]) {
    assert!(!processes::readable(bytes).chars().any(char::is_control), "fit for a terminal");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_parsed() {
        let samples: [(&str, &[u8]); 10] = [
            (
                "description",
                b"name = 'a'\n[[machines]]\ncount = 3\nmemory = '\xc3\xbc'\n[pools.b]\nmachines = ['vm1', 'x']\n",
            ),
            (
                "relay",
                b"{\"ready\":{\"shell\":\"/x\"}}\n\xff{\"start\":{\"id\":1,\"host\":\"a\",\"command\":\"xy\"}}\n{\"hungup\":{\"id\":1}}\n",
            ),
            ("remote command", b" PATH=/x:$PATH ; export PATH ; orted -mca ess \"a b\" '#'"),
            ("front end", b"{\"id\":7,\xff\"ready\":[],\"failed\":[]}\n"),
            ("frames", b"\x12\0\0\0\x02\0\0\0\xffab\x01\0\0\0\x16\0\0\0{\"ended\":{\"exited\":7}}"),
            ("guest session", b"\x01\x05\0\0\x0d\0\0\0{\"signal\":15}\xff\x02\x05\0\0\x01\0\0\0x"),
            (
                "host session",
                b"\x12\x02\0\0\x02\0\0\0ab\x01\x02\0\0\x0b\0\0\0{\"taken\":7}\xff\x12\x03\0\0\0\0\0\0",
            ),
            ("start", b"{\"resize\":{\"rows\":24,\"columns\":80}}"),
            ("settings", b"vshmem.name=vm1 vshmem.net=10.77.0.1/2"),
            ("lists", b"0-2,8\nroot:x:0:0:root:/root:/bin/sh\n"),
        ];
        for (name, sample) in samples {
            let (_, read) = READERS.iter().find(|(n, _)| *n == name).expect("a reader");
            for end in 0..=sample.len() {
                read(&sample[..end]);
            }
        }
    }
}
