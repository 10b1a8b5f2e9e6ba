//! The program of a command: its kind, and whether the library can be preloaded into it.

use elf::abi::{EM_AARCH64, EM_X86_64, PT_INTERP, SHN_UNDEF};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::ElfStream;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use vshmem_mpi::files::{is_program, listed_files, locate, script_interpreter};

/// The C library's functions for System V IPC.
const CALLS: [&str; 12] = [
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmdt",
    "shmget",
];

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = EM_AARCH64;

/// Scripts that may interpret each other in turn, as in Linux.
const MAX_SCRIPTS: u32 = 4;
/// Bytes of a script's first line that count, as in Linux.
const MAX_LINE: u64 = 256;

/// A file of machine code.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Code {
    class_32: bool,
    machine: u16,
    /// Its loader; `None`: it is linked statically.
    interpreter: Option<PathBuf>,
    is_go: bool,
    /// The functions of [`CALLS`] that it imports.
    calls: Vec<&'static str>,
}

/// A program as the kernel would run it.
#[derive(Debug)]
pub struct Program {
    /// The script that was named, if it is one.
    pub script: Option<PathBuf>,
    /// The file of machine code.
    pub file: PathBuf,
    code: Code,
    raises_privileges: bool,
}

impl Program {
    /// The program of a command, searched in `PATH` and relative to `cwd`. `None`: it does not exist, or
    /// can't be read.
    pub fn find(command: &OsStr, cwd: Option<&Path>) -> Option<Program> {
        let named = locate(command, cwd.unwrap_or(Path::new("")))?;
        let mut file = named.clone();
        for _ in 0..MAX_SCRIPTS {
            match interpreter_of(&file) {
                Some(next) => file = next,
                None => break,
            }
        }
        Some(Program {
            script: (file != named).then_some(named),
            code: read_code(&file)?,
            raises_privileges: raises_privileges(&file),
            file,
        })
    }

    /// A description in a few words.
    pub fn kind(&self) -> String {
        let bits = if self.code.class_32 { 32 } else { 64 };
        let machine = match self.code.machine {
            EM_X86_64 => "x86-64",
            EM_AARCH64 => "aarch64",
            _ => "another processor",
        };
        let linked = match &self.code.interpreter {
            None => "linked statically".into(),
            Some(loader) => format!("loaded by {}", loader.display()),
        };
        let go = if self.code.is_go { ", written in Go" } else { "" };
        format!("{bits} bits, {machine}{go}, {linked}")
    }

    /// The obstacle that keeps its System V calls from the library, if there is one, and the remedy.
    pub fn hurdle(&self) -> Option<&'static str> {
        let code = &self.code;
        let is_musl = |loader: &PathBuf| loader.to_string_lossy().contains("ld-musl");
        match &code.interpreter {
            _ if code.class_32 || code.machine != MACHINE => Some(
                "it is made for another processor or for 32 bits, and the library is not: use a build for this system",
            ),
            _ if code.is_go && code.calls.is_empty() => Some(
                "it is written in Go, which makes system calls itself: have it call the functions of vshmem.h by cgo",
            ),
            None => Some(
                "it is linked statically, so nothing can be preloaded: link it dynamically, or with libvshmem and the functions of vshmem.h",
            ),
            Some(loader) if is_musl(loader) => Some(
                "it runs on musl, which can't load a library for glibc: use a build for glibc",
            ),
            _ if self.raises_privileges => Some(
                "it runs with more privileges than its caller (set-user-ID, set-group-ID or capabilities), so the loader preloads nothing: start it as its owner",
            ),
            _ => None,
        }
    }

    /// The program and the libraries that are loaded with it, each with the calls that it imports, without
    /// libraries that are opened later. `None`: unknown.
    pub fn calls(&self, preload: &OsStr) -> Option<Vec<(PathBuf, Vec<&'static str>)>> {
        let mut out = vec![(self.file.clone(), self.code.calls.clone())];
        let loader = self.code.interpreter.as_ref()?;
        let listed =
            Command::new(loader).arg("--list").arg(&self.file).env("LD_PRELOAD", preload).output().ok()?;
        if !listed.status.success() {
            return None;
        }
        for file in listed_files(&listed.stdout) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with("libvshmem.") && !name.starts_with("libc.so") {
                out.extend(read_code(&file).map(|code| (file, code.calls)));
            }
        }
        out.retain(|(_, calls)| !calls.is_empty());
        Some(out)
    }
}

/// The programs in `PATH` whose names begin with this, and need no quotes.
pub fn programs(beginning: &str) -> BTreeSet<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_meant = |name: &OsStr| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        name.to_str().is_some_and(|name| name.starts_with(beginning) && name.chars().all(fine))
    };
    std::env::split_paths(&path)
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
        .filter(|entry| is_meant(&entry.file_name()) && is_program(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The interpreter of a file, if it is a script.
fn interpreter_of(file: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(MAX_LINE).read_to_end(&mut start).ok()?;
    locate(&script_interpreter(&start)?, Path::new(""))
}

fn read_code(file: &Path) -> Option<Code> {
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(File::open(file).ok()?).ok()?;
    let interpreter = elf.segments().iter().find(|segment| segment.p_type == PT_INTERP).copied();
    let interpreter = match interpreter {
        Some(segment) => Some(path_of(elf.segment_data(&segment).ok()?)),
        None => None,
    };
    let is_go = matches!(elf.section_header_by_name(".go.buildinfo"), Ok(Some(_)));
    let mut calls = Vec::new();
    if let Ok(Some((symbols, names))) = elf.dynamic_symbol_table() {
        let wanted = symbols
            .iter()
            .filter(|symbol| symbol.st_shndx == SHN_UNDEF)
            .filter_map(|symbol| names.get(symbol.st_name as usize).ok())
            .filter_map(|name| CALLS.into_iter().find(|call| *call == name));
        calls.extend(wanted);
    }
    calls.sort_unstable();
    calls.dedup();
    Some(Code {
        class_32: elf.ehdr.class == Class::ELF32,
        machine: elf.ehdr.e_machine,
        interpreter,
        is_go,
        calls,
    })
}

fn path_of(bytes: &[u8]) -> PathBuf {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    OsStr::from_bytes(&bytes[..end]).into()
}

/// Whether a program gets more privileges than its caller, so that the loader preloads nothing.
fn raises_privileges(file: &Path) -> bool {
    let Ok(metadata) = fs::metadata(file) else {
        return false;
    };
    // SAFETY: these take nothing.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mode = metadata.permissions().mode();
    (mode & libc::S_ISUID != 0 && metadata.uid() != user)
        || (mode & libc::S_ISGID != 0 && metadata.gid() != group)
        || (user != 0 && has_capabilities(file))
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: two strings; no room for a value is given, so only its size comes back.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(code: Code) -> Program {
        Program { script: None, file: "/x".into(), code, raises_privileges: false }
    }

    fn usual() -> Code {
        Code { machine: MACHINE, interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()), ..Code::default() }
    }

    #[test]
    fn hurdles_are_seen() {
        assert_eq!(program(usual()).hurdle(), None);
        let linked =
            |interpreter: Option<&str>| Code { interpreter: interpreter.map(PathBuf::from), ..usual() };
        let cases = [
            (Code { class_32: true, ..usual() }, "32 bits"),
            (Code { machine: 243, ..usual() }, "another processor"),
            (Code { is_go: true, ..usual() }, "Go"),
            (Code { is_go: true, ..linked(None) }, "Go"),
            (linked(None), "statically"),
            (linked(Some("/lib/ld-musl-x86_64.so.1")), "musl"),
        ];
        for (code, word) in cases {
            let hurdle = program(code.clone()).hurdle();
            assert!(hurdle.is_some_and(|why| why.contains(word)), "{code:?}");
        }
        let cgo = Code { is_go: true, calls: vec!["msgget"], ..usual() };
        assert_eq!(program(cgo).hurdle(), None);
        let mut raised = program(usual());
        raised.raises_privileges = true;
        assert!(raised.hurdle().unwrap().contains("set-user-ID"));
    }

    #[test]
    fn a_program_of_the_system_is_read() {
        let me = std::env::current_exe().unwrap();
        let program = Program::find(me.as_os_str(), None).unwrap();
        assert_eq!((program.script.as_ref(), &program.file), (None, &me));
        assert!(program.code.interpreter.is_some() && !program.code.is_go);
        assert!(program.kind().starts_with("64 bits"), "{}", program.kind());
        assert_eq!(program.hurdle(), None);
        assert!(Program::find(OsStr::new("no-such-program"), None).is_none());
        assert!(Program::find(OsStr::new("/etc/passwd"), None).is_none());
    }

    #[test]
    fn a_script_is_what_runs_it() {
        let folder = std::env::temp_dir().join(format!("vshmem-script-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = |name: &str, text: &str| {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let one = script("one", "#!/bin/sh -e\n:\n");
        let two = script("two", "#!/usr/bin/env -S A=1 sh\n:\n");
        let three = script("three", &format!("#! {}", one.display()));
        for file in [&one, &two, &three] {
            let found = Program::find(file.as_os_str(), None).unwrap();
            assert_eq!(found.script.as_ref(), Some(file));
            assert_eq!(found.file.file_name(), Some(OsStr::new("sh")));
        }
        let found = Program::find(OsStr::new("./one"), Some(&folder)).unwrap();
        assert_eq!(found.file, Path::new("/bin/sh"));
        script("loop", &format!("#!{}", folder.join("loop").display()));
        assert!(Program::find(OsStr::new("./loop"), Some(&folder)).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }
}
