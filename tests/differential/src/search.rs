//! Looks for a script on which two back ends differ, and makes it small.

use crate::compare::{self, Difference};
use crate::generate::{scripts, Profile};
use crate::script::Script;
use crate::setup::{Backend, Setup};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::time::{Duration, Instant};

/// Where to look and for how long.
pub struct Search {
    pub profile: Profile,
    pub length: usize,
    pub seed: u64,
    /// Steps that contain one of these words are left out: to look past a deviation that is known already.
    pub avoid: Vec<String>,
    /// How long to look.
    pub budget: Duration,
    /// How long to make a find smaller.
    pub shrinking: Duration,
}

/// A find: the smallest script that was tried and still differs.
pub struct Find {
    pub script: Script,
    pub difference: Difference,
}

/// What a search came to.
pub struct Report {
    pub scripts: usize,
    pub steps: usize,
    pub find: Option<Find>,
}

impl Search {
    /// Performs random scripts until one differs or the budget is spent.
    ///
    /// # Errors
    /// A side that could not be started.
    pub fn run(&self, setup: &Setup, reference: Backend, subject: Backend) -> Result<Report, String> {
        let mut bytes = [0u8; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = scripts(self.profile, self.length);
        let mut report = Report { scripts: 0, steps: 0, find: None };
        let began = Instant::now();
        while began.elapsed() < self.budget {
            let mut tree = strategy.new_tree(&mut runner).map_err(|why| format!("no script: {why}"))?;
            let script = self.without_avoided(tree.current());
            let run = compare::run(setup, &script, reference, subject)?;
            report.scripts += 1;
            report.steps += run.outcomes.iter().flatten().count();
            if let Some(difference) = run.difference {
                report.find = Some(self.shrink(setup, reference, subject, &mut tree, difference)?);
                break;
            }
        }
        Ok(report)
    }

    fn without_avoided(&self, mut script: Script) -> Script {
        let avoided = |text: String| self.avoid.iter().any(|word| text.contains(word.as_str()));
        script.lines.retain(|line| !avoided(line.step.to_string()));
        script
    }

    fn shrink(
        &self,
        setup: &Setup,
        reference: Backend,
        subject: Backend,
        tree: &mut impl ValueTree<Value = Script>,
        difference: Difference,
    ) -> Result<Find, String> {
        let began = Instant::now();
        let mut best = Find { script: tree.current(), difference };
        let mut differs =
            |script: &Script| compare::run(setup, script, reference, subject).map(|run| run.difference);
        best = drop_lines(best, &mut differs, began, self.shrinking)?;
        // The tree makes numbers and lists inside the steps smaller too, but it begins with the whole
        // script; it is only worth its time while that is short.
        let mut simpler = tree.simplify();
        while simpler && began.elapsed() < self.shrinking / 2 {
            let script = self.without_avoided(tree.current());
            simpler = match differs(&script)? {
                Some(difference) => {
                    if script.lines.len() <= best.script.lines.len() {
                        best = Find { script, difference };
                    }
                    tree.simplify()
                }
                None => tree.complicate(),
            };
        }
        drop_lines(best, &mut differs, began, self.shrinking)
    }
}

/// Leaves out lines, many at a time at first, as long as the rest still differs.
pub fn drop_lines(
    mut best: Find,
    differs: &mut impl FnMut(&Script) -> Result<Option<Difference>, String>,
    began: Instant,
    budget: Duration,
) -> Result<Find, String> {
    // What comes after the difference can't have caused it.
    let needed = (best.difference.position + 1).min(best.script.lines.len());
    best.script.lines.truncate(needed);
    let mut chunk = best.script.lines.len().div_ceil(2).max(1);
    loop {
        let mut position = 0;
        let mut dropped = false;
        while position < best.script.lines.len() && began.elapsed() < budget {
            let mut script = best.script.clone();
            let end = (position + chunk).min(script.lines.len());
            script.lines.drain(position..end);
            match differs(&script)? {
                Some(difference) => {
                    best = Find { script, difference };
                    dropped = true;
                }
                None => position += chunk,
            }
        }
        if began.elapsed() >= budget || (chunk == 1 && !dropped) {
            return Ok(best);
        }
        chunk = (chunk / 2).max(1);
    }
}
