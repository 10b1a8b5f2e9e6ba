//! The command `vshmem check`.

use crate::complete::values;
use crate::json::print_document;
use crate::output::print;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_base::{error::OUR_FAILURE, Result};
use vshmem_cluster::host::users::declare_dead_machines;
use vshmem_inspect::check::{check as look, CheckReport};
use vshmem_inspect::pools::{find, name_of};

#[derive(Args)]
#[command(after_help = "\
Programs can use the pool meanwhile. The check may be interrupted at any time without harm.

Exit codes:
  0    the pool is whole
  1    it was repaired, and is whole now
  4    it is damaged beyond repair
  125  it could not be checked

Examples:
  vshmem check work
  vshmem check cluster.default --json")]
pub struct Check {
    /// The pool: a name, or a path with a slash; by default, all your pools
    #[arg(env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Print JSON, a document for each pool
    #[arg(long)]
    pub json: bool,
}

/// Exit codes, those of fsck(8).
const WHOLE: u8 = 0;
const REPAIRED: u8 = 1;
const DAMAGED: u8 = 4;

/// Checks a pool, and reports repairs and damage.
pub fn check(check: &Check) -> Result<u8> {
    let found = find(check.pool.as_deref()).map_err(|e| e.code(OUR_FAILURE))?;
    let mut code = WHOLE;
    for pool in found {
        declare_dead_machines(check.pool.as_deref().unwrap_or(&name_of(&pool)))?;
        let checked = look(&pool)?;
        let shown = Shown::of(&checked);
        if check.json {
            print_document(&shown)?;
        } else {
            print(&shown.describe())?;
        }
        code = code.max(shown.code());
    }
    Ok(code)
}

/// The result of a check, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Shown<'a> {
    /// The pool's name, or its path if it has none.
    pool: &'a str,
    /// Its state.
    state: State,
    /// The repairs that were made, and the number of each kind.
    repaired: Mended,
    /// Damage that can't be repaired, as sentences.
    damage: &'a [String],
}

/// The state of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Nothing is wrong.
    Whole,
    /// It was repaired, and is whole now.
    Repaired,
    /// It is damaged beyond repair.
    Damaged,
}

/// The repairs that were made, and the number of each kind.
#[derive(Serialize, JsonSchema)]
struct Mended {
    /// Dead processes that were cleaned up after.
    processes: u32,
    /// Locks that the dead held.
    locks: u32,
    /// Removals that the dead had begun.
    removals: u32,
    /// Ranges of memory that the dead were preparing or emptying.
    ranges: u32,
    /// Records of dead threads that waited.
    waiters: u32,
}

impl Mended {
    /// A sentence for each that is not zero.
    fn sentences(&self) -> Vec<String> {
        let all = [
            (self.processes, "cleaned up after dead processes"),
            (self.locks, "took over locks of dead processes, and finished what they had begun"),
            (self.removals, "finished removals that dead processes had begun"),
            (self.ranges, "gave back memory that dead processes were preparing or emptying"),
            (self.waiters, "freed records of dead waiting threads"),
        ];
        let some = all.into_iter().filter(|(n, _)| *n > 0);
        some.map(|(n, what)| format!("{what}: {n}")).collect()
    }
}

impl<'a> Shown<'a> {
    fn of(checked: &'a CheckReport) -> Shown<'a> {
        let r = &checked.repaired;
        let state = match (checked.damage.is_empty(), r.is_nothing()) {
            (false, _) => State::Damaged,
            (true, false) => State::Repaired,
            (true, true) => State::Whole,
        };
        Shown {
            pool: &checked.pool,
            state,
            repaired: Mended {
                processes: r.processes,
                locks: r.locks,
                removals: r.removals,
                ranges: r.ranges,
                waiters: r.waiters,
            },
            damage: &checked.damage,
        }
    }

    fn code(&self) -> u8 {
        match self.state {
            State::Damaged => DAMAGED,
            State::Repaired => REPAIRED,
            State::Whole => WHOLE,
        }
    }

    fn describe(&self) -> String {
        let mended = self.repaired.sentences();
        let mut out = String::new();
        for line in &mended {
            out.push_str(&format!("{}: {line}\n", self.pool));
        }
        for line in self.damage {
            out.push_str(&format!("{}: {line}\n", self.pool));
        }
        out.push_str(&match self.state {
            State::Damaged => format!(
                "The pool {} is damaged beyond repair: end its programs, remove it and make a new one.\n",
                self.pool
            ),
            State::Repaired => format!("The pool {} is whole again.\n", self.pool),
            State::Whole => format!("The pool {} is whole.\n", self.pool),
        });
        out
    }
}
