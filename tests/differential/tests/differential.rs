//! The differential tests, as a program of their own: a test's process must have one thread when it starts.
//!
//! ```text
//! cargo test                              # everything, about a minute and a half
//! cargo test -- queues                    # only what has this in its name
//! VSHMEM_DIFFERENTIAL_SECONDS=600 cargo test -- random
//! ```
//! `VSHMEM_DIFFERENTIAL_SELF_SECONDS` does the same for each comparison of the kernel with itself.
//! `VSHMEM_LIB` names the library (by default the release build of this tree); `VSHMEM_DIFFERENTIAL_SEED`
//! repeats a run; `VSHMEM_DIFFERENTIAL_AVOID=exec,MSG_COPY` leaves out steps with these words, to look past
//! known deviations.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use vshmem_differential::compare;
use vshmem_differential::generate::Profile;
use vshmem_differential::script::Script;
use vshmem_differential::search::{Report, Search};
use vshmem_differential::setup::{prepare_process, Backend, Setup};

/// Seconds for all random searches against the library together.
const DEFAULT_SECONDS: u64 = 48;
/// Seconds for each comparison of the kernel with itself.
const DEFAULT_SELF_SECONDS: u64 = 2;
/// Steps in a random script, at the most.
const LENGTH: usize = 40;

const PROFILES: [(&str, Profile); 4] = [
    ("semaphores", Profile::Semaphores),
    ("queues", Profile::Queues),
    ("segments", Profile::Segments),
    ("everything", Profile::Everything),
];

type Test = (String, Box<dyn Fn(&Setup) -> Result<String, String>>);

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let setup = match prepare_process().and_then(|()| set_up()) {
        Ok(setup) => setup,
        Err(why) => {
            eprintln!("differential: {why}");
            return ExitCode::from(2);
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in all_tests() {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        match test(&setup) {
            Ok(note) => {
                println!("test {name} ... ok{note}");
                passed += 1;
            }
            Err(why) => {
                println!("test {name} ... FAILED\n{why}\n");
                failed += 1;
            }
        }
    }
    println!("\n{passed} passed, {failed} failed");
    if failed > 0 || passed == 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn set_up() -> Result<Setup, String> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let library = std::env::var_os("VSHMEM_LIB")
        .map_or_else(|| tree.join("target/release/libvshmem.so"), PathBuf::from);
    if !library.is_file() {
        return Err(format!(
            "there is no library at {}: build it with `cargo build --release -p vshmem-capi`, or set VSHMEM_LIB",
            library.display()
        ));
    }
    Setup::new(Path::new(env!("CARGO_BIN_EXE_worker")), Some(&library))
}

fn all_tests() -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    tests.push(("self/an_injected_deviation_is_found_and_shrunk".to_owned(), Box::new(injected_deviation)));
    for (name, profile) in PROFILES {
        tests.push((
            format!("self/the_kernel_agrees_with_itself/{name}"),
            Box::new(move |setup| {
                let budget = number_from("VSHMEM_DIFFERENTIAL_SELF_SECONDS").unwrap_or(DEFAULT_SELF_SECONDS);
                random(setup, profile, Duration::from_secs(budget), Backend::Kernel)
            }),
        ));
    }
    for (name, text) in regressions() {
        tests.push((format!("regressions/{name}"), Box::new(move |setup| replay(setup, &text))));
    }
    for (name, profile) in PROFILES {
        let budget = Duration::from_secs(seconds()) / PROFILES.len() as u32;
        tests.push((
            format!("random/{name}"),
            Box::new(move |setup| random(setup, profile, budget, Backend::Vshmem)),
        ));
    }
    tests
}

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

fn seconds() -> u64 {
    number_from("VSHMEM_DIFFERENTIAL_SECONDS").unwrap_or(DEFAULT_SECONDS)
}

fn avoided() -> Vec<String> {
    let words = std::env::var("VSHMEM_DIFFERENTIAL_AVOID").unwrap_or_default();
    words.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn regressions() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let entries = std::fs::read_dir(&folder).expect("the folder of regressions is there");
    let mut found: Vec<(String, String)> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "script"))
        .map(|path| {
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a script can be read"))
        })
        .collect();
    found.sort();
    found
}

fn replay(setup: &Setup, text: &str) -> Result<String, String> {
    let script = Script::parse(text)?;
    let run = compare::run(setup, &script, Backend::Kernel, Backend::Vshmem)?;
    let skipped = run.outcomes.iter().filter(|outcome| outcome.is_none()).count();
    match run.difference {
        Some(difference) => Err(format!("{script}{difference}")),
        None if skipped > 0 => {
            Err(format!("{script}{skipped} steps could not be performed: the script is out of date"))
        }
        None => Ok(String::new()),
    }
}

fn random(setup: &Setup, profile: Profile, budget: Duration, subject: Backend) -> Result<String, String> {
    let clock =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let seed = number_from("VSHMEM_DIFFERENTIAL_SEED").unwrap_or(clock);
    let search = Search {
        profile,
        length: LENGTH,
        seed,
        avoid: avoided(),
        budget,
        shrinking: Duration::from_secs(30),
    };
    let report = search.run(setup, Backend::Kernel, subject)?;
    match report.find {
        Some(find) => Err(format!(
            "seed {seed}; to keep it, put this into a file in regressions/:\n{}{}",
            find.script, find.difference
        )),
        None => Ok(format!(" ({} scripts, {} steps, seed {seed})", report.scripts, report.steps)),
    }
}

/// The harness must be able to find what it is for: workers that drop SEM_UNDO.
fn injected_deviation(setup: &Setup) -> Result<String, String> {
    let began = Instant::now();
    let search = Search {
        profile: Profile::Semaphores,
        length: LENGTH,
        seed: 1,
        avoid: Vec::new(),
        budget: Duration::from_secs(30),
        shrinking: Duration::from_secs(10),
    };
    let Report { scripts, find, .. } = search.run(setup, Backend::Kernel, Backend::Deviant)?;
    let find = find.ok_or_else(|| format!("not found in {scripts} scripts"))?;
    // A set, an operation with SEM_UNDO, a death: that is all it takes.
    if find.script.lines.len() > 4 {
        return Err(format!("found, but not made small:\n{}", find.script));
    }
    Ok(format!(" (script {scripts}, {} lines after {:.1?})", find.script.lines.len(), began.elapsed()))
}
