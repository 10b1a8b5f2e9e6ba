//! What a check is: a row of the table, with a function that looks.

use crate::finding::{Class, Verdict};
use crate::look::Look;
use crate::system::Unseen;

/// A check.
pub struct Check {
    /// Its name on command lines.
    pub id: &'static str,
    /// What it is about, in a sentence.
    pub title: &'static str,
    /// What goes on there, for the documentation.
    pub about: &'static str,
    /// How to see it by hand: a command.
    pub by_hand: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// What the remedy takes.
    pub class: Class,
    /// What the remedy may cost or break.
    pub risk: &'static str,
    /// Where this is known from.
    pub source: &'static str,
    /// Checks whose subjects may be the cause of this one's.
    pub causes: &'static [&'static str],
    /// Looks, and judges. What it needs and can't read makes the verdict unknown.
    pub look: fn(&mut Look<'_>) -> Result<Verdict, Unseen>,
}
