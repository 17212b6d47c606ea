//! What becomes of conversations that are too long, by example and by properties.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Of a conversation in which nothing is pinned.
fn prune(messages: &[Message], caps: &ResultCaps, room: ConversationRoom) -> Option<PrunedConversation> {
    super::prune(messages, caps, room, &CallMarks::default())
}

fn user(text: &str) -> Message {
    Message::User(text.to_owned())
}

/// An answer with calls, followed by their results.
fn answer(text: &str, calls: &[(&str, &str, Value, String)]) -> Vec<Message> {
    let made = calls.iter().map(|(id, name, args, _)| ToolCall {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        args: Ok(args.clone()),
    });
    let said = AssistantMessage { text: text.to_owned(), calls: made.collect(), reasoning: Vec::new() };
    let results = calls.iter().map(|(id, name, _, result)| Message::Tool {
        call_id: (*id).to_owned(),
        tool: (*name).to_owned(),
        content: result.clone(),
        ok: true,
        pictures: vec![],
    });
    std::iter::once(Message::Assistant(said)).chain(results).collect()
}

/// `count` answers, each with one call whose result takes 1,000 tokens.
fn long(count: usize) -> Vec<Message> {
    let call = |n: usize| {
        let id = format!("c{n}");
        answer("", &[(&id, "shell", json!({ "command": format!("cat {n}") }), format!("{}\n", n % 10).repeat(500))])
    };
    std::iter::once(user("Do it")).chain((0..count).flat_map(call)).collect()
}

fn results(messages: &[Message]) -> Vec<(&str, &str)> {
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool { call_id, content, .. } => Some((call_id.as_str(), content.as_str())),
        _ => None,
    });
    results.collect()
}

#[test]
fn the_oldest_results_become_lines_first() {
    let messages = long(40);
    let caps = ResultCaps::default();
    assert_eq!(prune(&messages, &caps, ConversationRoom { goal: 50_000, limit: 60_000 }), None);
    let pruned = prune(&messages, &caps, ConversationRoom { goal: 15_000, limit: 30_000 }).expect("too long");
    assert_eq!((pruned.lines, pruned.cut, pruned.left_out), (40 - 1 - 12, 0, 0));
    let now = results(&pruned.messages);
    assert_eq!(now[0], ("c0", r#"[tool: shell("cat 0") → done, 500 lines; callId c0]"#));
    assert_eq!(now[27..], results(&messages)[27..]);
    let whole: Vec<(&str, &str)> = pruned.shortened.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect();
    assert_eq!(whole, results(&messages)[..27]);
    let saved = conversation_tokens(&messages) - conversation_tokens(&pruned.messages);
    assert_eq!(pruned.freed, saved);
}

#[test]
fn the_oldest_calls_are_left_out_with_their_results_and_what_was_said_stays() {
    let mut messages = long(300);
    messages.insert(5, user("And quickly"));
    messages.extend(answer("Now the last one.", &[("c", "shell", json!({ "command": "ls" }), "a\n".repeat(100))]));
    let caps = ResultCaps::default();
    let pruned = prune(&messages, &caps, ConversationRoom { goal: 1_500, limit: 3_000 }).expect("too long");
    assert!(conversation_tokens(&pruned.messages) <= 1_500);
    assert_eq!(results(&pruned.messages).last(), results(&messages).last(), "the newest one is whole");
    let note = |count: usize| user(&format!("{LEFT_OUT_START}{count}]"));
    assert!(pruned.left_out > 200, "{}", pruned.left_out);
    assert_eq!(pruned.messages[..3], [user("Do it"), note(pruned.left_out), user("And quickly")]);
    // Further on there is still one note, which counts all of them.
    let mut more = pruned.messages.clone();
    more.extend(long(300).into_iter().skip(1));
    let again = prune(&more, &caps, ConversationRoom { goal: 1_500, limit: 3_000 }).expect("too long again");
    assert_eq!(again.messages[1], note(pruned.left_out + again.left_out));
    assert_eq!(again.messages.iter().filter(|message| matches!(message, Message::User(_))).count(), 3);
}

#[test]
fn newest_checks_stay_longer_than_other_results() {
    let check = answer("", &[("t", "shell", json!({ "command": "cargo test" }), "ok\n".repeat(300))]);
    let mut messages = vec![user("Do it")];
    messages.extend(check.clone());
    messages.extend(long(60).into_iter().skip(1));
    let pruned = prune(&messages, &ResultCaps::default(), ConversationRoom { goal: 8_000, limit: 16_000 });
    let pruned = pruned.expect("too long");
    assert_eq!(pruned.messages[1..3], check);
    assert!(results(&pruned.messages)[1].1.starts_with("[tool: shell("));
}

#[test]
fn what_people_pinned_is_never_made_shorter() {
    let written = json!({ "path": "a.rs", "content": "x".repeat(2_000) });
    let mut messages = vec![user("Do it")];
    messages.extend(answer("", &[("p", "write_file", written, "p\n".repeat(1_000))]));
    messages.extend(long(300).into_iter().skip(1));
    let pinned = HashSet::from(["p", "c7", "c299"].map(str::to_owned));
    let marks = CallMarks { pinned: pinned.clone(), ..CallMarks::default() };
    let caps = ResultCaps { tokens: 100, ..ResultCaps::default() };
    for room in [ConversationRoom { goal: 9_000, limit: 12_000 }, ConversationRoom { goal: 10, limit: 20 }] {
        let pruned = super::prune(&messages, &caps, room, &marks).expect("too long");
        assert_eq!(pruned.messages[1..3], messages[1..3]);
        for (id, text) in results(&messages).into_iter().filter(|(id, _)| pinned.contains(*id)) {
            assert!(results(&pruned.messages).contains(&(id, text)), "{id} in {room:?}");
        }
        assert!(pruned.left_out > 30 && !pruned.shortened.iter().any(|(id, _)| pinned.contains(id)), "{room:?}");
        let again = super::prune(&pruned.messages, &caps, room, &marks);
        assert_eq!(again, None, "there is nothing more to be had");
    }
}

#[test]
fn nobody_is_told_to_read_again_what_is_kept_nowhere() {
    let check = answer("", &[("t", "shell", json!({ "command": "cargo test" }), "ok\n".repeat(1_500))]);
    let mut messages = vec![user("Do it")];
    messages.extend(check);
    messages.extend(long(60).into_iter().skip(1));
    let marks = CallMarks { lost: HashSet::from(["t", "c3"].map(str::to_owned)), ..CallMarks::default() };
    let room = ConversationRoom { goal: 5_000, limit: 10_000 };
    let pruned = super::prune(&messages, &ResultCaps::default(), room, &marks).expect("too long");
    let now = results(&pruned.messages);
    assert_eq!(now[4], ("c3", r#"[tool: shell("cat 3") → done, 500 lines]"#));
    assert_eq!(now[5], ("c4", r#"[tool: shell("cat 4") → done, 500 lines; callId c4]"#));
    assert!(now[0].1.contains(" tokens omitted]\n") && !now[0].1.contains("callId"), "{}", now[0].1);
    let is_told = |id: &str| pruned.shortened.iter().any(|(shortened, _)| shortened == id);
    assert!(is_told("t") && is_told("c3"), "they are shorter all the same");
}

#[test]
fn the_newest_answers_results_are_cut_only_for_the_limit() {
    let big = |id: &'static str| (id, "grep", json!({ "pattern": "x" }), format!("{id} line\n").repeat(2_000));
    let mut messages = long(3);
    messages.extend(answer("", &[big("a"), big("b")]));
    let caps = ResultCaps { tokens: 7_000, ..ResultCaps::default() };
    let limit = conversation_tokens(&messages) - 1_000;
    let kept = prune(&messages, &caps, ConversationRoom { goal: 4_000, limit }).expect("the older ones");
    assert_eq!(results(&kept.messages)[3..], results(&messages)[3..]);
    let cut = prune(&messages, &caps, ConversationRoom { goal: 4_000, limit: 9_000 }).expect("these too");
    assert!(conversation_tokens(&cut.messages) <= 9_000 && cut.cut == 2, "{cut:?}");
    for (id, text) in results(&cut.messages) {
        assert!(
            text.contains(" tokens omitted]\n") && text.contains(&format!("callId {id:?} reads all of it]")),
            "{text}"
        );
    }
}

#[test]
fn pictures_go_with_the_words_of_their_results() {
    let mut messages = long(30);
    let count = |messages: &[Message]| messages.iter().map(|message| message.pictures().len()).collect::<Vec<_>>();
    for at in [2, 4, 60] {
        let Message::Tool { pictures, .. } = &mut messages[at] else { panic!("a result") };
        pictures.extend(["/a.png", "/b.png"].map(|path| crate::model::testing::picture(path, None)));
    }
    assert_eq!(conversation_tokens(&messages) - conversation_tokens(&long(30)), 6 * crate::model::PICTURE_TOKENS);
    let marks = CallMarks { pinned: HashSet::from(["c1".to_owned()]), ..CallMarks::default() };
    let room = ConversationRoom { goal: 15_000, limit: 30_000 };
    let pruned = super::prune(&messages, &ResultCaps::default(), room, &marks).expect("too long");
    let kept = count(&pruned.messages);
    assert_eq!((kept[2], kept[4], kept[60], pruned.pictures), (0, 2, 2, 2));
    // The newest answer's go before its words are cut to little.
    let room = ConversationRoom { goal: 100, limit: 200 };
    let pruned = super::prune(&messages, &ResultCaps::default(), room, &CallMarks::default()).expect("too long");
    assert_eq!(count(&pruned.messages).iter().sum::<usize>(), 0);
}

#[test]
fn long_arguments_go_before_the_newest_answer_is_touched() {
    let write = |id: &'static str| {
        (id, "write_file", json!({ "path": "a.rs", "content": "x".repeat(20_000) }), "Created a.rs".to_owned())
    };
    let mut messages = vec![user("Do it")];
    for id in ["a", "b", "c"] {
        messages.extend(answer("Writing.", &[write(id)]));
    }
    let pruned = prune(&messages, &ResultCaps::default(), ConversationRoom { goal: 7_000, limit: 9_000 });
    let pruned = pruned.expect("too long");
    assert_eq!((pruned.short_arguments, pruned.lines, pruned.shortened.len()), (2, 0, 0));
    assert_eq!(pruned.messages[5..], messages[5..]);
    let Message::Assistant(first) = &pruned.messages[1] else { panic!("an answer") };
    assert!(first.calls[0].object()["content"].as_str().is_some_and(|text| text.len() <= 256));
}

/// Conversations as they come about: people say something, the model answers, with calls or without.
fn any_conversation() -> impl Strategy<Value = Vec<Message>> {
    let tool = prop::sample::select(vec!["read_file", "shell", "write_file", "read_output", "other"]);
    let args = prop::sample::select(vec![
        json!({}),
        json!({ "path": "a.rs" }),
        json!({ "command": "cargo test" }),
        json!({ "command": "ls" }),
        json!({ "path": "b", "content": "y".repeat(900) }),
        json!({ "steps": vec!["a step"; 200] }),
    ]);
    let text =
        prop_oneof!["[a-z\n]{0,40}", ("[ -~\n]{1,20}", 1usize..200).prop_map(|(text, times)| text.repeat(times))];
    let calls = prop::collection::vec((tool, args, text), 0..4);
    let said = prop_oneof![Just(String::new()), "[a-z ]{1,60}"];
    prop::collection::vec((prop::option::weighted(0.2, "[a-z ]{1,60}"), said, calls), 0..30).prop_map(|turns| {
        let mut messages = Vec::new();
        for (n, (asked, said, calls)) in turns.into_iter().enumerate() {
            messages.extend(asked.map(Message::User));
            let ids: Vec<String> = (0..calls.len()).map(|i| format!("c{n}_{i}")).collect();
            let calls: Vec<_> =
                calls.into_iter().zip(&ids).map(|((tool, args, text), id)| (id.as_str(), tool, args, text)).collect();
            messages.extend(answer(&said, &calls));
        }
        messages
    })
}

/// Everything that was said, without white space, and who said it.
fn words(messages: &[Message]) -> (Vec<String>, String) {
    let (mut asked, mut said) = (Vec::new(), String::new());
    for message in messages {
        match message {
            Message::User(text) if left_out_before(text).is_none() => asked.push(text.clone()),
            Message::Assistant(answer) => said.extend(answer.text.split_whitespace()),
            _ => {}
        }
    }
    (asked, said)
}

/// Every call has its result behind its answer, in order.
fn assert_paired(messages: &[Message]) -> Result<(), TestCaseError> {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message {
            Message::Tool { call_id, .. } => {
                prop_assert!(!open.is_empty(), "a result without a call: {}", call_id);
                prop_assert_eq!(open.remove(0), call_id.as_str());
            }
            _ => prop_assert!(open.is_empty(), "calls without results: {:?}", open),
        }
        if let Message::Assistant(said) = message {
            open = said.calls.iter().map(|call| call.id.as_str()).collect();
        }
    }
    prop_assert!(open.is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn less_is_carried_of_calls_alone_and_as_little_less_as_possible(
        messages in any_conversation(), goal in 0u64..6_000, more in 0u64..6_000, cap in 16u64..2_000,
    ) {
        let caps = ResultCaps { tokens: cap, ..ResultCaps::default() };
        let room = ConversationRoom { goal, limit: goal + more };
        let now = conversation_tokens(&messages);
        let conversation = Conversation::of(&messages, &CallMarks::default());
        let least = now.saturating_sub(conversation.shortened(&caps, LAST_RUNG, u64::MAX).freed);
        let pruned = prune(&messages, &caps, room);
        let after = pruned.as_ref().map_or(&messages, |pruned| &pruned.messages);
        let tokens = conversation_tokens(after);

        assert_paired(after)?;
        prop_assert_eq!(words(after), words(&messages));
        prop_assert!(tokens <= now);
        prop_assert!(pruned.is_none() || now > room.limit);
        let is_too_long = now > room.limit && tokens > room.goal;
        prop_assert!(!is_too_long || least > room.goal, "{} of {}, at least {}", tokens, room.goal, least);
        prop_assert!(tokens <= room.limit || least > room.limit);
        if least <= room.limit && pruned.is_some() {
            let newest = conversation.calls[conversation.newest..].iter();
            let newest: Vec<_> = newest.map(|call| (call.call.id.clone(), call.within(&caps))).collect();
            let kept = results(after).into_iter().map(|(id, text)| (id.to_owned(), text.to_owned()));
            prop_assert!(kept.collect::<Vec<_>>().ends_with(&newest));
        }
        let again = prune(after, &caps, room);
        prop_assert!(again.is_none(), "{:?}", again);
        let lower = ConversationRoom { goal: goal / 2, limit: room.limit };
        let less = prune(&messages, &caps, lower).map_or(now, |pruned| conversation_tokens(&pruned.messages));
        prop_assert!(less <= tokens || least > lower.goal, "{} > {}", less, tokens);
    }
}
