//! Output of commands as tests read it: a list of bytes.

use super::Output;
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// The bytes of an output.
pub type List = Rc<RefCell<Vec<u8>>>;

struct Writer(List);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// The output of a command, which is appended to a list.
    pub fn recorded(label: Option<&str>, list: &List) -> Output {
        Output::new(label, [list, list].map(|list| Box::new(Writer(list.clone())) as Box<dyn Write>))
    }
}
