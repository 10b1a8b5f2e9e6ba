//! `--fix` and `--undo`: changes are written down first, and only settings that are still as `--fix` left
//! them are put back.

use crate::finding::Change;
use crate::saved::{lock, Entry, Saved};
use crate::system::System;
use std::path::Path;
use vshmem_base::error::Result;

/// The outcome of a change.
#[derive(Debug, PartialEq)]
pub enum Done {
    /// It was made, or undone.
    Yes(String),
    /// Nothing had to be done, for this reason.
    Needless(String),
    /// It could not be done, for this reason.
    No(String),
}

/// Makes changes. The values before are in the file before anything is changed.
pub fn fix(system: &System, file: &Path, changes: &[(&str, Change)]) -> Result<Vec<Done>> {
    let _alone = lock(file)?;
    let mut saved = Saved::read(file, system)?;
    for (check, change) in changes {
        remember(&mut saved, check, change);
    }
    saved.write(file, system)?;
    let done: Vec<Done> = changes.iter().map(|(_, change)| make(system, change)).collect();
    // What was refused, and so is as it was, is nothing to undo.
    saved.entries.retain(|entry| !matches!(entry.setting.current(system), Ok(Some(now)) if now == entry.was));
    saved.write(file, system)?;
    Ok(done)
}

/// Adds a change to what was saved. What was there before the first of several changes stays, unless somebody
/// else has changed it since.
fn remember(saved: &mut Saved, check: &str, change: &Change) {
    let same = saved.entries.iter().position(|entry| entry.setting == change.setting);
    let first = same.map(|place| saved.entries.remove(place));
    let was = match first {
        Some(entry) if entry.set == change.from => entry.was,
        _ => change.from.clone(),
    };
    let (check, setting, set) = (check.into(), change.setting.clone(), change.to.clone());
    saved.entries.push(Entry { check, setting, was, set });
}

/// Makes a change, and looks whether it has come about.
fn make(system: &System, change: &Change) -> Done {
    if let Err(why) = change.setting.set(system, &change.to) {
        return Done::No(format!("{}: {why}", change.setting));
    }
    match change.setting.current(system) {
        Ok(Some(now)) if now == change.to => Done::Yes(change.to_string()),
        Ok(now) => {
            let now = now.unwrap_or_default();
            Done::No(format!("{} is {now}, though {} was written", change.setting, change.to))
        }
        Err(why) => Done::No(format!("{}: {why}", change.setting)),
    }
}

/// Puts back what was there, the last change first. What could not be put back stays written down.
pub fn undo(system: &System, file: &Path) -> Result<Vec<Done>> {
    let _alone = lock(file)?;
    let mut saved = Saved::read(file, system)?;
    let mut done = Vec::new();
    for place in (0..saved.entries.len()).rev() {
        let result = put_back(system, &saved.entries[place]);
        if !matches!(result, Done::No(_)) {
            saved.entries.remove(place);
        }
        done.push(result);
    }
    saved.write(file, system)?;
    Ok(done)
}

fn put_back(system: &System, entry: &Entry) -> Done {
    let Entry { setting, was, set, .. } = entry;
    match setting.current(system) {
        Err(why) => Done::No(format!("{setting}: {why}")),
        Ok(None) => Done::Needless(format!("{setting} is gone")),
        Ok(Some(now)) if now == *was => Done::Needless(format!("{setting} is as it was")),
        Ok(Some(now)) if now != *set => {
            let why = format!("{setting}: somebody else has set it to {now} since, where {set} was left");
            Done::No(why)
        }
        Ok(Some(now)) => make(system, &Change { setting: setting.clone(), from: now, to: was.clone() }),
    }
}
