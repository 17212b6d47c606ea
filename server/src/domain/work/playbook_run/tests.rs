//! What holds for every run, whatever its tasks, its supervisor and people do.

mod rules;
mod world;

use proptest::prelude::*;

use super::place;
use world::World;

#[test]
fn labels_are_in_the_order_of_their_steps() {
    let labels = ["1", "2", "2a", "2b", "2z", "2aa", "2az", "2ba", "3", "10", "10a", "200"];
    assert!(labels.windows(2).all(|two| place(two[0]) < place(two[1])), "{:?}", labels.map(place));
    assert_eq!((place(""), place("x"), place("\u{e9}")), (0, 24, 999));
}

proptest! {
    /// The world checks after each move that no step began before its time, twice, or past a gate.
    #[test]
    fn a_run_keeps_its_rules_and_comes_to_an_end(
        supervised in any::<bool>(),
        shape in prop::collection::vec(any::<u8>(), 1..24),
        events in prop::collection::vec((any::<u8>(), any::<u8>()), 0..200),
    ) {
        let mut world = World::new(supervised, &shape);
        world.go_on();
        for (what, which) in events {
            world.happen(what, which);
            world.go_on();
        }
        world.bring_to_an_end();
        prop_assert!(world.is_at_rest(), "{:#?}", world.now);
    }

    #[test]
    fn a_stopped_run_runs_nothing_any_more(
        supervised in any::<bool>(),
        shape in prop::collection::vec(any::<u8>(), 1..24),
        events in prop::collection::vec((any::<u8>(), any::<u8>()), 0..60),
    ) {
        let mut world = World::new(supervised, &shape);
        world.go_on();
        for (what, which) in events {
            world.happen(what, which);
            world.go_on();
        }
        world.stop();
        world.go_on();
        prop_assert!(world.now.run.settled && world.running() == 0, "{:#?}", world.now);
    }
}
