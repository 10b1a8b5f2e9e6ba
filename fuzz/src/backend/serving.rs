//! A back end and its keeper, as threads, that go on from input to input.

use crate::pool::{memory, scene};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vshmem_agent::ivshmem::{run_part, Directory, Part, Program};
use vshmem_ipc::Pool;
use vshmem_pool::{Mem, Params};

/// An answer takes no longer, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// Of the pool, in bytes.
const SIZE: usize = 1 << 20;

/// What an input meets.
pub struct Serving {
    /// Where the back end's sockets are.
    pub directory: Directory,
    /// The pool, as its members see it.
    pub mem: Mem,
    path: PathBuf,
    image: Vec<u64>,
    /// A machine that has something of everything there.
    member: u16,
}

/// The threads, while there are any.
static THREADS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

impl Serving {
    /// The pool is whole, and there is a back end that serves it.
    pub fn begin() -> &'static Serving {
        static ALL: OnceLock<Serving> = OnceLock::new();
        let serving = ALL.get_or_init(Serving::new);
        memory::restore(serving.mem, &serving.image);
        serving.keep_running();
        serving.serve(1);
        serving
    }

    fn new() -> Serving {
        let base = std::env::temp_dir().join(format!("vshmem-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&base).expect("a directory");
        let path = base.join("fuzzed");
        let mem = memory::of_file(&path, SIZE);
        Pool::format(mem, &Params::default()).expect("a pool");
        let pool = Pool::open(mem).expect("the same");
        let member = scene::furnish(mem, pool);
        CLEAN_UP.get_or_init(|| base.clone());
        // SAFETY: the function lives as long as the program, and only removes files.
        unsafe { libc::atexit(clean_up) };
        Serving {
            directory: Directory::named(&base.join("agent")),
            mem,
            path,
            image: memory::image(mem),
            member,
        }
    }

    /// Starts a back end and a keeper unless they run.
    fn keep_running(&self) {
        let mut threads = THREADS.lock().expect("no thread fails");
        if threads.iter().any(|thread| !thread.is_finished()) {
            return;
        }
        for ended in threads.drain(..) {
            assert!(ended.join().is_ok(), "the back end has failed");
        }
        // Nothing can be started by this path: who is to begin anew stays.
        let program = Program {
            path: "/nonexistent/vshmem".into(),
            args: Vec::new(),
            directory: self.directory.clone(),
            transient: false,
        };
        let ends = pair();
        for (part, end) in [Part::Keeper, Part::BackEnd].into_iter().zip(ends) {
            let program = program.clone();
            threads.push(thread::spawn(move || {
                run_part(&program, part, end).expect("it can go on");
            }));
        }
        let until = Instant::now() + DEADLINE;
        while UnixStream::connect(self.directory.control()).is_err() {
            assert!(Instant::now() < until, "the back end does not begin");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the pool served.
    pub fn serve(&self, vectors: usize) {
        let pool = self.path.display();
        let request = format!("{{\"serve\":{{\"pool\":\"{pool}\",\"vectors\":{vectors}}}}}\n");
        self.ask(&request);
    }

    /// A machine is dead, as far as the pool says: there is much to clean up.
    pub fn machine_dies(&self) {
        if let Ok(pool) = Pool::open(self.mem) {
            pool.declare_dead(self.member);
        }
    }

    /// Asks what everybody may ask.
    pub fn tells_how_it_is(&self) {
        let answer = self.ask("{\"list\":{}}\n");
        let status = serde_json::from_str::<vshmem_agent::ivshmem::Status>(&answer);
        assert!(status.is_ok(), "the back end says {answer}");
    }

    fn ask(&self, request: &str) -> String {
        let stream = UnixStream::connect(self.directory.control()).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        (&stream).write_all(request.as_bytes()).expect("it hears");
        let mut answer = String::new();
        let read = BufReader::new(&stream).read_line(&mut answer);
        assert!(read.is_ok_and(|n| n > 0), "no answer to {request}");
        answer
    }
}

static CLEAN_UP: OnceLock<PathBuf> = OnceLock::new();

/// When the program ends.
extern "C" fn clean_up() {
    if let Some(base) = CLEAN_UP.get() {
        let _ = std::fs::remove_dir_all(base);
    }
}

/// Both ends of a connection that keeps packets apart.
fn pair() -> [RawFd; 2] {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0, "two sockets");
    ends
}
