//! A launcher that starts commands in other hosts: a shell script, and hosts that are all on this kernel,
//! each reached by sh(1).

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use vshmem_base::{error, user::Identity, Result};
use vshmem_session::commands::job::Job;
use vshmem_session::commands::launch::{launch, JobHost, Launch};
use vshmem_session::commands::location::{Location, Reached};

const VSHMEM: &str = env!("CARGO_BIN_EXE_vshmem");

/// A host that is reached; commands there have the variable `HOST`.
fn host(name: &str, program: &Path) -> JobHost {
    // As with a container's runtime, standard input and output are two pipes.
    let pipes = format!("cat | HOST={name} \"$@\" | cat");
    let prefix = vec!["sh".into(), "-c".into(), pipes.into(), "sh".into()];
    let reached = Reached { name: name.into(), prefix, program: program.into() };
    let location = Location::Reached(reached);
    let job = Job::new(location, name.into(), &[], Some(Path::new("/")), Identity::current());
    JobHost { name: name.into(), job }
}

/// A place for what commands write.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("vshmem-launch-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap_or_default()
    }

    /// Launches a script, whose remote shell is `$1`, in two hosts. Commands other than sh are refused.
    fn launch(&self, script: &str) -> Result<u8> {
        let script = format!("cd {}; {script}", self.0.display());
        launch_with(Path::new(VSHMEM), &["sh", "-c", &script, "sh"])
    }
}

/// Launches a command, whose last argument is its remote shell, in two hosts, of which the first has this
/// program for vshmem.
fn launch_with(program: &Path, command: &[&str]) -> Result<u8> {
    let words = |shell: &Path| command.iter().map(OsString::from).chain([shell.into()]).collect();
    let admit = |words: &[OsString]| match words {
        [first, ..] if first == "sh" => Ok(words.to_vec()),
        _ => Err(error!("only sh may be run")),
    };
    launch(&Launch {
        hosts: vec![host("one", program), host("two", Path::new(VSHMEM))],
        command: &words,
        admit: &admit,
        program: Path::new("/no/such"),
        scratch: true,
        stdin: false,
        progress: false,
    })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether no process has this text in its command line within some seconds.
fn ends(text: &str) -> bool {
    becomes(|| {
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        !lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(text))
    })
}

/// Whether something is so within some seconds.
fn becomes(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn the_launchers_exit_code_is_the_result() {
    let scratch = Scratch::new("code");
    assert_eq!(scratch.launch("echo $HOST >host; exit 7").unwrap(), 7);
    assert_eq!(scratch.read("host"), "one\n");
}

#[test]
fn commands_run_in_the_host_that_is_asked_and_end_with_their_codes() {
    let scratch = Scratch::new("codes");
    let at = scratch.0.display();
    let script = format!(
        r#""$1" -x two sh -c '"echo $HOST >{at}/two; exit 3"'; a=$?
        "$1" -n one sh -c '"echo $HOST >{at}/one; kill -9 $$"'; exit $((a * 10 + $? - 137))"#
    );
    assert_eq!(scratch.launch(&script).unwrap(), 30);
    assert_eq!((scratch.read("one"), scratch.read("two")), ("one\n".into(), "two\n".into()));
}

#[test]
fn what_is_not_admitted_is_refused() {
    let scratch = Scratch::new("refused");
    let script = r#""$1" two touch x 2>why; a=$?; "$1" three sh 2>>why; b=$?; "$1" two "sh '" 2>>why
        [ $a.$b.$? = 255.255.255 ] && exit 9"#;
    assert_eq!(scratch.launch(script).unwrap(), 9);
    assert_eq!(scratch.read("why"), "", "the host says it");
}

#[test]
fn many_commands_run_at_once() {
    let scratch = Scratch::new("many");
    let script = r#"for i in $(seq 100); do "$1" two sh -c "'exit 5'" & all="$all $!"; done
        for i in $all; do wait $i; [ $? = 5 ] || exit 1; done; exit 6"#;
    assert_eq!(scratch.launch(script).unwrap(), 6);
}

#[test]
fn a_command_ends_with_its_remote_shell() {
    let scratch = Scratch::new("hangup");
    let script = r#""$1" two sh -c "'exec sleep 86201'" & while ! pgrep -f "^sleep 86201" >/dev/null; do sleep 0.1; done
        kill -9 $!; while pgrep -f "^sleep 86201" >/dev/null; do sleep 0.1; done; exit 4"#;
    assert_eq!(scratch.launch(script).unwrap(), 4);
}

/// Daemons that commands leave behind, in sessions of their own, and those that a launcher leaves.
#[test]
fn nothing_outlives_the_launcher() {
    let scratch = Scratch::new("left");
    let script = r#""$1" two sh -c "'setsid sleep 86202 & exit 0'"; "$1" two sh -c "'exec sleep 86202'" &
        setsid sleep 86202 & while [ $(pgrep -c -f "^sleep 86202") -lt 3 ]; do sleep 0.1; done; exit 2"#;
    assert_eq!(scratch.launch(script).unwrap(), 2);
    assert!(ends("sleep\u{0}86202"), "all are gone");
}

/// Either of the two processes of a host's agent is killed: in a container, the host as a whole may be.
#[test]
fn a_host_that_is_lost_ends_the_job() {
    let scratch = Scratch::new("lost");
    for killed in [r"\$PPID", r"\$(ps -o ppid= \$PPID)"] {
        let script = format!(
            r#""$1" two sh -c "'setsid sleep 86203 & date +%s >at; kill -9 {killed}; exec sleep 86203'" &
            sleep 86203"#
        );
        assert_eq!(
            scratch.launch(&script.replace(">at", &format!(">{}/at", scratch.0.display()))).unwrap(),
            125
        );
        let at: u64 = scratch.read("at").trim().parse().expect("a time");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
        assert!(now - at <= 5, "it is over within five seconds");
        assert!(ends("sleep\u{0}86203"), "all are gone");
    }
}

#[test]
fn a_host_that_can_not_be_reached_is_named() {
    let mut nowhere = host("nowhere", Path::new(VSHMEM));
    let prefix = vec!["sh".into(), "-c".into(), "echo no such container >&2".into()];
    nowhere.job.location =
        Location::Reached(Reached { name: "nowhere".into(), prefix, program: VSHMEM.into() });
    let why = launch(&Launch {
        hosts: vec![nowhere],
        command: &|_| vec![],
        admit: &|_| Err(error!("no")),
        program: Path::new("/no/such"),
        scratch: true,
        stdin: false,
        progress: false,
    });
    let why = why.expect_err("it is not there").to_string();
    assert!(why.contains("nowhere") && why.contains("no such container"), "{why}");
}

/// Callers without the token are refused, and other users even if they have it.
#[test]
fn only_the_scripts_remote_shell_is_served() {
    let scratch = Scratch::new("token");
    // SAFETY: the call takes nothing.
    let other = if unsafe { libc::getuid() } == 0 { "setpriv --reuid=65534 --clear-groups" } else { "false" };
    let script = format!(
        r#"relay=$(sed -n 's/^export VSHMEM_RELAY=//p' "$1")
        VSHMEM_RELAY=$relay {VSHMEM} rsh two sh -c "'exit 3'"; a=$?
        VSHMEM_RELAY=${{relay%?}} {VSHMEM} rsh two sh -c "'exit 3'" 2>>why; b=$?
        VSHMEM_RELAY=$relay {other} {VSHMEM} rsh two sh -c "'exit 3'" 2>>why; c=$?
        env -u VSHMEM_RELAY {VSHMEM} rsh two sh -c "'exit 3'" 2>>why; d=$?
        echo $a $b $c $d >codes; [ $a = 3 ] && [ $b = 255 ] && [ $c != 3 ] && [ $d = 255 ] && exit 5"#
    );
    assert_eq!(scratch.launch(&script).unwrap(), 5, "{} {}", scratch.read("codes"), scratch.read("why"));
    assert!(scratch.read("why").contains("is started by an MPI's launcher"), "{}", scratch.read("why"));
}

/// Remote shells that are killed at any time, some before they have asked.
#[test]
fn no_command_outlives_its_remote_shell() {
    let scratch = Scratch::new("storm");
    let script = r#"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            "$1" two sh -c "'exec sleep 86204'" & one=$!
            "$1" one sh -c "'exec sleep 86204'" & other=$!
            sleep 0.0$i; kill -9 $one; sleep 0.0$i; kill -9 $other
        done 2>/dev/null
        while pgrep -f "^sleep 86204" >/dev/null; do sleep 0.1; done; exit 4"#;
    // A launcher that takes longer than three seconds for that is ended, since it goes on without them.
    let code = scratch.launch(script).unwrap();
    assert!(code == 4 || code == 125, "{code}");
    assert!(ends("sleep\u{0}86204"), "all are gone");
}

/// A shell command that says a million times what a hostile relay may ask for.
fn a_million(host: &str, command: &str) -> String {
    format!(r#"seq -f '{{"start":{{"id":%.0f,"host":"{host}","command":"{command}"}}}}' 1000000"#)
}

/// The messages of a hostile relay end its job, or come to nothing. The agents are honest.
#[test]
fn a_hostile_relay_ends_only_its_job() {
    let ready = r#"echo '{"ready":{"shell":"/x"}}'"#;
    for (name, says, code) in [
        ("noise", "cat /dev/urandom".into(), 125),
        ("an endless line", "cat /dev/zero".into(), 125),
        ("it is ready twice", format!("{ready}; {ready}"), 125),
        ("a path for a shell", "echo '{\"ready\":{\"shell\":\"/a;b\"}}'".into(), 125),
        ("it ends", format!("{ready}; exit 0"), 125),
        ("it is not ready", a_million("two", "sh"), 125),
        (
            "unknown hosts",
            format!("{ready}; {} | while read -r x; do echo \"$x\"; done", a_million("nine", "sh")),
            125,
        ),
        ("refused commands", format!("{ready}; {}", a_million("two", "rm")), 125),
        ("admitted commands", format!("{ready}; {}", a_million("two", "sh -c :")), 125),
        ("nothing to hang up", format!("{ready}; yes '{{\"hungup\":{{\"id\":1}}}}' | head -n 100000"), 4),
    ] {
        let scratch = Scratch::new("hostile");
        let relay = scratch.0.join("relay");
        let script =
            format!("#!/bin/sh\n[ \"$2\" = --relay ] || exec {VSHMEM} \"$@\"\n{says}\nexec sleep 60\n");
        fs::write(&relay, script).expect("a file");
        fs::set_permissions(&relay, fs::Permissions::from_mode(0o755)).expect("a mode");
        let begun = Instant::now();
        let got = launch_with(&relay, &["sh", "-c", "sleep 2; exit 4"]);
        assert_eq!(got.map_err(|e| e.to_string()), Ok(code), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{name}: {:?}", begun.elapsed());
    }
}

/// It would wait for what they were to say.
#[test]
fn a_launcher_that_goes_on_without_a_remote_shell_or_a_command_is_ended() {
    let scratch = Scratch::new("broken");
    for killed in ["$!", r#"$(pgrep -f "^sleep 86205")"#] {
        let script = format!(
            r#""$1" two sh -c "'exec sleep 86205'" & while ! pgrep -f "^sleep 86205" >/dev/null; do sleep 0.1; done
            kill -9 {killed}; exec sleep 86207"#
        );
        assert_eq!(scratch.launch(&script).unwrap(), 125);
        assert!(ends("sleep\u{0}86205") && ends("sleep\u{0}86207"), "all are gone");
    }
}

/// However they end: by themselves, with the job, or with either process of their agent.
#[test]
fn no_temporary_file_stays() {
    let scratch = Scratch::new("files");
    let at = scratch.0.display();
    let file =
        |host: &str| format!("mkdir $TMPDIR/dir && touch $TMPDIR/dir/file && echo $TMPDIR >{at}/{host}");
    let here = file("one");
    for end in ["exit", "sleep 86206", r"kill -9 \$PPID", r"kill -9 \$(ps -o ppid= \$PPID)"] {
        let there = file("two").replace('$', r"\$");
        let script = format!(
            r#"{here}; "$1" two sh -c "'{there}; {end}'" & while ! [ -s {at}/two ]; do sleep 0.1; done; sleep 0.5; exit 3"#
        );
        scratch.launch(&script).expect("it starts");
        for host in ["one", "two"] {
            let path = PathBuf::from(scratch.read(host).trim());
            assert!(path.is_absolute(), "{host}: {end}: {}", path.display());
            assert!(becomes(|| !path.exists()), "{host}: {end}: {}", path.display());
            fs::remove_file(scratch.0.join(host)).expect("it was written");
        }
    }
}
