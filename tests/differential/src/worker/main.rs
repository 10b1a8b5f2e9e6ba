//! A program that performs System V calls on command.
//!
//! It connects to the abstract unix socket named by its first argument, says `hello PID`, and then
//! answers each line with one line: `ok ...` or `err ERRNO`. It knows nothing of Vshmem: the harness
//! starts it with or without the interposer.
//!
//! In replies, a token whose value starts with `!` is an id, with `%` a process id, with `@` a time;
//! the harness translates those before it compares.

mod link;
mod msg;
mod process;
mod sem;
mod shm;

use link::Link;

/// A reply: the text after `ok`, or an errno value.
pub type Reply = Result<String, i32>;

/// The calling thread's errno.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// `Ok(result)` as a number of the `%d` kind, or the errno value if the call returned -1.
pub fn check(result: i64) -> Result<i64, i32> {
    if result == -1 {
        Err(errno())
    } else {
        Ok(result)
    }
}

/// What the worker keeps between commands.
pub struct Worker {
    pub link: Link,
    pub attachments: shm::Attachments,
    /// A deliberate fault: see [`sem::drops_undo`].
    pub drop_undo: bool,
}

/// The arguments of one command. A malformed command is a fault of the harness: the worker panics.
pub struct Args<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Args<'a> {
    pub fn word(&mut self) -> &'a str {
        let word = self.words.get(self.next).unwrap_or_else(|| panic!("too few words: {:?}", self.words));
        self.next += 1;
        word
    }

    /// The next word as a number; also accepts what only an unsigned 64-bit number can hold.
    pub fn number(&mut self) -> i64 {
        let word = self.word();
        parse(word).unwrap_or_else(|| panic!("{word:?} is no number in {:?}", self.words))
    }

    pub fn int(&mut self) -> i32 {
        self.number() as i32
    }

    pub fn rest(&mut self) -> Vec<&'a str> {
        let rest = self.words[self.next..].to_vec();
        self.next = self.words.len();
        rest
    }

    /// Takes the next word if it is this one.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.words.get(self.next) == Some(&word);
        self.next += usize::from(found);
        found
    }
}

/// A decimal number, signed or unsigned, of 64 bits.
pub fn parse(word: &str) -> Option<i64> {
    word.parse::<i64>().ok().or_else(|| word.parse::<u64>().ok().map(|n| n as i64))
}

fn perform(worker: &mut Worker, line: &str) -> Reply {
    let mut args = Args { words: line.split_whitespace().collect(), next: 0 };
    match args.word() {
        "shmget" => shm::get(&mut args),
        "shmat" => shm::attach(&mut worker.attachments, &mut args),
        "shmdt" => shm::detach(&worker.attachments, &mut args),
        "shmctl" => shm::control(&mut args),
        "shmscan" => shm::scan(&mut args),
        "peek" => shm::peek(&worker.attachments, &mut args),
        "poke" => shm::poke(&worker.attachments, &mut args),
        "semget" => sem::get(&mut args),
        "semop" => sem::operate(worker.drop_undo, &mut args),
        "semctl" => sem::control(&mut args),
        "semscan" => sem::scan(&mut args),
        "semdump" => sem::dump(&mut args),
        "msgget" => msg::get(&mut args),
        "msgsnd" => msg::send(&mut args),
        "msgrcv" => msg::receive(&mut args),
        "msgctl" => msg::control(&mut args),
        "msgscan" => msg::scan(&mut args),
        "euid" | "egid" | "uid" | "groups" => process::identity(line),
        "fork" => process::fork(worker),
        "exec" => process::exec(&worker.link),
        "exit" => std::process::exit(0),
        other => panic!("the worker does not know the command {other:?}"),
    }
}

/// Answers commands until the harness hangs up.
pub fn serve(worker: &mut Worker) -> ! {
    while let Some(line) = worker.link.read_line() {
        let reply = match perform(worker, &line) {
            Ok(text) => format!("ok {text}"),
            Err(errno) => format!("err {errno}"),
        };
        worker.link.write_line(reply.trim_end());
    }
    std::process::exit(0)
}

fn main() {
    let socket = std::env::args().nth(1).expect("usage: worker SOCKET");
    process::prepare();
    shm::reserve_range();
    let link = Link::connect(&socket);
    serve(&mut Worker { link, attachments: shm::Attachments::default(), drop_undo: sem::drops_undo() });
}
