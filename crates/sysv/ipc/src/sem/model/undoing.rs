//! `SEM_UNDO` beside plain operations: the swap of a semaphore's low word beside that of both, a death, and
//! who pays back what the dead owe.

use super::{at_once, semaphore, semop, undone, value};
use crate::modelled::{act, LOOKS};
use crate::Errno;
use std::vec::Vec;
use vshmem_pool::model::{kill, Scene};

/// The operations of a process, one after the other: by how much, and whether with `SEM_UNDO`.
type Deeds = &'static [(i16, bool)];

/// Processes act at the same time, and none of them waits. Then all are dead: what they did without
/// `SEM_UNDO` stays, all else goes. With `dies`, the first dies on the way.
fn play(preemptions: usize, before: i32, deeds: &'static [Deeds], dies: bool) {
    let (world, id) = semaphore(deeds.len(), LOOKS, before);
    let acts: Vec<_> = deeds
        .iter()
        .map(|ops| {
            act(move |c| {
                let done = |(by, undo): &(i16, bool)| {
                    let sop = if *undo { undone(*by) } else { at_once(*by) };
                    let stays = semop(c, id, sop).is_ok() && !undo;
                    if stays {
                        i32::from(*by)
                    } else {
                        0
                    }
                };
                ops.iter().map(done).sum::<i32>()
            })
        })
        .collect();
    let scene = Scene::new(world, acts, move |world, sums: Vec<Option<i32>>| {
        (1..=sums.len()).for_each(kill);
        assert_eq!(value(world, id), before + sums.into_iter().flatten().sum::<i32>(), "tokens");
    });
    if dies {
        scene.check_deaths(0, preemptions);
    } else {
        scene.check(preemptions);
    }
}

#[test]
fn plain_operations_beside_one_with_an_adjustment() {
    play(3, 1, &[&[(-1, true), (1, true)], &[(1, false), (-1, false)]], false);
}

#[test]
fn plain_operations_beside_one_that_dies() {
    play(2, 1, &[&[(-1, true)], &[(1, false), (-1, false), (1, false)]], true);
}

#[test]
fn two_adjustments_and_a_plain_operation() {
    play(1, 2, &[&[(-1, true)], &[(-1, true), (1, true)], &[(1, false)]], false);
}

#[test]
fn what_the_dead_owe_is_paid_once_by_two() {
    play(1, 1, &[&[(-1, true)], &[(-1, false)], &[(-1, false)]], true);
}

/// Somebody has given a token with `SEM_UNDO`, and died: nobody gets it who comes later.
#[test]
fn what_the_dead_owe_is_paid_before_others_take() {
    let (mut world, id) = semaphore(3, LOOKS, 0);
    semop(&world.ctx(2), id, undone(1)).unwrap();
    world.bury(2);
    let taker = || act(move |c| semop(c, id, at_once(-1)));
    Scene::new(world, std::vec![taker(), taker()], move |world, taken| {
        assert_eq!(taken, [Some(Err(Errno::EAGAIN)); 2]);
        assert_eq!(value(world, id), 0);
    })
    .check(2);
}
