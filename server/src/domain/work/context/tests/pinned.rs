//! What becomes of pins that are longer than the room that there is for them.

use super::*;

/// A turn that reads a file of so many lines.
fn reads(n: usize, lines: usize) -> Exchange {
    let text = format!("{n} begins\n{}{n} ends", "a line of the file\n".repeat(lines));
    exchange(n, "Read it", call(&format!("r{n}"), "read_file", json!({ "path": format!("{n}.rs") }), json!(text)))
}

/// These turns, and some after them that fill the room.
fn aged(mut turns: Vec<Exchange>) -> Vec<Exchange> {
    let first = turns.len();
    turns.extend((first..first + 12).map(|n| exchange(n, "Go on", vec![Part::text("wor ".repeat(900))])));
    turns
}

fn results(plan: &ContextPlan) -> Vec<(&str, &str)> {
    let parts = plan.turns.iter().flat_map(|turn| &turn.parts);
    let calls = parts.filter_map(|part| match part {
        TurnPart::ToolCall { call_id, result, .. } => Some((call_id.as_str(), result.as_str())),
        _ => None,
    });
    calls.collect()
}

#[test]
fn a_long_pin_is_cut_and_shorter_ones_stay_whole() {
    let turns = aged(vec![reads(0, 20), reads(1, 30), reads(2, 3_000), reads(3, 25)]);
    let pins = (0..4).map(|n| pinned(n, Some(&format!("r{n}"))));
    let plan = plan(&past(&turns, 4_000, pins.collect(), None), &settings(4_000));
    let found = results(&plan);
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["r0", "r1", "r2", "r3"]);
    for (n, (_, result)) in found.iter().enumerate() {
        assert!(result.starts_with(&format!("{n} begins")) && result.ends_with(&format!("{n} ends")), "{n}: {result}");
        assert_eq!(result.contains("tokens omitted]"), n == 2, "{n}: {result}");
    }
    let taken: u64 = found.iter().map(|(_, result)| protocol::tokens::estimate(result)).sum();
    assert!((1_500..=2_000).contains(&taken) && plan.total <= 4_000, "half of the room is used: {taken}");
    let cut: Vec<u64> = plan.messages.iter().filter(|message| message.pin_cut).map(|message| message.seq).collect();
    assert_eq!(cut, [6], "and it is said");
}

#[test]
fn a_long_message_that_is_pinned_leaves_its_ends() {
    let long = format!("It begins. {}It ends.", "wor ".repeat(6_000));
    let turns = aged(vec![reads(0, 20), exchange(1, "Tell me", vec![Part::text(long)])]);
    let pins = [pinned(0, Some("r0")), pinned(1, None)].into_iter().collect();
    let plan = plan(&past(&turns, 4_000, pins, None), &settings(4_000));
    let said = words(&plan);
    let told = said.iter().find(|said| said.contains("It begins.")).expect("the message");
    assert!(told.contains("tokens omitted]") && told.ends_with("It ends."), "{told}");
    assert!(results(&plan)[0].1.ends_with("0 ends"), "the older one is whole");
    assert!(plan.total <= 4_000);
}

#[test]
fn of_pins_without_room_even_for_their_ends_the_newest_stay_and_the_others_are_told() {
    let turns = aged((0..10).map(|n| reads(n, 200)).collect());
    let pins: Pins = (0..10).map(|n| pinned(n, Some(&format!("r{n}")))).collect();
    let plan = plan(&past(&turns, 500, pins, None), &settings(500));
    let found = results(&plan);
    assert!((1..10).contains(&found.len()) && found.iter().any(|(id, _)| *id == "r9"), "{found:?}");
    assert!(!found.iter().any(|(id, _)| *id == "r0"), "{found:?}");
    assert_eq!(plan.messages.iter().filter(|message| message.pin_cut).count(), 10);
    assert!(plan.total <= 500, "{}", plan.total);
}
