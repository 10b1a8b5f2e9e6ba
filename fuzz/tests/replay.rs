//! What fuzzers have found, and what they begin with, by the product's compiler: nothing of it does harm, or
//! takes long.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use vshmem_fuzz::{texts, Target, TARGETS};

/// For one input, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The inputs that are kept for a target.
fn kept(folder: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Plays inputs in a thread of their own, so that one that hangs is told by its name.
fn replay(name: &str, target: Target, files: Vec<PathBuf>) {
    let (tell, told) = channel();
    let worker = thread::spawn(move || {
        for file in files {
            let bytes = fs::read(&file).expect("a file that can be read");
            tell.send(file).expect("somebody listens");
            target(&bytes);
        }
    });
    let mut last = PathBuf::new();
    loop {
        match told.recv_timeout(DEADLINE) {
            Ok(file) => last = file,
            Err(RecvTimeoutError::Timeout) => panic!("{name} hangs with {}", last.display()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    assert!(worker.join().is_ok(), "{name} fails with {}", last.display());
}

#[test]
fn what_was_found_does_no_harm_any_more() {
    for (name, target) in TARGETS {
        replay(name, *target, kept("regressions", name));
    }
}

#[test]
fn what_fuzzers_begin_with_does_no_harm() {
    for (name, target) in TARGETS {
        let files = kept("corpus", name);
        assert!(!files.is_empty(), "{name} has nothing to begin with");
        let (n, begun) = (files.len(), Instant::now());
        replay(name, *target, files);
        println!("{name}: {n} inputs in {:.1} s", begun.elapsed().as_secs_f64());
    }
}

#[test]
fn the_examples_of_clusters_do_no_harm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cluster");
    let files: Vec<PathBuf> =
        fs::read_dir(folder).expect("examples").map(|entry| entry.expect("a file").path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read(&file).expect("a file that can be read");
        let input = texts::addressed("description", &text).expect("a reader of descriptions");
        // The letter that scripts/fuzz.sh puts before them.
        assert_eq!(input[0], b'O');
        texts::run(&input);
    }
}
