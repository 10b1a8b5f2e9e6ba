//! `replay SCRIPT...`: performs scripts and prints them with what came of each step.
//!
//! With `--on-kernel` the kernel is compared with itself; otherwise with the library that `VSHMEM_LIB` names.

use std::path::PathBuf;
use std::process::ExitCode;
use vshmem_differential::compare;
use vshmem_differential::script::Script;
use vshmem_differential::setup::{prepare_process, Backend, Setup};

fn main() -> ExitCode {
    match replay() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("replay: {why}");
            ExitCode::from(2)
        }
    }
}

fn replay() -> Result<bool, String> {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let on_kernel = files.iter().any(|file| file == "--on-kernel");
    files.retain(|file| file != "--on-kernel");
    if files.is_empty() {
        return Err("usage: replay [--on-kernel] SCRIPT...".to_owned());
    }
    prepare_process()?;
    let worker = std::env::current_exe().map_err(|why| why.to_string())?.with_file_name("worker");
    let library = std::env::var_os("VSHMEM_LIB").map(PathBuf::from);
    let setup = Setup::new(&worker, library.as_deref())?;
    let subject = if on_kernel { Backend::Kernel } else { Backend::Vshmem };
    let mut same = true;
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
        let mut script = Script::parse(&text).map_err(|why| format!("{file}: {why}"))?;
        let run = compare::run(&setup, &script, Backend::Kernel, subject)?;
        for (line, outcome) in script.lines.iter_mut().zip(&run.outcomes) {
            line.expected = Some(outcome.clone().unwrap_or_else(|| "(skipped)".to_owned()));
        }
        print!("# {file}\n{script}");
        if let Some(difference) = run.difference {
            println!("# They differ {difference}");
            same = false;
        }
    }
    Ok(same)
}
