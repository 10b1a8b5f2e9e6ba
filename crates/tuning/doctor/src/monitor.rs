//! QEMU's answers about a machine, by its monitor (QMP).
//!
//! QEMU's command line says only which of its sockets are monitors, and so where to ask.

use crate::machines::role;
use crate::setting::Thread;
use crate::system::{Ask, Socket, System, Unseen};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// A virtual processor, as QEMU tells of it.
#[derive(Debug)]
pub struct Vcpu {
    /// Its number.
    pub index: u64,
    /// The number of its thread.
    pub thread: u32,
    /// Its name among QEMU's objects.
    pub object: String,
    /// The core to which it belongs in the machine, which is the same word for those of one core.
    pub core: String,
}

impl System {
    /// The virtual processors of a machine.
    ///
    /// # Errors
    /// QEMU can't be asked, or says it otherwise.
    pub fn vcpus(&self, pid: u32) -> Result<Vec<Vcpu>, Unseen> {
        const COMMAND: &str = "query-cpus-fast";
        let answer = self.query(pid, COMMAND, COMMAND, json!({}))?;
        let vcpus = || answer.as_array()?.iter().map(vcpu).collect::<Option<Vec<Vcpu>>>();
        vcpus()
            .filter(|vcpus| is_consistent(self, pid, vcpus))
            .ok_or_else(|| Unseen::Monitor { pid, why: format!("its answer to {COMMAND} is odd: {answer}") })
    }

    /// A property of one of QEMU's objects; null if it has no such property.
    ///
    /// # Errors
    /// QEMU can't be asked.
    pub fn property(&self, pid: u32, object: &str, name: &str) -> Result<Value, Unseen> {
        let recorded = format!("{}/{name}", object.trim_start_matches('/'));
        self.query(pid, &recorded, "qom-get", json!({ "path": object, "property": name }))
    }

    /// Asks QEMU, or reads what was recorded below `qmp/PID`.
    fn query(&self, pid: u32, recorded: &str, command: &str, arguments: Value) -> Result<Value, Unseen> {
        let path = format!("qmp/{pid}/{recorded}");
        let unseen = |why| Unseen::Monitor { pid, why };
        let Some(ask) = self.ask else {
            let text = self.need(&path)?;
            return serde_json::from_str(&text)
                .map_err(|e| unseen(format!("what it said is not JSON ({e})")));
        };
        let known = self.answers.borrow().get(&path).cloned();
        let answer = match known {
            Some(answer) => answer,
            None => {
                let answer = asked(self, pid, ask, command, arguments);
                self.answers.borrow_mut().insert(path, answer.clone());
                answer
            }
        };
        answer.map_err(unseen)
    }
}

/// Asks at each of a machine's monitors, until one answers.
fn asked(system: &System, pid: u32, ask: Ask, command: &str, arguments: Value) -> Result<Value, String> {
    let sockets = sockets(system, pid).map_err(|unseen| unseen.to_string())?;
    let mut why = "it has no monitor at a socket (-qmp unix:PATH,server=on,wait=off)".to_owned();
    for socket in sockets {
        // It has one client, who stays connected.
        if socket.path.components().any(|part| part.as_os_str() == "libvirt") {
            why = "libvirt has its monitor to itself".into();
            continue;
        }
        match ask(&socket, command, arguments.clone()) {
            Ok(answer) => return Ok(answer),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// The sockets at which a machine's monitors listen.
fn sockets(system: &System, pid: u32) -> Result<Vec<Socket>, Unseen> {
    let line = system.text(&format!("proc/{pid}/cmdline"))?.unwrap_or_default();
    let words: Vec<&str> = line.split('\0').collect();
    let of = |option: &'static str| {
        words.windows(2).filter(move |pair| pair[0].trim_start_matches('-') == option).map(|pair| pair[1])
    };
    let own = |path: &str| (path.to_owned(), false);
    let mut found: Vec<(String, bool)> =
        of("qmp").filter_map(|it| Some(own(it.strip_prefix("unix:")?.split(',').next()?))).collect();
    let controls = of("mon").filter(|it| value(it, "mode") == Some("control"));
    for id in controls.filter_map(|it| value(it, "chardev").or_else(|| it.split(',').next())) {
        let Some(channel) = of("chardev").find(|it| it.starts_with("socket,") && value(it, "id") == Some(id))
        else {
            continue;
        };
        match (value(channel, "path"), value(channel, "fd")) {
            (Some(path), _) => found.push(own(path)),
            (None, Some(fd)) => found.extend(listens(system, pid, fd)?.map(|path| (path, true))),
            _ => (),
        }
    }
    let directory = system.target(&format!("proc/{pid}/cwd")).ok().flatten().unwrap_or_default();
    let socket = |(path, is_passed): (String, bool)| Socket {
        path: Path::new(&directory).join(path),
        process: pid,
        is_passed,
    };
    Ok(found.into_iter().map(socket).collect())
}

/// The value in an option of QEMU: `socket,id=monitor,fd=3`.
fn value<'a>(option: &'a str, name: &str) -> Option<&'a str> {
    option.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The path of a socket that was passed to QEMU as a descriptor.
fn listens(system: &System, pid: u32, fd: &str) -> Result<Option<String>, Unseen> {
    let target = system.target(&format!("proc/{pid}/fd/{fd}"))?.unwrap_or_default();
    let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(None);
    };
    let text = system.need(&format!("proc/{pid}/net/unix"))?;
    let path = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(6) == Some(&inode)).then(|| words.get(7..).map(|path| path.join(" "))).flatten()
    };
    Ok(text.lines().find_map(path).filter(|path| path.starts_with('/')))
}

/// True if processors are threads of this process, beside its first one, of which none has the name of
/// another processor. Emulated ones may share a thread.
fn is_consistent(system: &System, pid: u32, vcpus: &[Vcpu]) -> bool {
    let numbers: BTreeSet<u64> = vcpus.iter().map(|vcpu| vcpu.index).collect();
    let is_its_thread = |vcpu: &Vcpu| {
        let thread = Thread::find(system, pid, vcpu.thread).filter(|it| it.number != pid);
        thread.is_some_and(|thread| {
            let name = system.text(&thread.file("comm")).ok().flatten().unwrap_or_default();
            role(name.trim()).is_none_or(|role| role.is_none_or(|number| number == vcpu.index))
        })
    };
    numbers.len() == vcpus.len() && vcpus.iter().all(is_its_thread)
}

fn vcpu(told: &Value) -> Option<Vcpu> {
    let number = |name: &str| told.get(name)?.as_u64();
    let mut place = told.get("props")?.as_object()?.clone();
    // What is left names the core.
    place.remove("node-id");
    if place.remove("thread-id").is_none() {
        place.insert("cpu-index".into(), number("cpu-index")?.into());
    }
    Some(Vcpu {
        index: number("cpu-index")?,
        thread: number("thread-id")?.try_into().ok()?,
        object: told.get("qom-path")?.as_str()?.into(),
        core: Value::from(place).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree::Tree;
    use std::path::PathBuf;

    fn at(line: &[&str]) -> Vec<PathBuf> {
        let tree = Tree::new(
            "== proc/7/net/unix\nNum RefCount Protocol Flags Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/vm 0/qmp.sock\n\
            -> proc/7/fd/5 socket:[4711]\n-> proc/7/fd/6 socket:[4712]\n-> proc/7/cwd /srv\n",
        );
        tree.put("proc/7/cmdline", &line.join("\0"));
        let found = sockets(tree.system(), 7).unwrap();
        assert!(found.iter().all(|socket| socket.process == 7));
        found.into_iter().map(|socket| socket.path).collect()
    }

    #[test]
    fn monitors_are_found_by_path_and_by_descriptor() {
        let found = at(&[
            "qemu",
            "-qmp",
            "unix:/run/a.sock,server=on",
            "-qmp",
            "stdio",
            "--qmp",
            "unix:b.sock,server",
        ]);
        assert_eq!(found, [Path::new("/run/a.sock"), Path::new("/srv/b.sock")]);
        let passed = ["qemu", "-chardev", "socket,id=mon,fd=5,server=on", "-mon", "chardev=mon,mode=control"];
        assert_eq!(at(&passed), [Path::new("/run/vm 0/qmp.sock")]);
        let path = ["qemu", "-mon", "m,mode=control", "-chardev", "socket,id=m,path=/run/m,server=on"];
        assert_eq!(at(&path), [Path::new("/run/m")]);
        // A monitor for people, another kind of channel, a socket without a name.
        for (channel, monitor) in [
            ("socket,id=m,path=/run/m", "chardev=m,mode=readline"),
            ("pty,id=m,path=/run/m", "chardev=m,mode=control"),
            ("socket,id=m,fd=6", "chardev=m,mode=control"),
            ("socket,id=m,path=/run/m", "chardev=other,mode=control"),
        ] {
            assert!(at(&["qemu", "-chardev", channel, "-mon", monitor]).is_empty(), "{channel} {monitor}");
        }
    }

    #[test]
    fn qemu_is_asked_once_and_libvirts_is_left_alone() {
        let tree = Tree::new("");
        tree.put(
            "proc/7/cmdline",
            "qemu\0-qmp\0unix:/var/lib/libvirt/qemu/m.sock\0-qmp\0unix:/run/a.sock,server=on",
        );
        let counted: Ask = |socket, command, arguments| {
            let own = Socket { path: "/run/a.sock".into(), process: 7, is_passed: false };
            assert_eq!((socket, command), (&own, "qom-get"));
            // A refusal is kept, too.
            std::fs::create_dir("/nonexistent/once").map_err(|e| format!("{} {e}", arguments["property"]))?;
            Ok(arguments)
        };
        let mut system = System::below(tree.system().path(""));
        system.ask = Some(counted);
        let why = system.property(7, "/machine", "x").unwrap_err().to_string();
        assert!(why.starts_with("QEMU 7 could not be asked: \"x\" No such file"), "{why}");
        tree.put("proc/7/cmdline", "qemu\0-qmp\0unix:/var/lib/libvirt/qemu/m.sock");
        assert_eq!(system.property(7, "/machine", "x").unwrap_err().to_string(), why);
        let why = system.property(7, "/machine", "y").unwrap_err().to_string();
        assert!(why.ends_with("libvirt has its monitor to itself"), "{why}");
    }
}
