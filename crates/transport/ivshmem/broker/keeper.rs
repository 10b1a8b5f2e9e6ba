//! The keeper: it holds descriptors for the back end, and starts another back end when that one dies. It knows nothing of what they are.

use crate::ivshmem::link::{Link, BYE, END, ENTRY, FORGET, HAND_OVER, STORE};
use crate::ivshmem::program::{Part, Program};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A back end that dies sooner than this is started anew only after a pause.
const HEALTHY: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Serves the back end at the other end of `link`, and its successors, until one says good-bye.
pub fn keep(program: &Program, mut link: Link) -> io::Result<()> {
    let mut kept = BTreeMap::new();
    let mut pause = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let asked = match serve(&link, &mut kept) {
            After::GoodBye => return Ok(()),
            After::Death(asked) => asked,
        };
        pause = if begun.elapsed() > HEALTHY {
            Duration::ZERO
        } else {
            (pause * 2).clamp(Duration::from_millis(5), LONGEST_PAUSE)
        };
        if asked {
            eprintln!("vshmem agent: the back end has died; another one is started");
        }
        sleep(pause);
        let (ours, theirs) = Link::pair()?;
        // If it can't be started now, this end of the link tells in the next round.
        if let Err(error) = program.start(Part::BackEnd, &theirs) {
            eprintln!("vshmem agent: the back end could not be started: {error}");
        }
        drop(theirs);
        link = ours;
    }
}

enum After {
    GoodBye,
    /// Whether there was a back end at all.
    Death(bool),
}

fn serve(link: &Link, kept: &mut BTreeMap<String, Vec<OwnedFd>>) -> After {
    let mut asked = false;
    while let Ok(Some((letter, label, fds))) = link.receive() {
        match letter {
            STORE => drop(kept.insert(label, fds)),
            FORGET => kept.retain(|name, _| !name.starts_with(&label)),
            HAND_OVER => {
                asked = true;
                if hand_over(link, kept).is_err() {
                    return After::Death(true);
                }
            }
            BYE => return After::GoodBye,
            _ => (),
        }
    }
    After::Death(asked)
}

fn hand_over(link: &Link, kept: &BTreeMap<String, Vec<OwnedFd>>) -> io::Result<()> {
    for (label, fds) in kept {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        link.send(ENTRY, label, &fds)?;
    }
    link.send(END, &std::process::id().to_string(), &[])
}
