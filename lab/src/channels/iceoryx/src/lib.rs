//! iceoryx2's publish-subscribe services, one for each inbox: as its benchmark `publish-subscribe` makes
//! them, but without safe overflow, which drops the oldest sample, and with a publisher that waits for room.
//! A receiver sleeps on an event service that senders notify, as in its example "event based
//! communication", or, "iceoryx-poll", asks again and again, as that benchmark does.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::slice;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// What `channel.h` has.
mod harness {
    use super::*;

    /// `struct channel`.
    #[repr(C)]
    pub struct Channel {
        pub name: *const c_char,
        pub version: *const c_char,
        pub make: extern "C" fn(c_int, usize) -> usize,
        pub open: extern "C" fn(c_int),
        pub send: extern "C" fn(c_int, *const c_void, usize),
        pub receive: extern "C" fn(*mut c_void, usize),
        pub close: extern "C" fn(),
        pub remove: extern "C" fn(),
        pub one_sender: c_int,
    }

    extern "C" {
        pub fn process_count() -> c_int;
        pub fn meet();
        pub fn idle(times: *mut c_uint);
        pub fn broken(what: *const c_char, why: *const c_char) -> !;
    }
}

/// Processes at most.
const PROCESSES: usize = 5;
/// As many bytes as a System V queue has room for, or a few messages that caches hold.
const BYTES: usize = 16384;
const FEW: usize = 4;
const MOST: usize = 256 << 10;

/// Where shared memory lies.
const SHARED: &str = "/dev/shm";

/// As Cargo.toml pins it.
const VERSION: &CStr = c"0.10.0";

type Failure = Box<dyn Error>;

/// What all processes know before they part.
#[derive(Clone, Copy)]
struct Plan {
    /// The process that measures: its number is in the name of all that is made.
    measures: u32,
    /// Of a message.
    size: usize,
}

impl Plan {
    /// What the names of all files in `SHARED` begin with.
    fn prefix(&self) -> String {
        format!("channel-{}-", self.measures)
    }

    fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::default();
        let folder = format!("{SHARED}/{}iceoryx", self.prefix());
        config.global.prefix = FileName::new(self.prefix().as_bytes())?;
        config.global.set_root_path(&Path::new(folder.as_bytes())?);
        Ok(config)
    }

    /// Removes what iceoryx2 keeps for the next process: its folders, and a file for each name of a node.
    fn remove(&self) -> std::io::Result<()> {
        for entry in std::fs::read_dir(SHARED)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(&self.prefix()) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// A way to a process's inbox.
struct Way {
    publisher: Publisher<ipc::Service, [u8], ()>,
    notifier: Notifier<ipc::Service>,
}

struct Process {
    ways: Vec<Way>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    listener: Listener<ipc::Service>,
    _node: Node<ipc::Service>,
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    static PROCESS: RefCell<Option<Process>> = const { RefCell::new(None) };
}

fn fail(what: &str, failure: impl ToString) -> ! {
    let text = |said: &str| CString::new(said.replace('\0', " ")).unwrap_or_default();
    // SAFETY: both are strings that end with a zero; it does not return.
    unsafe { harness::broken(text(what).as_ptr(), text(&failure.to_string()).as_ptr()) }
}

fn plan() -> Plan {
    PLAN.with_borrow(|plan| plan.expect("make() comes first"))
}

impl Process {
    fn open(me: usize) -> Result<Process, Failure> {
        let plan = plan();
        let node = NodeBuilder::new()
            .config(&plan.config()?)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()?;
        let messages = |inbox: usize| -> Result<_, Failure> {
            Ok(node
                .service_builder(&ServiceName::new(&format!("inbox {inbox}"))?)
                .publish_subscribe::<[u8]>()
                .max_nodes(PROCESSES)
                .max_publishers(PROCESSES)
                .max_subscribers(1)
                .history_size(0)
                .subscriber_max_buffer_size(FEW.max(BYTES / plan.size))
                .enable_safe_overflow(false)
                .open_or_create()?)
        };
        let events = |inbox: usize| -> Result<_, Failure> {
            Ok(node
                .service_builder(&ServiceName::new(&format!("inbox {inbox}"))?)
                .event()
                .max_nodes(PROCESSES)
                .max_notifiers(PROCESSES)
                .open_or_create()?)
        };
        let subscriber = messages(me)?.subscriber_builder().create()?;
        let listener = events(me)?.listener_builder().create()?;
        // SAFETY: all processes come here once.
        unsafe { harness::meet() };
        // SAFETY: a plain function.
        let processes = unsafe { harness::process_count() } as usize;
        let ways = (0..processes)
            .map(|inbox| -> Result<Way, Failure> {
                let publisher = messages(inbox)?
                    .publisher_builder()
                    .initial_max_slice_len(plan.size)
                    .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
                    .create()?;
                let notifier = events(inbox)?.notifier_builder().create()?;
                Ok(Way { publisher, notifier })
            })
            .collect::<Result<_, _>>()?;
        // A subscriber that has not looked yet is not connected: what its buffer does not hold would be lost.
        // SAFETY: all processes come here once.
        unsafe { harness::meet() };
        subscriber.has_samples()?;
        Ok(Process { ways, subscriber, listener, _node: node })
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<(), Failure> {
        let sample = self.ways[to].publisher.loan_slice_uninit(message.len())?;
        sample.write_from_slice(message).send()?;
        Ok(())
    }

    /// Whether there was one.
    fn take(&self, message: &mut [u8]) -> Result<bool, Failure> {
        let sample = self.subscriber.receive()?;
        if let Some(sample) = &sample {
            if sample.payload().len() != message.len() {
                return Err("a message came short".into());
            }
            message.copy_from_slice(sample.payload());
        }
        Ok(sample.is_some())
    }
}

/// What a process does with its ports.
fn with(what: &str, act: impl FnOnce(&Process) -> Result<(), Failure>) {
    PROCESS.with_borrow(|process| {
        let process = process.as_ref().expect("open() comes first");
        act(process).unwrap_or_else(|failure| fail(what, failure));
    });
}

extern "C" fn make(_processes: c_int, size: usize) -> usize {
    set_log_level(LogLevel::Error);
    let plan = Plan { measures: std::process::id(), size: size.min(MOST) };
    PLAN.set(Some(plan));
    plan.size
}

extern "C" fn open(me: c_int) {
    let process = Process::open(me as usize).unwrap_or_else(|failure| fail("iceoryx2", failure));
    PROCESS.set(Some(process));
}

extern "C" fn send(to: c_int, message: *const c_void, size: usize) {
    // SAFETY: the caller's message has so many bytes.
    let message = unsafe { slice::from_raw_parts(message.cast(), size) };
    with("send", |process| process.send(to as usize, message));
}

extern "C" fn send_and_notify(to: c_int, message: *const c_void, size: usize) {
    send(to, message, size);
    with("notify", |process| {
        process.ways[to as usize].notifier.notify()?;
        Ok(())
    });
}

extern "C" fn receive_polling(message: *mut c_void, size: usize) {
    // SAFETY: the caller has room for so many bytes.
    let message = unsafe { slice::from_raw_parts_mut(message.cast(), size) };
    let mut times: c_uint = 0;
    with("receive", |process| {
        while !process.take(message)? {
            // SAFETY: it counts in `times`.
            unsafe { harness::idle(&mut times) };
        }
        Ok(())
    });
}

extern "C" fn receive(message: *mut c_void, size: usize) {
    // SAFETY: the caller has room for so many bytes.
    let message = unsafe { slice::from_raw_parts_mut(message.cast(), size) };
    with("receive", |process| {
        while !process.take(message)? {
            process.listener.blocking_wait(|_| ())?;
        }
        Ok(())
    });
}

extern "C" fn close() {
    PROCESS.set(None);
}

extern "C" fn remove() {
    plan().remove().unwrap_or_else(|failure| fail(SHARED, failure));
}

const SLEEPING: harness::Channel = harness::Channel {
    name: c"iceoryx".as_ptr(),
    version: VERSION.as_ptr(),
    make,
    open,
    send: send_and_notify,
    receive,
    close,
    remove,
    one_sender: 0,
};

const POLLING: harness::Channel =
    harness::Channel { name: c"iceoryx-poll".as_ptr(), send, receive: receive_polling, ..SLEEPING };

/// `channels` of channel.h.
#[repr(transparent)]
pub struct Table([Option<&'static Entry>; 3]);

/// A channel whose strings are constants.
#[repr(transparent)]
struct Entry(harness::Channel);

// SAFETY: it is never changed, and what it points to are constants.
unsafe impl Sync for Entry {}

static ENTRIES: [Entry; 2] = [Entry(SLEEPING), Entry(POLLING)];

/// The channels of this program; the last is null.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static channels: Table = Table([Some(&ENTRIES[0]), Some(&ENTRIES[1]), None]);
