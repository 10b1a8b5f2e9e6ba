//! Downloads from a server of the test's own, and what is left in the cache.

use super::digest::Digest;
use super::download::{download, Expected, Step, Wanted};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How a server answers.
#[derive(Default)]
struct Answers {
    /// Files by their paths.
    files: BTreeMap<String, Vec<u8>>,
    /// Answers after so many bytes break off: one for each answer with a body to come.
    cuts: Vec<usize>,
    /// It sends whole files only.
    no_ranges: bool,
    /// The requests that came: path, and where the part begins that was asked for.
    asked: Vec<(String, usize)>,
}

/// A server, and a cache that nobody else has.
struct Scene {
    answers: Arc<Mutex<Answers>>,
    address: String,
    cache: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Scene {
        // It is never behind a proxy.
        std::env::set_var("no_proxy", "127.0.0.1");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let answers = Arc::new(Mutex::new(Answers::default()));
        let shared = answers.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let _ = answer(connection, &shared);
            }
        });
        let cache = std::env::temp_dir().join(format!("vshmem-images-{name}-{}", std::process::id()));
        fs::create_dir_all(&cache).unwrap();
        Scene { answers, address, cache }
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        self.answers.lock().unwrap().files.insert(path.into(), bytes.into());
    }

    /// The image of a distribution that publishes this checksum.
    fn listed(&self, checksum_of: &[u8]) -> Wanted {
        let digest = digest_of(&self.cache, checksum_of);
        self.put("/SHA256SUMS", format!("{digest}  other.img\n{digest} *d.img\n").as_bytes());
        self.wanted(Expected::Listed(format!("{}/SHA256SUMS", self.address)))
    }

    fn wanted(&self, expected: Expected) -> Wanted {
        let url = format!("{}/d.img", self.address);
        Wanted { said: "d/1".into(), url, stem: "d_1_".into(), expected }
    }

    /// Downloads an image: its path, or the error, and what was told.
    fn get(&self, wanted: &Wanted) -> (Result<PathBuf, String>, Vec<Step>) {
        let mut told = Vec::new();
        let got = download(wanted, &self.cache, &mut |step| told.push(step));
        told.retain(|step| !matches!(step, Step::Part { .. }));
        (got.map_err(|why| why.to_string()), told)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.cache).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Where the parts of the image began that were asked for.
    fn parts(&self) -> Vec<usize> {
        let answers = self.answers.lock().unwrap();
        answers.asked.iter().filter(|(path, _)| path == "/d.img").map(|(_, begin)| *begin).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.cache);
    }
}

fn answer(mut connection: TcpStream, answers: &Mutex<Answers>) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    let first = lines.next().unwrap_or(Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut begin = 0;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            begin = range.trim_end_matches('-').parse().unwrap_or(0);
        }
    }
    let mut answers = answers.lock().unwrap();
    answers.asked.push((path.clone(), begin));
    let Some(bytes) = answers.files.get(&path).cloned() else {
        return connection.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let begin = if answers.no_ranges { 0 } else { begin };
    if begin > 0 && begin >= bytes.len() {
        return connection.write_all(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n");
    }
    let rest = &bytes[begin..];
    let status = match begin {
        0 => "200 OK".to_owned(),
        _ => {
            format!("206 Partial Content\r\nContent-Range: bytes {begin}-{}/{}", bytes.len() - 1, bytes.len())
        }
    };
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
    let cut = if path == "/d.img" && !answers.cuts.is_empty() { answers.cuts.remove(0) } else { rest.len() };
    connection.write_all(&rest[..cut.min(rest.len())])
}

/// The checksum of these bytes, as a list has it.
fn digest_of(cache: &Path, bytes: &[u8]) -> String {
    let path = cache.join("bytes");
    fs::write(&path, bytes).unwrap();
    let out = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
    fs::remove_file(&path).unwrap();
    String::from_utf8(out.stdout).unwrap().split(' ').next().unwrap().into()
}

fn image() -> Vec<u8> {
    (0..300_000u32).flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn what_has_the_right_checksum_is_kept() {
    let scene = Scene::new("right");
    scene.put("/d.img", &image());
    let wanted = scene.listed(&image());
    let (got, told) = scene.get(&wanted);
    let path = got.unwrap();
    assert_eq!(fs::read(&path).unwrap(), image());
    assert_eq!(scene.files(), [path.file_name().unwrap().to_str().unwrap()]);
    assert!(matches!(&told[1], Step::Message(text) if text.contains("sha256 is right")), "{told:?}");
}

#[test]
fn what_has_a_wrong_checksum_is_not() {
    let scene = Scene::new("wrong");
    scene.put("/d.img", b"an error page of a proxy");
    let why = scene.get(&scene.listed(&image())).0.unwrap_err();
    assert!(why.contains("sent has the wrong checksum: sha256") && why.contains("It was removed."), "{why}");
    assert_eq!(scene.files(), [""; 0]);
}

#[test]
fn what_was_cut_off_goes_on_from_there() {
    let scene = Scene::new("cut");
    scene.put("/d.img", &image());
    scene.answers.lock().unwrap().cuts = vec![700_000];
    let wanted = scene.listed(&image());
    let why = scene.get(&wanted).0.unwrap_err();
    assert!(why.contains("683.6K of it are kept, and the next try goes on from there"), "{why}");
    assert!(scene.files()[0].ends_with(".partial"));
    let (got, told) = scene.get(&wanted);
    assert_eq!(fs::read(got.unwrap()).unwrap(), image());
    assert_eq!((scene.parts(), scene.files().len()), (vec![0, 700_000], 1));
    assert!(matches!(&told[0], Step::Message(text) if text.ends_with("683.6K of it are here")), "{told:?}");
}

#[test]
fn what_does_not_go_on_begins_anew() {
    for (name, before, no_ranges) in [
        ("whole", image()[..5000].to_vec(), true),
        ("other", vec![7; 5000], false),
        ("long", vec![7; 2_000_000], false),
    ] {
        let scene = Scene::new(name);
        scene.put("/d.img", &image());
        scene.answers.lock().unwrap().no_ranges = no_ranges;
        let digest = Digest::parse(&digest_of(&scene.cache, &image())).unwrap();
        let partial = scene.cache.join(format!("d_1_{}.partial", digest.short()));
        fs::write(&partial, &before).unwrap();
        let (got, told) = scene.get(&scene.wanted(Expected::Digest(digest)));
        assert_eq!(fs::read(got.unwrap()).unwrap(), image(), "{name}");
        assert_eq!(scene.parts().last(), Some(&0), "{name}");
        assert!(matches!(&told[1], Step::Message(text) if text.contains("downloaded anew")), "{told:?}");
        assert_eq!(scene.files().len(), 1);
    }
}

#[test]
fn all_that_lacked_was_the_name() {
    let scene = Scene::new("ended");
    scene.put("/d.img", &image());
    let digest = Digest::parse(&digest_of(&scene.cache, &image())).unwrap();
    fs::write(scene.cache.join(format!("d_1_{}.partial", digest.short())), image()).unwrap();
    assert!(scene.get(&scene.wanted(Expected::Digest(digest))).0.is_ok());
    assert_eq!((scene.parts(), scene.files().len()), (vec![1_200_000], 1));
}

#[test]
fn what_nobody_vouches_for_is_said() {
    let scene = Scene::new("unknown");
    scene.put("/d.img", &image());
    let wanted = scene.wanted(Expected::Unknown(Digest::of_text("the address").unwrap()));
    scene.answers.lock().unwrap().cuts = vec![10];
    let why = scene.get(&wanted).0.unwrap_err();
    assert!(!why.contains("kept"), "two parts that nobody can check: {why}");
    assert_eq!(scene.files(), [""; 0]);
    let (got, told) = scene.get(&wanted);
    assert!(
        got.is_ok() && matches!(&told[1], Step::Warning(text) if text.contains("not been checked")),
        "{told:?}"
    );
}

#[test]
fn what_can_not_be_had_says_what_to_do() {
    let scene = Scene::new("none");
    let hints = ["name the file instead of d/1", "/etc/vshmem/images.toml", "docs/guide-images.md"];
    let missing = scene.get(&scene.listed(&image())).0.unwrap_err();
    assert!(missing.contains("404"), "{missing}");
    scene.put("/SHA256SUMS", b"nothing here");
    let list = Expected::Listed(format!("{}/SHA256SUMS", scene.address));
    let unlisted = scene.get(&scene.wanted(list)).0.unwrap_err();
    assert!(unlisted.contains("has no checksum of d.img"), "{unlisted}");
    // A port that nobody listens on.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let list = Expected::Listed(format!("http://{closed}/SHA256SUMS"));
    let offline = scene.get(&scene.wanted(list)).0.unwrap_err();
    assert!(offline.contains("connect"), "{offline}");
    for (why, hint) in
        [(&missing, hints), (&offline, hints)].iter().flat_map(|(why, all)| all.map(|hint| (why, hint)))
    {
        assert!(why.contains(hint), "{why}");
    }
    assert_eq!(scene.files(), [""; 0]);
}
