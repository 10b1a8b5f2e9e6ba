//! The terminal of `vshmem top`, which is restored however it ends.

use super::frame::{lines, Line, Sort, View};
use super::watch::Watch;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{execute, queue};
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};
use vshmem_base::{error, interrupt, printable, Error, Result};

/// Time between checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs until the user quits, or a signal comes.
pub fn run(watch: &mut Watch, view: &mut View, interval: Duration) -> Result<u8> {
    interrupt::watch();
    // The message of a panic must not be lost with the alternate screen.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
    let mut screen = Screen::new().map_err(lost)?;
    loop {
        watch.sample()?;
        let due = Instant::now() + interval;
        loop {
            screen.draw(view, watch).map_err(lost)?;
            match screen.wait(due).map_err(lost)? {
                ScreenEvent::Nothing => break,
                ScreenEvent::Changed => screen.shown.clear(),
                ScreenEvent::Key(key) => {
                    if !handle_key(view, key) {
                        return Ok(0);
                    }
                }
                ScreenEvent::Signal(signal) => return Ok(128u8.saturating_add(signal as u8)),
            }
        }
    }
}

fn lost(error: io::Error) -> Error {
    error!("could not use the terminal: {error}")
}

/// Handles a key; false: quit.
fn handle_key(view: &mut View, key: KeyEvent) -> bool {
    let page = 10;
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('m') => view.sort = Sort::Rate,
        KeyCode::Char('b') => view.sort = Sort::Bytes,
        KeyCode::Char('w') => view.sort = Sort::Waiting,
        KeyCode::Char('u') => view.sort = Sort::Used,
        KeyCode::Char('i') => view.sort = Sort::Id,
        KeyCode::Char('r') => view.reverse = !view.reverse,
        KeyCode::Char('t') => (view.threads, view.scrolled) = (!view.threads, 0),
        KeyCode::Up => view.scrolled = view.scrolled.saturating_sub(1),
        KeyCode::Down => view.scrolled += 1,
        KeyCode::PageUp => view.scrolled = view.scrolled.saturating_sub(page),
        KeyCode::PageDown => view.scrolled += page,
        KeyCode::Home => view.scrolled = 0,
        _ => (),
    }
    true
}

/// An event of the screen.
enum ScreenEvent {
    Nothing,
    Key(KeyEvent),
    Changed,
    Signal(i32),
}

/// The terminal in raw mode; restored on drop.
struct Screen {
    shown: Vec<Line>,
}

impl Screen {
    fn new() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        // From here on it is restored on failure.
        let screen = Screen { shown: Vec::new() };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Writes the lines that have changed only, for slow connections.
    fn draw(&mut self, view: &mut View, watch: &Watch) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        let lines = lines(view, &watch.samples, width.into(), height.into());
        let mut out = io::stdout().lock();
        if self.shown.is_empty() {
            queue!(out, Clear(ClearType::All))?;
        }
        for (row, line) in lines.iter().enumerate() {
            if self.shown.get(row) == Some(line) {
                continue;
            }
            queue!(out, MoveTo(0, row as u16), Clear(ClearType::UntilNewLine))?;
            if line.heading {
                queue!(out, SetAttribute(Attribute::Bold))?;
            }
            queue!(out, Print(printable(&line.text)), SetAttribute(Attribute::Reset))?;
        }
        if self.shown.len() > lines.len() {
            queue!(out, MoveTo(0, lines.len() as u16), Clear(ClearType::FromCursorDown))?;
        }
        self.shown = lines;
        out.flush()
    }

    /// Waits for an event until `due`.
    fn wait(&self, due: Instant) -> io::Result<ScreenEvent> {
        loop {
            if let Some(signal) = interrupt::signal() {
                return Ok(ScreenEvent::Signal(signal));
            }
            let left = due.saturating_duration_since(Instant::now());
            let there = match event::poll(left.min(SIGNAL_INTERVAL)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                there => there?,
            };
            if there {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(ScreenEvent::Key(key)),
                    Event::Resize(..) => return Ok(ScreenEvent::Changed),
                    _ => (),
                }
            } else if left.is_zero() {
                return Ok(ScreenEvent::Nothing);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal. Harmless if repeated.
fn restore() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}
