//! What calls do, as System V says, one after the other: what concurrent calls and deaths may come to, is one
//! order of them, in which those of the dead have happened or not.

/// Text of a message, told apart by type and length.
pub type Message = (i64, usize);

/// Bytes that a queue holds.
const QUEUE: usize = 16384;

/// A call of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Adds to two semaphores, all or nothing; waits.
    Add([i16; 3]),
    /// The same to the first one, with `SEM_UNDO`.
    Undone(i16),
    /// `SETVAL` of the first one.
    Set(u16),
    /// Sends a message.
    Send(Message),
    /// Receives a message of a type (0: any), or finds none.
    Receive(i64),
    /// The same, and waits.
    Await(i64),
    /// Attaches a segment.
    Attach,
    /// Makes a segment and removes it.
    Segment(usize),
    /// Makes a set and removes it.
    Semaphores(i32),
    /// `IPC_STAT` of all.
    Look,
}

/// What a call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A message.
    Got(Message),
    /// There was none.
    Nothing,
    /// What it waited for was removed: only at the end of a round.
    Removed,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returned.
    Returned(Answer),
    /// Its process died.
    Died,
    /// It waits.
    Waits,
}

/// What can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Values of the semaphores.
    pub values: [i32; 3],
    /// Messages in the queue.
    pub messages: Vec<Message>,
    /// Attachments of the segment.
    pub attached: u64,
}

/// A state and, for each process, what is owed to the first semaphore, and whether it has the segment
/// attached.
#[derive(Clone)]
struct World {
    state: State,
    owed: Vec<i32>,
    attached: Vec<bool>,
}

impl World {
    /// Performs a call of process `who`; `None`: it has to wait.
    fn perform(&mut self, who: usize, call: Call) -> Option<Answer> {
        let State { values, messages, .. } = &mut self.state;
        match call {
            Call::Add(by) => {
                let then = [0, 1, 2].map(|i| values[i] + i32::from(by[i]));
                if then.iter().any(|v| *v < 0) {
                    return None;
                }
                *values = then;
            }
            Call::Undone(by) => {
                if values[0] + i32::from(by) < 0 {
                    return None;
                }
                values[0] += i32::from(by);
                self.owed[who] -= i32::from(by);
            }
            Call::Set(value) => {
                values[0] = value.into();
                self.owed.fill(0);
            }
            Call::Send(message) => {
                let bytes: usize = messages.iter().map(|m| m.1).sum();
                if bytes + message.1 > QUEUE {
                    return None;
                }
                messages.push(message);
            }
            Call::Receive(kind) | Call::Await(kind) => {
                let first = messages.iter().position(|m| kind == 0 || m.0 == kind);
                match first {
                    Some(i) => return Some(Answer::Got(messages.remove(i))),
                    None if matches!(call, Call::Await(_)) => return None,
                    None => return Some(Answer::Nothing),
                }
            }
            Call::Attach => self.attached[who] = true,
            Call::Segment(_) | Call::Semaphores(_) | Call::Look => {}
        }
        Some(Answer::Done)
    }

    /// What can be seen when the dead are reaped.
    fn seen(mut self, ends: &[End]) -> State {
        for (who, end) in ends.iter().enumerate() {
            if *end == End::Died {
                self.state.values[0] = (self.state.values[0] + self.owed[who]).max(0);
                self.attached[who] = false;
            }
        }
        self.state.attached += self.attached.iter().filter(|a| **a).count() as u64;
        self.state
    }
}

/// Is there an order of the calls, in which those of the dead happened or not, that explains what was
/// returned and what is seen?
pub fn explains(before: &State, calls: &[Call], ends: &[End], seen: &State) -> bool {
    let world =
        World { state: before.clone(), owed: vec![0; calls.len()], attached: vec![false; calls.len()] };
    search(world, &mut vec![false; calls.len()], calls, ends, seen)
}

fn search(world: World, done: &mut [bool], calls: &[Call], ends: &[End], seen: &State) -> bool {
    let left = |done: &[bool]| (0..calls.len()).filter(|i| !done[*i]).collect::<Vec<_>>();
    let rest = left(done);
    let may_end = rest.iter().all(|i| match ends[*i] {
        End::Returned(_) => false,
        End::Died => true,
        End::Waits => world.clone().perform(*i, calls[*i]).is_none(),
    });
    if may_end && world.clone().seen(ends) == *seen {
        return true;
    }
    rest.into_iter().any(|i| {
        let mut next = world.clone();
        let answer = next.perform(i, calls[i]);
        let fits = match ends[i] {
            End::Returned(returned) => answer == Some(returned),
            End::Died => answer.is_some(),
            End::Waits => false,
        };
        if !fits {
            return false;
        }
        done[i] = true;
        let found = search(next, done, calls, ends, seen);
        done[i] = false;
        found
    })
}
