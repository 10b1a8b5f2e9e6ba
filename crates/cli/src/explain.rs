//! The command `vshmem explain`: whether the library takes a program's System V calls, and into which pool.
//! `vshmem run` checks this first.

use crate::args::CommandLine;
use crate::json::print_document;
use crate::output::print;
use crate::program::Program;
use crate::size;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use vshmem_base::{library, Error, Result};
use vshmem_inspect::pools::{lookup, Lookup};

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem explain -- ./a.out
  VSHMEM_POOL=work vshmem explain --json -- python3

Examines the program's file, the libraries that are loaded with it, the variables VSHMEM_* and the pool, and changes
nothing. The program's arguments don't matter. VSHMEM_LOG=info reports what happens while a program runs (libvshmem(7)).
The exit code is 1 if the calls don't reach the pool.")]
pub struct Explain {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub line: CommandLine,
}

/// The explanation, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Explained {
    /// The file of machine code.
    program: PathBuf,
    /// The script that it interprets.
    script: Option<PathBuf>,
    /// The kind of program, in words.
    kind: String,
    /// For each file, the System V calls that it imports from the C library; null: unknown.
    calls: Option<Vec<Calls>>,
    /// The library that is preloaded.
    library: PathBuf,
    /// The value of `VSHMEM_POOL`.
    pool: String,
    /// The pool's file; null: it can't be used.
    path: Option<String>,
    /// The pool's size in bytes; null: it is made at first use, or can't be used.
    size: Option<u64>,
    /// The value of `VSHMEM_KEYS`.
    keys: String,
    /// The value of `VSHMEM_DL`.
    dl: String,
    /// The program's calls reach the pool.
    taken: bool,
    /// The reasons why the program's calls don't reach the pool.
    reasons: Vec<String>,
}

/// The calls of a file.
#[derive(Serialize, JsonSchema)]
struct Calls {
    /// The program or a library.
    file: PathBuf,
    /// The calls.
    names: Vec<&'static str>,
}

/// Explains a command. The exit code is 1 if its calls don't reach the pool.
pub fn explain(explain: &Explain) -> Result<u8> {
    let command = &explain.line.command[0];
    let program = Program::find(command, None).ok_or_else(|| not_found(command))?;
    let library = library::find()?;
    let explained = look_at(&program, library);
    match explain.json {
        true => print_document(&explained)?,
        false => print(&explained.text())?,
    }
    Ok(u8::from(!explained.taken))
}

fn not_found(command: &OsStr) -> Error {
    let named = command.to_string_lossy();
    let file = Path::new(command);
    let why = match File::open(file) {
        _ if !named.contains('/') => {
            format!("there is no program {named} in PATH that this user may run")
        }
        Ok(_) => format!("{named} is no program: it is not executable, or neither machine code nor a script"),
        Err(error) => format!("could not read {named}: {error}"),
    };
    let hint = "Give a path, or a name that is found in PATH.";
    Error::new(why).hint(hint).code(1)
}

fn look_at(program: &Program, library: PathBuf) -> Explained {
    let variable = |name: &str, default: &str| {
        std::env::var_os(name).map_or(default.into(), |value| value.to_string_lossy().into_owned())
    };
    let (pool, keys) = (variable("VSHMEM_POOL", "default"), variable("VSHMEM_KEYS", "all"));
    let dl = variable("VSHMEM_DL", "taken");
    let mut reasons: Vec<String> = program.hurdle().map(String::from).into_iter().collect();
    let mistake = mistake(&library);
    if keys.trim() == "none" {
        reasons.push("VSHMEM_KEYS is none, so every key is the kernel's: unset it".into());
    }
    let found = match mistake {
        Some(why) => Err(why),
        None => lookup(&pool).map_err(|error| error.to_string()),
    };
    let (path, size) = match found {
        Ok(Lookup { path, size }) => (Some(path), size),
        Err(why) => {
            reasons.push(why);
            (None, None)
        }
    };
    let calls = program
        .calls(library.as_os_str())
        .map(|calls| calls.into_iter().map(|(file, names)| Calls { file, names }).collect());
    Explained {
        program: program.file.clone(),
        script: program.script.clone(),
        kind: program.kind(),
        calls,
        library,
        pool,
        path,
        size,
        keys,
        dl,
        taken: reasons.is_empty(),
        reasons,
    }
}

impl Explained {
    fn text(&self) -> String {
        let mut out = String::new();
        let mut row = |head: &str, text: &str| out += &format!("{head:<9}{text}\n");
        let program = self.program.display();
        match &self.script {
            Some(script) => row("program", &format!("{program}, which runs {}", script.display())),
            None => row("program", &program.to_string()),
        }
        row("kind", &self.kind);
        match self.calls.as_deref() {
            None => row("calls", "that can't be told"),
            Some([]) => row("calls", "none by itself; libraries that it opens while it runs may make some"),
            Some(calls) => {
                for (i, Calls { file, names }) in calls.iter().enumerate() {
                    let head = if i == 0 { "calls" } else { "" };
                    row(head, &format!("{}: {}", file.display(), names.join(" ")));
                }
            }
        }
        if self.script.is_some() {
            row("", "programs that the script starts are not examined: explain each of them");
        }
        row("library", &self.library.display().to_string());
        row("keys", &self.keys);
        if self.dl.trim() == "keep" {
            let bypass = "VSHMEM_DL is keep: calls of libraries that are opened with RTLD_DEEPBIND, or looked up in libc, go to the kernel";
            row("dlopen", bypass);
        }
        let pool = match (&self.path, self.size) {
            (None, _) => self.pool.clone(),
            (Some(path), Some(bytes)) => format!("{}: {path}, {}", self.pool, size::show(bytes)),
            (Some(path), None) => format!("{}: {path}, made when it is first used", self.pool),
        };
        row("pool", &pool);
        if self.taken {
            row("result", self.result());
        }
        for (i, reason) in self.reasons.iter().enumerate() {
            let head = if i == 0 { "result" } else { "" };
            row(head, &format!("Its System V calls don't go to the pool: {}.", reason.trim_end_matches('.')));
        }
        out
    }

    /// The result in words: the calls that go to the pool, if the library takes any.
    fn result(&self) -> &'static str {
        match self.keys.trim() {
            "all" => "Its System V calls go to the pool.",
            "private" => {
                "Its System V calls without a key (IPC_PRIVATE) go to the pool, the others to the kernel."
            }
            _ => "Its System V calls with these keys go to the pool, the others to the kernel.",
        }
    }
}

/// The error that the library logs when it is loaded, if its variables are wrong.
fn mistake(library: &Path) -> Option<String> {
    // A wrong VSHMEM_LOG is reported as it is. A right one may send errors elsewhere, so another is tried.
    let logs = std::env::var_os("VSHMEM_LOG").into_iter().chain(["error".into()]);
    logs.into_iter().find_map(|log| {
        // Nothing is written to the program's own log file.
        let log = match log.to_str().and_then(|log| log.split_once(':')) {
            Some((level, file)) if !file.is_empty() => level.into(),
            _ => log,
        };
        let mut probe = Command::new("/proc/self/exe");
        probe.arg("--version").env("LD_PRELOAD", library);
        let output = probe.env("VSHMEM_LOG", log).output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let message = |line: &str| line.split_once("]: error: ").map(|(_, what)| what.to_owned());
        let of_loader = |line: &str| line.contains("cannot be preloaded").then(|| line.to_owned());
        said.lines().find_map(|line| message(line).or_else(|| of_loader(line)))
    })
}

/// An error if the library's variables are wrong. `run` checks that before it starts anything.
pub fn check_variables(library: &Path) -> Result<()> {
    mistake(library).map_or(Ok(()), |why| Err(Error::new(why)))
}

/// Warns if a command's pool can't be used, or its messages can't be written, before `run` starts it here.
pub fn warn_of_surroundings(changes: &[(OsString, OsString)]) {
    let variable = |name: &str| {
        let mut changed = changes.iter().rev().filter(|(changed, _)| changed == name);
        let changed = changed.next().map(|(_, value)| value.clone());
        changed.or_else(|| std::env::var_os(name))
    };
    let pool = variable("VSHMEM_POOL").unwrap_or("default".into());
    if let Err(why) = lookup(&pool.to_string_lossy()) {
        tell!("vshmem: warning: {}.", why.to_string().trim_end_matches('.'));
    }
    let log = variable("VSHMEM_LOG").unwrap_or_default();
    if let Some((_, file)) = log.to_string_lossy().split_once(':') {
        if let Err(why) = File::options().create(true).append(true).open(file) {
            tell!("vshmem: warning: VSHMEM_LOG names {file}, which can't be written: {why}.");
        }
    }
}

/// Warns of a program that the library can't serve, before `run` starts it.
pub fn warn_of_program(command: &OsStr, cwd: Option<&Path>) {
    // In a machine, too, programs are this system's.
    let program = Program::find(command, cwd);
    if let Some((program, why)) = program.and_then(|p| p.hurdle().map(|why| (p, why))) {
        tell!("vshmem: warning: the System V calls of {} go to the kernel: {why}.", program.file.display());
    }
}
