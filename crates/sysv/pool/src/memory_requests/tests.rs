use super::*;
use std::cell::RefCell;
use std::vec::Vec;

fn slots() -> [AtomicU64; 2] {
    [const { AtomicU64::new(0) }; 2]
}

#[test]
fn what_is_requested_is_answered() {
    let slots = slots();
    let request = put(&slots, 63, FIRST_BITS, MAX_PAGES).unwrap();
    assert_eq!(fetch(&slots, request), Answer::Pending);
    let given = RefCell::new(Vec::new());
    let give = |first, count| {
        given.borrow_mut().push((first, count));
        true
    };
    assert_eq!(serve(&slots[0], give), Some(63));
    assert_eq!(serve(&slots[1], give), None, "nothing was requested there");
    assert_eq!(serve(&slots[0], give), None, "it is answered");
    assert_eq!(*given.borrow(), [(FIRST_BITS, MAX_PAGES)]);
    assert_eq!(fetch(&slots, request), Answer::Given);
    assert_eq!(fetch(&slots, request), Answer::Lost, "only once");
    let again = put(&slots, 63, FIRST_BITS, MAX_PAGES).unwrap();
    assert_ne!(again, request, "another turn");
    serve(&slots[0], |_, _| false);
    assert_eq!(fetch(&slots, request), Answer::Lost);
    assert_eq!(fetch(&slots, again), Answer::Refused);
}

#[test]
fn there_are_so_many_requests_at_a_time() {
    let slots = slots();
    let first = put(&slots, 0, 0, 1).unwrap();
    let second = put(&slots, 0, 0, 1).unwrap();
    assert_ne!(first, second);
    assert_eq!(put(&slots, 0, 0, 1), None);
    assert!(slots.iter().all(|slot| serve(slot, |_, _| true) == Some(0)));
    assert_eq!(put(&slots, 0, 0, 1), None, "answers have not been fetched");
    assert_eq!(fetch(&slots, second), Answer::Given);
    assert!(put(&slots, 0, 0, 1).is_some());
}

#[test]
fn answers_that_nobody_fetches_are_forgotten() {
    let slots = slots();
    let mut seen = (0, 0);
    let look = |seen: &mut (u64, u8), times| (0..times).for_each(|_| forget(&slots[0], seen));
    let dead = put(&slots, 1, 7, 1).unwrap();
    look(&mut seen, 100);
    assert_eq!(fetch(&slots, dead), Answer::Pending, "a request waits");
    serve(&slots[0], |_, _| true);
    look(&mut seen, UNFETCHED_PASSES);
    assert_eq!(slots[0].load(SeqCst) & STATE, GIVEN, "it may be fetched yet");
    look(&mut seen, 1);
    assert_eq!(slots[0].load(SeqCst) & STATE, FREE);
    let next = put(&slots, 1, 7, 1).unwrap();
    assert_eq!(fetch(&slots, dead), Answer::Lost, "the same, but later");
    serve(&slots[0], |_, _| true);
    assert_eq!(fetch(&slots, next), Answer::Given);
}

#[test]
fn turns_come_round() {
    let slots = slots();
    for _ in 0..5000 {
        let request = put(&slots, 5, 77, 3).unwrap();
        assert_eq!(request.slot, 0);
        assert_eq!(serve(&slots[0], |first, count| (first, count) == (77, 3)), Some(5));
        assert_eq!(fetch(&slots, request), Answer::Given);
    }
}

#[test]
fn scribbled_slots_are_only_words() {
    let slots = slots();
    let mut dice = 0x1234_5678_9abc_def1u64;
    for _ in 0..100_000 {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        slots[dice as usize % 2].store(dice, SeqCst);
        let member = serve(&slots[0], |first, count| {
            assert!(first <= FIRST_BITS && count <= COUNT_BITS);
            dice & 1 == 0
        });
        assert!(member.is_none_or(|member| u32::from(member) < MAX_MEMBERS));
        forget(&slots[1], &mut (dice, 200));
        if let Some(request) = put(&slots, 1, dice & FIRST_BITS, 1) {
            fetch(&slots, request);
        }
    }
}
