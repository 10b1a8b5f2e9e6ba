//! Scripts: what the workers are to do, one step a line.
//!
//! ```text
//! # comment
//! workers 3
//! 0: sem0 = semget IPC_PRIVATE 2 0600     => ok id=sem:0
//! 1: semop sem0 inf 0:-1:SEM_UNDO         => blocked
//! 0: semctl sem0 0 SETVAL 1               => ok value=0 ; 1: ok
//! kill 1
//! ```
//! A line is a step and, optionally, what is expected of it. `sem0`, `msg1`, `shm2` name ids: they stand for
//! -1 until a get call was stored in them. Other steps: `kill W`, `exit W`, `spawn W`, `fork W CHILD`, `exec
//! W`, `signal W`, `ignored-signal W`, `tick` (until another second has begun).

use std::fmt;

/// Worker slots that scripts can use.
pub const SLOTS: usize = 4;
/// One more worker, never blocked, that looks at everything. It is root and always alive.
pub const OBSERVER: usize = SLOTS;

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A worker performs a command; the id that it returns gets a name.
    Call { worker: usize, store: Option<String>, words: Vec<String> },
    /// SIGKILL.
    Kill(usize),
    /// The worker calls exit.
    Exit(usize),
    /// A new process in an empty slot.
    Spawn(usize),
    /// A worker forks; the child takes an empty slot.
    Fork { parent: usize, child: usize },
    /// A worker starts its program anew.
    Exec(usize),
    /// A signal that is handled goes to a blocked worker.
    Signal(usize),
    /// A signal that is ignored goes to a blocked worker.
    IgnoredSignal(usize),
    /// Waits until the clock shows another second, so that times can be told apart.
    Tick,
}

/// A step and what its line says should come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub step: Step,
    pub expected: Option<String>,
}

/// A whole script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How many of the slots are filled at the start.
    pub workers: usize,
    /// Whether the observer looks at everything after each step (it does at the end in any case).
    pub observe: bool,
    pub lines: Vec<Line>,
}

impl Script {
    /// A script without expectations.
    pub fn new(workers: usize, observe: bool, steps: Vec<Step>) -> Script {
        let lines = steps.into_iter().map(|step| Line { step, expected: None }).collect();
        Script { workers, observe, lines }
    }

    /// Reads a script.
    ///
    /// # Errors
    /// The first line that is none, with its number.
    pub fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script { workers: 2, observe: true, lines: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(count) = line.strip_prefix("workers ") {
                script.workers =
                    count.trim().parse().map_err(|_| format!("line {}: how many workers?", number + 1))?;
            } else if line == "unobserved" {
                script.observe = false;
            } else if !line.is_empty() {
                script.lines.push(Line::parse(line).map_err(|why| format!("line {}: {why}", number + 1))?);
            }
        }
        Ok(script)
    }
}

impl Line {
    fn parse(line: &str) -> Result<Line, String> {
        let (step, expected) = match line.split_once("=>") {
            Some((step, expected)) => (step, Some(expected.trim().to_owned())),
            None => (line, None),
        };
        Ok(Line { step: Step::parse(step.trim())?, expected })
    }
}

impl Step {
    /// Reads one step.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn parse(text: &str) -> Result<Step, String> {
        if let Some((worker, command)) = text.split_once(':').filter(|(worker, _)| !worker.contains(' ')) {
            return Step::parse_call(worker, command);
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let slot = |position: usize| {
            let number = words.get(position).and_then(|word| word.parse::<usize>().ok());
            number.filter(|&number| number < SLOTS).ok_or_else(|| format!("{text:?} names no worker"))
        };
        match words[0] {
            "tick" => Ok(Step::Tick),
            "kill" => slot(1).map(Step::Kill),
            "exit" => slot(1).map(Step::Exit),
            "spawn" => slot(1).map(Step::Spawn),
            "exec" => slot(1).map(Step::Exec),
            "signal" => slot(1).map(Step::Signal),
            "ignored-signal" => slot(1).map(Step::IgnoredSignal),
            "fork" => Ok(Step::Fork { parent: slot(1)?, child: slot(2)? }),
            other => Err(format!("{other:?} is no step")),
        }
    }

    fn parse_call(worker: &str, command: &str) -> Result<Step, String> {
        let worker = match worker {
            "o" => OBSERVER,
            digits => digits
                .parse()
                .ok()
                .filter(|&w| w < SLOTS)
                .ok_or_else(|| format!("{digits:?} is no worker"))?,
        };
        let (store, command) = match command.split_once(" = ") {
            Some((name, command)) => (Some(name.trim().to_owned()), command),
            None => (None, command),
        };
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err("a worker is named, but no command".to_owned());
        }
        Ok(Step::Call { worker, store, words })
    }

    /// A call whose text is known to be good; for generated steps.
    pub fn call(worker: usize, command: &str) -> Step {
        let name = if worker == OBSERVER { "o".to_owned() } else { worker.to_string() };
        Step::parse_call(&name, command).expect("a generated command is well formed")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Step::Call { worker, store, words } => {
                let worker = if *worker == OBSERVER { "o".to_owned() } else { worker.to_string() };
                let store = store.as_ref().map(|name| format!("{name} = ")).unwrap_or_default();
                write!(f, "{worker}: {store}{}", words.join(" "))
            }
            Step::Kill(worker) => write!(f, "kill {worker}"),
            Step::Exit(worker) => write!(f, "exit {worker}"),
            Step::Spawn(worker) => write!(f, "spawn {worker}"),
            Step::Fork { parent, child } => write!(f, "fork {parent} {child}"),
            Step::Exec(worker) => write!(f, "exec {worker}"),
            Step::Signal(worker) => write!(f, "signal {worker}"),
            Step::IgnoredSignal(worker) => write!(f, "ignored-signal {worker}"),
            Step::Tick => write!(f, "tick"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "workers {}", self.workers)?;
        if !self.observe {
            writeln!(f, "unobserved")?;
        }
        for line in &self.lines {
            match &line.expected {
                Some(expected) => writeln!(f, "{:<60} => {expected}", line.step.to_string())?,
                None => writeln!(f, "{}", line.step)?,
            }
        }
        Ok(())
    }
}
