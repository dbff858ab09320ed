use super::*;
use proptest::prelude::*;

const LIMIT: u64 = 1_000_000;

/// A guard on a table: what it is told, what it does.
struct Table {
    gauge: Gauge,
    state: State,
    now: Duration,
}

impl Table {
    fn new() -> Self {
        Self { gauge: Gauge::new(LIMIT, 1), state: State::default(), now: Duration::ZERO }
    }

    fn tell(&mut self, input: Input) -> Vec<Effect> {
        let (state, effects) = step(&self.gauge, self.state, input, self.now);
        self.state = state;
        effects
    }

    /// A reading, and the answer to the list it asks for.
    fn look(&mut self, used: u64, kernel_kills: Option<u64>, fresh: usize) -> Vec<Effect> {
        let mut effects = self.tell(Input::Read(Reading { used, kernel_kills }));
        if effects == [Effect::List] {
            effects = self.tell(Input::Found(fresh));
        }
        effects
    }

    fn wait(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }
}

#[test]
fn mt_1_899_of_1000_is_left_alone_and_901_is_shot() {
    let mut table = Table::new();
    assert_eq!(table.look(899_000, None, 3), []);
    assert_eq!(table.look(901_000, None, 3), [Effect::Fire(901_000), Effect::Kill]);
    assert_eq!(table.look(10, None, 0), [Effect::Clear, Effect::Done]);
    assert_eq!(table.wait(CALM).look(901_000, None, 1), [Effect::Fire(901_000), Effect::Kill], "another spike");
}

#[test]
fn a_spike_that_comes_soon_after_the_use_fell_is_another_kill() {
    let mut table = Table::new();
    table.look(950_000, None, 1);
    assert_eq!(table.wait(SETTLE).look(950_000, None, 1), [Effect::Kill, Effect::Clear, Effect::Done]);
    assert_eq!(table.wait(SETTLING).look(10, None, 0), []);
    assert_eq!(table.wait(CALM).look(950_000, None, 1), [Effect::Fire(950_000), Effect::Kill]);
}

#[test]
fn mt_2_what_was_forked_meanwhile_is_caught_by_the_second_pass_and_is_the_same_kill() {
    let mut table = Table::new();
    table.look(950_000, None, 1);
    assert_eq!(table.wait(SETTLING).look(950_000, None, 1), [], "the memory of the dead takes a moment to go");
    assert_eq!(table.wait(SETTLE).look(950_000, None, 1), [Effect::Kill, Effect::Clear, Effect::Done]);
    assert_eq!(table.wait(SETTLING).look(950_000, None, 1), [Effect::Kill, Effect::Clear], "of the same spike");
    assert_eq!(table.wait(SAME_SPIKE).look(950_000, None, 1), [Effect::Fire(950_000), Effect::Kill], "another one");
}

#[test]
fn mt_3_with_nothing_to_kill_it_clears_and_says_nothing() {
    let mut table = Table::new();
    for _ in 0..3 {
        assert_eq!(table.wait(NEAR).look(990_000, None, 0), [Effect::Clear]);
        assert_eq!(next_look(&table.gauge, &table.state), NEAR, "no busy loop");
    }
    assert_eq!(table.look(990_000, None, 1), [Effect::Fire(990_000), Effect::Kill], "what starts later is seen");
}

#[test]
fn mt_3_those_shot_before_are_no_news() {
    let mut table = Table::new();
    table.look(950_000, None, 1);
    table.wait(SETTLE).look(950_000, None, 0);
    assert_eq!(table.wait(SAME_SPIKE).look(950_000, None, 0), [Effect::Clear], "still dying");
}

#[test]
fn a12_a_kernel_kill_is_a_kill_and_is_said_once() {
    let mut table = Table::new();
    assert_eq!(table.look(5, Some(3), 2), [], "what was counted before us");
    assert_eq!(table.look(5, Some(3), 2), []);
    let shot = table.look(5, Some(4), 2);
    assert_eq!(shot, [Effect::Fire(LIMIT), Effect::Kill], "the rest dies too, and the peak is where the kernel kills");
    assert_eq!(table.look(5, Some(6), 0), [Effect::Clear, Effect::Done], "counted one by one");
    assert_eq!(table.look(5, Some(7), 0), [Effect::Clear]);
    assert_eq!(table.wait(CALM).look(5, Some(7), 0), []);
    assert_eq!(table.look(5, Some(8), 0), [Effect::Fire(LIMIT), Effect::Kill], "with nothing left it is said as well");
    table.gauge.kernel_limit = 700_000;
    let mut table = Table { state: State::default(), ..table };
    table.look(5, Some(1), 0);
    assert_eq!(table.look(5, Some(2), 0)[0], Effect::Fire(700_000));
}

#[test]
fn a_count_that_went_back_is_a_new_group_s() {
    let mut table = Table::new();
    table.look(5, Some(9), 0);
    assert_eq!(table.look(5, Some(0), 0), []);
    assert_eq!(table.look(5, None, 0), []);
    assert_eq!(table.look(5, Some(4), 0), []);
}

proptest! {
    #[test]
    fn m_05_every_kill_is_fired_once_done_once_and_in_order(
        looks in prop::collection::vec((0u64..1_200_000, 0u64..3, 0usize..3, 0u64..800), 1..200)
    ) {
        let (mut table, mut open, mut kernel) = (Table::new(), false, 0);
        for (used, more, fresh, wait) in looks {
            kernel += more / 2;
            table.wait(Duration::from_millis(wait));
            for effect in table.look(used, Some(kernel), fresh) {
                match effect {
                    Effect::Fire(peak) => {
                        prop_assert!(!open && peak >= LIMIT / 10 * 9);
                        open = true;
                    }
                    Effect::Done => {
                        prop_assert!(open);
                        open = false;
                    }
                    Effect::List => prop_assert!(false, "a list is answered"),
                    Effect::Kill | Effect::Clear => {}
                }
            }
            prop_assert!(next_look(&table.gauge, &table.state) <= super::super::pace::FAR);
        }
        // Whatever came, two looks end it.
        table.wait(SETTLE);
        let rest = [table.look(0, Some(kernel), 0), table.look(0, Some(kernel), 0)].concat();
        prop_assert_eq!(open, rest.contains(&Effect::Done));
    }
}
