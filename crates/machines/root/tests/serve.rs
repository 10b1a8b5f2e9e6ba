//! What the server gives machines: the files as they were walked, or errors; and what liars get.

#[path = "common/client.rs"]
mod client;
mod common;

use client::Client;
use common::{contents, number, Lines, Scratch};
use std::fs::{self, File};
use std::os::unix::fs::{symlink, FileExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use vshmem_root::serve::{Contents, Limits, MAX_REQUEST};
use vshmem_root::Server;

struct Served {
    it: Scratch,
    socket: PathBuf,
    contents: Arc<Contents>,
    lines: Lines,
}

fn serve_with(name: &str, most_open: usize, limits: Limits, files: &[(&str, &[u8])]) -> Served {
    let it = Scratch::new(name);
    for (name, bytes) in files {
        it.write(name, bytes);
    }
    let (contents, lines) = contents(it.walk().tree, most_open);
    let socket = it.0.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = Server::new(contents.clone(), limits);
    thread::spawn(move || server.run(&listener, None));
    Served { it, socket, contents, lines }
}

fn serve(name: &str, files: &[(&str, &[u8])]) -> Served {
    serve_with(name, 16, Limits::default(), files)
}

impl Served {
    fn client(&self) -> Client {
        let mut client = Client::connect(&self.socket);
        client.greet().unwrap();
        client
    }

    fn ready(&self) -> Client {
        let mut client = self.client();
        assert_eq!(client.go("").unwrap(), Ok(self.contents.image().length()));
        client
    }

    /// Where a file lies in the image.
    fn at(&self, path: &str) -> u64 {
        let node = number(self.contents.tree(), path).unwrap();
        let image = self.contents.image();
        let blocks = image.metadata_length() / 4096..image.length() / 4096;
        let mut extents = blocks.filter_map(|block| image.extent_of(block as u32));
        u64::from(extents.find(|extent| extent.node == node).unwrap().block) * 4096
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

#[test]
fn files_are_read_with_zeroes_behind_their_end() {
    let large = vec![7; 3 << 20];
    let served = serve("read", &[("a", b"hello"), ("b", &large), ("c", &[1; 4096])]);
    let mut client = served.ready();
    let block = client.read(served.at("a"), 4096).unwrap();
    assert_eq!((&block[..5], block[5..].iter().all(|byte| *byte == 0)), (&b"hello"[..], true));
    assert_eq!(client.read(served.at("a") + 1, 3).unwrap(), b"ell");
    assert!(client.read(served.at("b"), 3 << 20).unwrap() == large);
    // Over the borders of files and of the metadata.
    let all = client.read(0, served.contents.image().length() as u32).unwrap();
    let at = served.at("c") as usize;
    assert!(all[at..at + 4096].iter().all(|byte| *byte == 1));
    assert_eq!(&all[1024..1028], 0xe0f5_e1e2u32.to_le_bytes());
    for other in 0..4 {
        assert!(served.ready().read(served.at("b"), 4096).unwrap() == large[..4096], "client {other}");
    }
    assert!(served.lines().is_empty());
}

#[test]
fn a_file_that_has_changed_gives_errors_and_one_line() {
    let text = vec![b'x'; 10_000];
    let names =
        ["written", "longer", "shorter", "touched", "replaced", "gone", "linked", "mode", "directory/f"];
    let mut files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &text[..])).collect();
    files.push(("same", &text));
    let served = serve("changed", &files);
    let it = &served.it;
    // Their times tell each change from now on.
    thread::sleep(Duration::from_millis(50));
    File::options().write(true).open(it.tree("written")).unwrap().write_all_at(b"y", 5000).unwrap();
    File::options().append(true).open(it.tree("longer")).unwrap().set_len(10_001).unwrap();
    File::options().append(true).open(it.tree("shorter")).unwrap().set_len(9_999).unwrap();
    File::options()
        .append(true)
        .open(it.tree("touched"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    fs::copy(it.tree("same"), it.tree("new")).unwrap();
    fs::rename(it.tree("new"), it.tree("replaced")).unwrap();
    fs::remove_file(it.tree("gone")).unwrap();
    fs::remove_file(it.tree("linked")).unwrap();
    symlink("same", it.tree("linked")).unwrap();
    common::mode(&it.tree("mode"), 0o600);
    fs::rename(it.tree("directory"), it.tree("other")).unwrap();
    symlink("other", it.tree("directory")).unwrap();
    let mut client = served.ready();
    for name in names {
        for _ in 0..2 {
            assert_eq!(client.read(served.at(name) + 4096, 4096), Err(EIO), "{name}");
        }
    }
    let lines = served.lines();
    assert_eq!(lines.len(), names.len(), "{lines:?}");
    assert!(names.iter().all(|name| lines.iter().any(|line| line.contains(&format!("/{name} has changed")))));
    // The request that also asks for others, and the others.
    assert_eq!(client.read(served.contents.image().metadata_length(), 4 << 12), Err(EIO));
    assert!(client.read(served.at("same"), 10_000).unwrap() == text);
}

#[test]
fn a_file_that_was_removed_while_it_is_open_is_there_until_it_is_written() {
    let served = serve("open", &[("f", &[b'a'; 9000]), ("g", &[b'a'; 9000])]);
    thread::sleep(Duration::from_millis(50));
    let mut client = served.ready();
    for name in ["f", "g"] {
        assert!(client.read(served.at(name), 4096).is_ok());
    }
    let writer = File::options().write(true).open(served.it.tree("f")).unwrap();
    fs::remove_file(served.it.tree("f")).unwrap();
    served.it.write("new", b"another");
    fs::rename(served.it.tree("new"), served.it.tree("g")).unwrap();
    for name in ["f", "g"] {
        assert_eq!(client.read(served.at(name) + 4096, 4096).unwrap(), [b'a'; 4096], "{name}");
    }
    assert!(served.lines().is_empty());
    thread::sleep(Duration::from_millis(50));
    writer.write_all_at(b"b", 0).unwrap();
    assert_eq!(client.read(served.at("f"), 4096), Err(EIO));
    assert!(client.read(served.at("g"), 4096).is_ok());
}

#[test]
fn a_file_that_is_written_all_the_time_is_never_a_mixture() {
    let it = Scratch::new("mixture");
    let path = it.write("f", &[0; 1 << 20]);
    // A walk of a file that has just been written: its times may yet stay the same.
    let (contents, _) = contents(it.walk().tree, 4);
    let writer = thread::spawn(move || {
        for round in 1..200u8 {
            fs::write(&path, vec![round; 1 << 20]).unwrap();
        }
    });
    let (mut bytes, begin) = (vec![0; 1 << 20], contents.image().metadata_length());
    let mut seen = Vec::new();
    while !writer.is_finished() {
        if contents.read(&mut bytes, begin).is_ok() {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture");
            seen.push(bytes[0]);
        }
    }
    writer.join().unwrap();
    seen.dedup();
    assert!(seen.len() <= 1, "one content, or none: {seen:?}");
}

#[test]
fn open_files_are_bounded() {
    let names: Vec<String> = (0..100).map(|number| format!("f{number:03}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], name.as_bytes())).collect();
    let served = serve_with("bounded", 8, Limits::default(), &files);
    let of_tree = || {
        let links =
            fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|it| fs::read_link(it.path()).ok());
        links
            .filter(|link| link.starts_with(served.it.tree("")) && link.to_string_lossy().contains("/f"))
            .count()
    };
    let mut client = served.ready();
    for _ in 0..2 {
        for name in &names {
            assert_eq!(client.read(served.at(name), 4).unwrap(), name.as_bytes());
            assert!(of_tree() <= 8, "{} are open", of_tree());
        }
    }
}

#[test]
fn requests_that_can_t_be_answered_are_refused_and_others_go_on() {
    let served = serve("requests", &[("f", b"text")]);
    let length = served.contents.image().length();
    let mut client = served.ready();
    for (command, at, asked, error) in [
        (0, length, 1, EINVAL),
        (0, length - 1, 2, EINVAL),
        (0, u64::MAX, 4096, EINVAL),
        (0, 0, 0, EINVAL),
        (0, 0, MAX_REQUEST + 1, EINVAL),
        (0, 0, u32::MAX, EINVAL),
        (3, 0, 0, EINVAL),
        (4, 0, 4096, EPERM),
        (6, 0, 4096, EPERM),
        (99, 0, 0, EINVAL),
    ] {
        client.ask(command, at, asked).unwrap();
        assert_eq!(client.answer(asked).unwrap(), Err(error), "{command} {at} {asked}");
    }
    client.ask(1, 0, 100_000).unwrap();
    client.put(&[&[1; 100_000]]).unwrap();
    assert_eq!(client.answer(0).unwrap(), Err(EPERM));
    assert_eq!(client.read(served.at("f"), 4).unwrap(), b"text");
    client.ask(2, 0, 0).unwrap();
    assert!(client.is_closed(), "it said that it leaves");
}

#[test]
fn clients_that_speak_nonsense_lose_their_connection_and_nothing_else() {
    let served = serve("nonsense", &[("f", b"text")]);
    let mut wrong = served.ready();
    wrong.put(&[b"GET / HTTP/1.1\r\nHost: nonsense\r\n\r\n"]).unwrap();
    assert!(wrong.is_closed());
    let mut wrong = served.ready();
    wrong.ask(1, 0, u32::MAX).unwrap();
    assert!(wrong.is_closed(), "it wants to write 4 GiB");
    let mut wrong = Client::connect(&served.socket);
    wrong.take(18).unwrap();
    wrong.put(&[&[0xff; 4]]).unwrap();
    assert!(wrong.is_closed(), "unknown flags");
    let mut wrong = served.client();
    wrong.put(&[b"IHAVENOT", &[0; 8]]).unwrap();
    assert!(wrong.is_closed());
    let mut wrong = served.client();
    wrong.put(&[b"IHAVEOPT", &7u32.to_be_bytes(), &u32::MAX.to_be_bytes()]).unwrap();
    assert!(wrong.is_closed(), "an option of 4 GiB");
    let mut wrong = served.client();
    for _ in 0..64 {
        wrong.option(99, b"x").unwrap();
        assert_eq!(wrong.reply().unwrap().0, 0x8000_0001);
    }
    assert!(wrong.is_closed(), "no end of options");
    let mut cut = served.ready();
    cut.put(&[&0x2560_9513u32.to_be_bytes(), &[0; 10]]).unwrap();
    drop(cut);
    assert_eq!(served.ready().read(served.at("f"), 4).unwrap(), b"text");
}

#[test]
fn options_are_answered() {
    let served = serve("options", &[("f", b"text")]);
    let id = served.contents.image().id();
    let mut client = served.client();
    client.option(8, &[]).unwrap();
    assert_eq!(client.reply().unwrap().0, 0x8000_0001, "structured replies");
    client.option(5, &[]).unwrap();
    assert_eq!(client.reply().unwrap().0, 0x8000_0001, "TLS");
    client.option(3, &[]).unwrap();
    assert_eq!(client.reply().unwrap(), (2, [&32u32.to_be_bytes()[..], id.as_bytes()].concat()));
    assert_eq!(client.reply().unwrap().0, 1);
    client.option(3, b"x").unwrap();
    assert_eq!(client.reply().unwrap().0, 0x8000_0003);
    for data in [&b""[..], b"\0\0\0\x10short", b"\xff\xff\xff\xff", b"\0\0\0\0\0\x01", b"\0\0\0\0\0\0x"] {
        client.option(7, data).unwrap();
        assert_eq!(client.reply().unwrap().0, 0x8000_0003, "{data:?}");
    }
    client.option(7, &[0; 10_000]).unwrap();
    assert_eq!(client.reply().unwrap().0, 0x8000_0009);
    assert_eq!(client.go("another image").unwrap(), Err(0x8000_0006));
    assert_eq!(client.go(&id).unwrap(), Ok(served.contents.image().length()));
    assert_eq!(client.read(served.at("f"), 4).unwrap(), b"text");
    // The old way, and leaving.
    let mut client = served.client();
    client.option(1, id.as_bytes()).unwrap();
    let answer = client.take(10).unwrap();
    assert_eq!(answer[..8], served.contents.image().length().to_be_bytes());
    assert_eq!(answer[8..], [1, 3], "read-only, for many connections");
    assert_eq!(client.read(served.at("f"), 4).unwrap(), b"text");
    let mut client = served.client();
    client.option(1, b"another image").unwrap();
    assert!(client.is_closed());
    let mut client = served.client();
    client.option(2, &[]).unwrap();
    assert_eq!(client.reply().unwrap().0, 1);
    assert!(client.is_closed());
}

#[test]
fn a_handshake_has_a_deadline_and_connections_a_bound() {
    let limits = Limits { connections: 6, each: 4, handshake: Duration::from_millis(700) };
    let served = serve_with("limits", 4, limits, &[("f", b"text")]);
    let begun = Instant::now();
    let mut mute = Client::connect(&served.socket);
    let mut slow = Client::connect(&served.socket);
    let mut first = served.ready();
    let mut second = served.ready();
    // All are of one process.
    let mut many = Client::connect(&served.socket);
    assert!(many.is_closed(), "one too many");
    // One that says a byte now and then gets no longer than one that says nothing.
    for _ in 0..20 {
        let _ = slow.put(&[&[0]]);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(mute.is_closed() && slow.is_closed());
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Those that are served may be as slow as they like.
    for client in [&mut first, &mut second] {
        assert_eq!(client.read(served.at("f"), 4).unwrap(), b"text");
    }
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let mut again = Client::connect(&served.socket);
        if again.greet().is_ok() {
            break;
        }
        assert!(Instant::now() < until, "places come free");
    }
}
