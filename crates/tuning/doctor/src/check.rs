//! A check: a row of the table, with a function that looks.

use crate::finding::{Class, Verdict};
use crate::look::Look;
use crate::system::Unseen;

/// A check.
pub struct Check {
    /// Its name on command lines.
    pub id: &'static str,
    /// The good state, in a sentence.
    pub title: &'static str,
    /// An explanation, for the documentation.
    pub about: &'static str,
    /// A command that shows it by hand.
    pub by_hand: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// The class of the remedy.
    pub class: Class,
    /// The risk of the remedy: costs, and things that may break.
    pub risk: &'static str,
    /// The source of all this.
    pub source: &'static str,
    /// Checks whose subjects may be the cause of this one's.
    pub causes: &'static [&'static str],
    /// Looks, and judges. A file that it needs and can't read makes the verdict unknown.
    pub look: fn(&mut Look<'_>) -> Result<Verdict, Unseen>,
}
