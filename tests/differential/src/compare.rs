//! Performs a script on two sides and says where they first differ.

use crate::script::{Line, Script, Step, OBSERVER};
use crate::setup::{Backend, Setup};
use crate::side::{Outcome, Side};
use crate::translate::now;
use std::time::{Duration, Instant};

/// How long the second side may take to reach what the first has reached at once. What another worker's call
/// sets free must be free when the call returns; only deaths may be noticed later.
const GRACE: Duration = Duration::from_millis(60);
const GRACE_AFTER_DEATH: Duration = Duration::from_millis(2500);
/// More messages than any script leaves behind.
const DRAIN_LIMIT: usize = 2000;

/// The first difference between two sides, or between a side and what a line expects.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The position of the step in the script, or its length for what comes after the last.
    pub position: usize,
    /// The step, which may be an observation that is not in the script.
    pub step: String,
    pub reference: String,
    pub subject: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "after step {}, at `{}`:\n    kernel: {}\n    vshmem: {}",
            self.position + 1,
            self.step,
            self.reference,
            self.subject
        )
    }
}

/// What a whole run came to.
#[derive(Clone, Debug)]
pub struct Run {
    pub difference: Option<Difference>,
    /// What each performed line came to on the first side; `None` for skipped ones.
    pub outcomes: Vec<Option<String>>,
}

struct Pair {
    reference: Side,
    subject: Side,
    someone_died: bool,
    /// Since the last look at everything.
    unseen_death: bool,
}

/// Performs the script on both sides.
///
/// # Errors
/// A side that could not be started.
pub fn run(setup: &Setup, script: &Script, reference: Backend, subject: Backend) -> Result<Run, String> {
    let mut pair = Pair {
        reference: Side::start(setup, reference, script.workers)?,
        subject: Side::start(setup, subject, script.workers)?,
        someone_died: false,
        unseen_death: false,
    };
    let mut outcomes = Vec::new();
    let difference = pair.perform_all(script, &mut outcomes).or_else(|| pair.finish(script.lines.len()));
    let leaked = if subject == Backend::Vshmem { pair.subject.kernel_objects() } else { Vec::new() };
    let difference = difference.or_else(|| {
        (!leaked.is_empty()).then(|| Difference {
            position: script.lines.len(),
            step: "the kernel's own list of IPC objects".to_owned(),
            reference: "empty".to_owned(),
            subject: leaked.join("\n"),
        })
    });
    Ok(Run { difference, outcomes })
}

impl Pair {
    fn perform_all(&mut self, script: &Script, outcomes: &mut Vec<Option<String>>) -> Option<Difference> {
        for (position, line) in script.lines.iter().enumerate() {
            if !self.reference.can(&line.step) {
                outcomes.push(None);
                continue;
            }
            // Vshmem undoes what the dead have done when somebody looks, and then not in the order of deaths:
            // that shows where a value is cut at its limits. Attachments of the dead are subtracted then,
            // too, and the segment's lpid tells of that. These are the other deviations that are accepted.
            let is_death = matches!(line.step, Step::Kill(_) | Step::Exit(_) | Step::Exec(_));
            let is_attachment = matches!(&line.step, Step::Call { words, .. } if words[0].starts_with("shm"));
            if (is_death || is_attachment) && self.unseen_death {
                if let Some(difference) = self.observe(position) {
                    return Some(difference);
                }
            }
            self.unseen_death |= is_death;
            match self.perform(position, line) {
                Ok(outcome) => outcomes.push(Some(outcome.to_string())),
                Err(difference) => return Some(difference),
            }
            if script.observe {
                if let Some(difference) = self.observe(position) {
                    return Some(difference);
                }
            }
        }
        None
    }

    fn perform(&mut self, position: usize, line: &Line) -> Result<Outcome, Difference> {
        let step = &line.step;
        let differ = |reference: String, subject: String| Difference {
            position,
            step: step.to_string(),
            reference,
            subject,
        };
        if *step == Step::Tick {
            self.tick();
        }
        self.someone_died |= matches!(step, Step::Kill(_) | Step::Exit(_) | Step::Exec(_));
        let reference = self.reference.perform(step).map_err(|why| differ(why, "not asked".to_owned()))?;
        let wanted = reference.to_string();
        if line.expected.as_ref().is_some_and(|expected| *expected != wanted) {
            let expected = line.expected.clone().unwrap_or_default();
            return Err(differ(wanted, format!("not asked, as the script expects {expected}")));
        }
        let result = self.subject.perform(step).and_then(|outcome| self.catch_up(step, outcome, &reference));
        match result {
            Ok(subject) if subject == reference => Ok(reference),
            Ok(subject) if self.someone_died && differs_in_first_otime(&subject, &reference) => Ok(reference),
            Ok(subject) => Err(differ(describe(&reference), describe(&subject))),
            Err(why) => Err(differ(describe(&reference), why)),
        }
    }

    /// Gives the subject some time if it lags behind the reference.
    fn catch_up(
        &mut self,
        step: &Step,
        mut outcome: Outcome,
        reference: &Outcome,
    ) -> Result<Outcome, String> {
        let grace = if self.someone_died { GRACE_AFTER_DEATH } else { GRACE };
        let began = Instant::now();
        let lags =
            |outcome: &Outcome| outcome.blocked.iter().any(|worker| !reference.blocked.contains(worker));
        // A signal that reaches a library's sleeper in the moments when it is awake is lost on it; that is
        // accepted, too, as long as the next one is not.
        let mut signals_left = if matches!(step, Step::Signal(_)) { 3 } else { 0 };
        while lags(&outcome) && (began.elapsed() < grace || signals_left > 0) {
            std::thread::sleep(Duration::from_millis(2));
            if began.elapsed() >= grace && self.subject.can(step) {
                signals_left -= 1;
                outcome.others.extend(self.subject.perform(step)?.others);
            }
            self.subject.settle(&mut outcome)?;
        }
        if let Step::Call { worker, .. } = step {
            if let Some(answer) = outcome.others.remove(worker) {
                outcome.main = answer;
            }
        }
        Ok(outcome)
    }

    /// Sleeps until the clock shows a second that no time stamp can have yet.
    fn tick(&mut self) {
        let next = now() + 2;
        while now() < next {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.reference.translator.tick(next);
        self.subject.translator.tick(next);
    }

    fn check(&mut self, position: usize, command: &str) -> Result<Outcome, Difference> {
        self.perform(position, &Line { step: Step::call(OBSERVER, command), expected: None })
    }

    /// Looks at everything that the script has a name for.
    fn observe(&mut self, position: usize) -> Option<Difference> {
        self.unseen_death = false;
        self.reference.variables().into_iter().find_map(|name| {
            let command = match &name[..3] {
                "sem" => format!("semdump {name}"),
                "msg" => format!("msgctl {name} IPC_STAT"),
                _ => format!("shmctl {name} IPC_STAT"),
            };
            self.check(position, &command).err()
        })
    }

    /// Looks at what is left, empties the queues, removes everything, and sees that nothing is left.
    fn finish(&mut self, position: usize) -> Option<Difference> {
        self.observe(position).or_else(|| self.take_down(position).err())
    }

    fn take_down(&mut self, position: usize) -> Result<(), Difference> {
        for command in ["shmscan SHM_STAT_ANY", "semscan SEM_STAT_ANY", "msgscan MSG_STAT_ANY"] {
            self.check(position, command)?;
        }
        for command in ["shmctl 0 SHM_INFO", "semctl 0 0 SEM_INFO", "msgctl 0 MSG_INFO"] {
            self.check(position, command)?;
        }
        let names = self.reference.variables();
        for name in names.iter().filter(|name| name.starts_with("msg")) {
            for _ in 0..DRAIN_LIMIT {
                if !self.check(position, &format!("msgrcv {name} 8192 0 IPC_NOWAIT"))?.main.starts_with("ok")
                {
                    break;
                }
            }
        }
        for name in &names {
            let number = if name.starts_with("sem") { "0 " } else { "" };
            self.check(position, &format!("{}ctl {name} {number}IPC_RMID", &name[..3]))?;
        }
        for command in ["semctl 0 0 SEM_INFO", "msgctl 0 MSG_INFO", "shmctl 0 SHM_INFO"] {
            self.check(position, command)?;
        }
        Ok(())
    }
}

/// One of the deviations that are accepted. When a process ends that has ever asked for SEM_UNDO on a set, be
/// it in vain, the kernel sets the set's otime; Vshmem does so only if something was undone.
fn differs_in_first_otime(subject: &Outcome, reference: &Outcome) -> bool {
    let blurred = |outcome: &Outcome| Outcome {
        main: outcome.main.replace("otime=never", "otime=time0"),
        ..outcome.clone()
    };
    blurred(subject) == blurred(reference)
}

fn describe(outcome: &Outcome) -> String {
    match outcome.blocked.as_slice() {
        [] => outcome.to_string(),
        blocked => format!("{outcome} (blocked now: {blocked:?})"),
    }
}
