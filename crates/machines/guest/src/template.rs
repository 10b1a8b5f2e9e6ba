//! A template: a machine that is frozen before it becomes anybody, and of which others thaw. Its first
//! process waits here. Each machine that thaws is told by its host who it is, and gets what must differ:
//! random numbers and the time.
//!
//! ```text
//! machine                        host
//! ready                 ---->                   the template is frozen now, with this process asleep
//!                       <----    seed HEX
//!                       <----    settings WORDS the parameters that a kernel's command line has otherwise
//! time                  ---->
//!                       <----    NANOSECONDS    since 1970; asked until an answer comes fast
//! is NAME               ---->
//! ```

use crate::hypervisor::table;
use crate::settings::{self, Settings};
use rustix::time::{clock_settime, ClockId, Timespec};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use vshmem_agent::guest::port::{self, Poller};
use vshmem_agent::guest::Lines;
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::{interface, interrupt};

/// The name of the virtio-serial port on which a machine is told who it is.
pub const PORT: &str = "org.vshmem.settings";
/// Bytes of a seed.
pub const SEED: usize = 32;

/// Time that the kernel may take to announce the port.
const PORT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that the host may take to answer. It may be busy with many machines.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Questions for the time; the fastest answer counts.
const QUESTIONS: u32 = 12;
/// An answer that is fast enough: the clock is right to half of it.
const FAST: Duration = Duration::from_millis(2);

/// The address of a template's card on an uplink.
pub const UPLINK_MAC: &str = "52:54:00:77:ff:ff";

/// The port, and what was read from it.
struct Host {
    port: File,
    poller: Poller,
    lines: Lines,
}

/// Sleeps until the host says who this machine is. Its random numbers and its clock are its own then.
pub fn await_settings() -> Result<Settings> {
    let mut host = Host::find()?;
    host.say("ready").explain(|| "could not report that the template is ready".into())?;
    loop {
        let line = host.line(None)?.unwrap_or_default();
        if let Some(seed) = line.strip_prefix("seed ") {
            reseed(&bytes(seed).ok_or_else(|| Error::new("the host's seed is invalid"))?)
                .explain(|| "could not make random numbers this machine's own".into())?;
        }
        if let Some(words) = line.strip_prefix("settings ") {
            let settings = Settings::from_command_line(words)?;
            set_clock(&mut host)?;
            take_cards(&settings)?;
            table::of(&settings.launcher).find_pools(settings.pools.len())?;
            let known = format!("is {}", settings.name);
            host.say(&known).explain(|| "could not answer the host".into())?;
            return Ok(settings);
        }
    }
}

impl Host {
    fn find() -> Result<Host> {
        let found = || {
            let found = port::find(Path::new(port::PORTS), |name| name == PORT);
            Ok(found.into_iter().find(|device| device.exists()))
        };
        let device = interrupt::wait_for(PORT_TIMEOUT, found)?
            .ok_or_else(|| error!("the machine has no port {PORT}, by which it would be told who it is"))?;
        let failed = || format!("could not open {}", device.display());
        let mut options = File::options();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let port = options.open(&device).explain(failed)?;
        let poller =
            Poller::new().and_then(|poller| poller.add(&port, 0).map(|()| poller)).explain(failed)?;
        Ok(Host { port, poller, lines: Lines::default() })
    }

    /// Sends a line. It is short, so the port takes it as a whole.
    fn say(&mut self, line: &str) -> io::Result<()> {
        let mut unsent = line.bytes().chain([b'\n']).collect();
        port::write(&mut self.port, &mut unsent)?;
        match unsent.is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// The next line; `None` if there is none by the deadline.
    fn line(&mut self, deadline: Option<Instant>) -> Result<Option<String>> {
        let failed = || "reading what the host says".to_string();
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            let mut bytes = [0; 4096];
            match self.port.read(&mut bytes) {
                // The host's side is closed.
                Ok(0) => self.lines.hang_up(),
                Ok(len) => {
                    self.lines.push(&bytes[..len]);
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => (),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e).explain(failed),
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            self.poller.wait(deadline).explain(failed)?;
        }
    }

    /// The host's time since 1970, and how long the answer took.
    fn time(&mut self) -> Result<(Duration, Duration)> {
        let asked = Instant::now();
        self.say("time").explain(|| "could not ask the host for the time".into())?;
        let answer = self.line(Some(asked + ANSWER_TIMEOUT))?;
        let nanoseconds = answer.and_then(|answer| answer.parse().ok());
        let time = nanoseconds.ok_or_else(|| Error::new("the host does not say what time it is"))?;
        Ok((Duration::from_nanos(time), asked.elapsed()))
    }
}

/// Gives the network cards, which have the template's addresses, this machine's.
fn take_cards(settings: &Settings) -> Result<()> {
    let mut cards = Vec::new();
    if let Some(network) = &settings.network {
        cards.push((settings::mac(0), settings::mac(network.index())));
    }
    if let Some(card) = &settings.uplink {
        cards.push((UPLINK_MAC.into(), card.mac.clone()));
    }
    for (old, new) in cards.into_iter().filter(|(old, new)| old != new) {
        let card = interface::with_mac(&old).ok_or_else(|| error!("the machine has no card {old}"))?;
        interface::set_mac(&card, &new).explain(|| format!("could not give {card} the address {new}"))?;
    }
    Ok(())
}

/// Sets the clock, which stands where the template's stood. The host has read its own in the middle of the
/// time that its answer took, give or take half of that.
fn set_clock(host: &mut Host) -> Result<()> {
    let mut best: Option<(Duration, Duration, Instant)> = None;
    for _ in 0..QUESTIONS {
        let (time, took) = host.time()?;
        if best.is_none_or(|(_, fastest, _)| took < fastest) {
            best = Some((time, took, Instant::now()));
        }
        if took < FAST {
            break;
        }
    }
    let (time, took, at) = best.expect("it was asked");
    let now = time + took / 2 + at.elapsed();
    let now = Timespec { tv_sec: now.as_secs() as i64, tv_nsec: now.subsec_nanos().into() };
    clock_settime(ClockId::Realtime, now).explain(|| "could not set the clock".into())
}

/// Has the kernel draw its random numbers from this seed, too, from now on: random(4).
fn reseed(seed: &[u8; SEED]) -> io::Result<()> {
    /// `struct rand_pool_info`.
    #[repr(C)]
    struct Entropy {
        bits: i32,
        bytes: i32,
        seed: [u8; SEED],
    }
    /// `_IOW('R', 0x03, int [2])`.
    const ADD_ENTROPY: libc::Ioctl = 0x4008_5203;
    /// `_IO('R', 0x07)`.
    const RESEED: libc::Ioctl = 0x5207;
    let random = File::options().write(true).open("/dev/urandom")?;
    let entropy = Entropy { bits: 8 * SEED as i32, bytes: SEED as i32, seed: *seed };
    // SAFETY: the kernel reads the structure, which is laid out as it expects and outlives the call.
    let added = unsafe { libc::ioctl(random.as_raw_fd(), ADD_ENTROPY, &entropy) };
    // SAFETY: it takes no argument.
    let reseeded = unsafe { libc::ioctl(random.as_raw_fd(), RESEED, 0) };
    match added.min(reseeded) {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The bytes of a seed in hexadecimal digits.
fn bytes(text: &str) -> Option<[u8; SEED]> {
    let mut out = [0; SEED];
    if text.len() != 2 * SEED || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read() {
        let text: String = (0..SEED).map(|byte| format!("{byte:02x}")).collect();
        let seed = bytes(&text).unwrap();
        assert_eq!((seed[0], seed[31]), (0, 31));
        for bad in ["", "00", &text[1..], &format!("{}zz", &text[2..]), &"ü".repeat(SEED)] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
