//! Sessions, messages, tasks, attempts, events, read marks.

use protocol::{ErrorCode, MessageId, OperatorId, TaskError, TaskResult, Usage};
use server::{
    db::{Error, Tx, attempts, commands, events, messages, purge, read_marks, sessions, tasks},
    domain::{Author, Committed, Delivery, Message, Operator, Part, TaskState, Waiting, WaitingFor, committed::Item},
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(sessions_are_kept, messages_are_kept, tasks_move_by_compare_and_set, attempts_are_kept, events_are_kept);

async fn sessions_are_kept(tx: &mut Tx) -> Result<(), Error> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let old = session(tx, &home, &lab, "Fix the 100% CPU_bug", NOW).await?;
    let new = session(tx, &home, &den, "Grüße aus ÄÖÜ", after(10)).await?;
    assert!(sessions::load(tx, &far, &old).await?.is_none(), "foreign is unknown");
    let found = sessions::load(tx, &home, &old).await?.expect("there");
    assert_eq!((found.last_seq, found.active_at, found.title.as_str()), (0, NOW, "Fix the 100% CPU_bug"));

    let operator = OperatorId::new(NOW.0);
    let any = sessions::Filter::default();
    let all = sessions::list(tx, &home, Some(&operator), &any, None, 10).await?;
    assert_eq!(all.iter().map(|line| line.session.id.clone()).collect::<Vec<_>>(), [new.clone(), old.clone()]);
    assert!(all.iter().all(|line| line.unread && line.task.is_none()));
    assert_eq!(all[0].viber_name, "den");
    assert!(!sessions::list(tx, &home, None, &any, None, 10).await?[0].unread, "a token has read everything");
    assert!(sessions::list(tx, &far, None, &any, None, 10).await?.is_empty());
    let rest = sessions::list(tx, &home, None, &any, Some((after(10), &new)), 10).await?;
    assert_eq!(rest.len(), 1);

    for (title, count) in
        [("cpu_", 1), ("100%", 1), ("%", 1), ("_", 1), ("grüße", 1), ("äöü", 1), ("nothing", 0), ("", 2)]
    {
        let filter = sessions::Filter { title: Some(title.into()), ..Default::default() };
        assert_eq!(sessions::list(tx, &home, None, &filter, None, 10).await?.len(), count, "{title}");
    }
    let filter = sessions::Filter { viber: Some(lab.clone()), ..Default::default() };
    assert_eq!(sessions::list(tx, &home, None, &filter, None, 10).await?.len(), 1);

    let work = task(tx, &home, &old, "look", after(20)).await?;
    let line = sessions::list(tx, &home, None, &any, None, 1).await?.remove(0);
    assert_eq!((line.session.id, line.task.expect("a task").id), (old.clone(), work.id), "active again, so on top");

    assert_eq!(sessions::give_seqs(tx, &home, &old, 2, after(30)).await?, Some(3));
    assert!(sessions::touch(tx, &home, &old, after(25)).await?);
    let found = sessions::load(tx, &home, &old).await?.expect("there");
    assert_eq!((found.last_seq, found.active_at), (4, after(30)), "time does not go back");
    assert_eq!(sessions::give_seqs(tx, &far, &old, 1, NOW).await?, None);

    sessions::entitle(tx, &home, &old, "From its goal").await?;
    assert_eq!(sessions::load(tx, &home, &old).await?.expect("there").title, "From its goal");
    assert!(sessions::rename(tx, &home, &old, "Another", after(31)).await?);
    sessions::entitle(tx, &home, &old, "From another goal").await?;
    assert!(sessions::set_pinned(tx, &home, &old, Some(after(32))).await?);
    assert!(sessions::set_archived(tx, &home, &old, Some(after(33))).await?);
    assert!(!sessions::rename(tx, &far, &old, "Stolen", NOW).await?);
    assert!(!sessions::set_archived(tx, &far, &old, None).await?);
    assert!(!sessions::set_pinned(tx, &far, &old, None).await?);
    let found = sessions::load(tx, &home, &old).await?.expect("there");
    assert_eq!(
        (found.title.as_str(), found.renamed_at, found.pinned_at, found.archived_at),
        ("Another", Some(after(31)), Some(after(32)), Some(after(33)))
    );
    let away = sessions::Filter { archived: true, ..Default::default() };
    assert_eq!(sessions::list(tx, &home, None, &away, None, 10).await?.len(), 1);
    assert_eq!(sessions::list(tx, &home, None, &any, None, 10).await?.len(), 1);

    let operator = reader(tx).await?;
    read_marks::set(tx, &home, &operator, &new, 0, after(5)).await?;
    assert!(sessions::list(tx, &home, Some(&operator), &any, None, 1).await?[0].unread, "seen before the last news");
    read_marks::set(tx, &home, &operator, &new, 0, after(40)).await?;
    assert!(!sessions::list(tx, &home, Some(&operator), &any, None, 1).await?[0].unread);

    assert!(!purge::hide_session(tx, &far, &old, NOW).await?);
    assert!(purge::hide_session(tx, &home, &old, NOW).await?);
    assert!(!purge::hide_session(tx, &home, &old, NOW).await?, "once");
    assert!(sessions::load(tx, &home, &old).await?.is_none());
    assert_eq!(sessions::give_seqs(tx, &home, &old, 1, NOW).await?, None);
    assert_eq!(sessions::list(tx, &home, None, &away, None, 10).await?.len(), 0);
    assert!(purge::is_session_going(tx, &home, &old).await? && !purge::is_session_going(tx, &far, &old).await?);
    assert_eq!(purge::sessions(tx, 10).await?, [(home.clone(), old.clone())]);
    while !purge::session(tx, &home, &old).await? {}
    assert!(!purge::is_session_going(tx, &home, &old).await? && purge::sessions(tx, 10).await?.is_empty());
    assert!(messages::page(tx, &home, &old, None, 10).await?.is_empty(), "its messages went along");
    Ok(())
}

async fn reader(tx: &mut Tx) -> Result<OperatorId, Error> {
    let operator = Operator {
        id: OperatorId::new(NOW.0),
        email: "reader@example.org".into(),
        name: "Reader".into(),
        theme: "system".into(),
        disabled_at: None,
        created_at: NOW,
    };
    server::db::operators::insert(tx, &operator, "hash").await?;
    Ok(operator.id)
}

async fn messages_are_kept(tx: &mut Tx) -> Result<(), Error> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let first = task(tx, &home, &talk, "question", NOW).await?;
    let answer = Message {
        id: MessageId::new(NOW.0),
        session_id: talk.clone(),
        seq: first.message_seq + 1,
        role: Author::Assistant,
        author: "default".into(),
        task_id: first.id.clone(),
        attempt: 1,
        parts: Vec::new(),
        created_at: after(1),
    };
    messages::insert(tx, &home, &answer).await?;
    let parts = [
        Part::Reasoning { text: "hm".into(), duration_ms: 5 },
        Part::Text { text: "answer ☃ \u{1F980}".into() },
        Part::ToolCall { call_id: "c".into(), tool: "shell".into(), args: serde_json::json!({"command": "ls"}) },
        Part::Text { text: "done".into() },
    ];
    messages::append(tx, &home, &answer.id, &parts[..2], after(2)).await?;
    messages::append(tx, &home, &answer.id, &parts[2..], after(3)).await?;
    assert_eq!(messages::parts(tx, &home, &answer.id).await?, parts);
    assert_eq!(messages::load(tx, &home, &answer.id).await?.expect("there").parts, parts);
    assert!(messages::load(tx, &far, &answer.id).await?.is_none());
    assert!(messages::parts(tx, &far, &answer.id).await?.is_empty());
    assert!(messages::is_said(tx, &home, &answer.id).await?);

    let second = task(tx, &home, &talk, "again", after(10)).await?;
    let page = messages::page(tx, &home, &talk, None, 2).await?;
    assert_eq!(page.iter().map(|message| message.seq).collect::<Vec<_>>(), [2, 3], "the newest, ascending");
    assert_eq!(page[0].parts.len(), 4);
    let page = messages::page(tx, &home, &talk, Some(2), 10).await?;
    assert_eq!((page.len(), page[0].role), (1, Author::User));
    assert!(messages::page(tx, &far, &talk, None, 10).await?.is_empty());

    let history = messages::history(tx, &home, &talk, second.message_seq, after(10), 10).await?;
    assert_eq!(
        history.iter().map(|part| part.role).collect::<Vec<_>>(),
        [Author::User, Author::Assistant, Author::Assistant, Author::Assistant, Author::Assistant]
    );
    assert!(history.iter().all(|part| part.task_id == first.id && part.place == first.message_seq));
    let earlier = messages::history(tx, &home, &talk, second.message_seq, after(2), 10).await?;
    assert_eq!(earlier.iter().filter(|part| part.part.is_some()).count(), 3, "as it was then");
    Ok(())
}

async fn tasks_move_by_compare_and_set(tx: &mut Tx) -> Result<(), Error> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let one = task(tx, &home, &talk, "one", NOW).await?;
    let two = task(tx, &home, &talk, "two", after(1)).await?;
    assert!(tasks::load(tx, &far, &one.id).await?.is_none());
    assert_eq!(tasks::load(tx, &home, &one.id).await?.expect("there"), one);
    assert!(tasks::is_taken(tx, &one.id).await? && !tasks::is_taken(tx, &protocol::TaskId::new(1)).await?);
    let state = |task: Option<server::domain::Task>| task.map(|task| (task.state, task.delivery)).expect("there");

    assert_eq!(tasks::next_queued(tx, &home, &talk).await?.map(|task| task.id), Some(one.id.clone()));
    assert!(!tasks::is_busy(tx, &home, &talk).await?);
    assert!(!tasks::offer(tx, &home, &one.id, 2, NOW).await?, "of another attempt");
    assert!(tasks::offer(tx, &home, &one.id, 1, after(2)).await?);
    assert!(!tasks::offer(tx, &home, &one.id, 1, after(2)).await?, "once");
    assert!(tasks::is_busy(tx, &home, &talk).await?);
    assert_eq!(tasks::place(tx, &home, &two).await?, 1);
    assert!(tasks::accept(tx, &home, &one.id, 1).await?);
    assert_eq!(state(tasks::load(tx, &home, &one.id).await?), (TaskState::Pending, Some(Delivery::Accepted)));
    assert!(tasks::start(tx, &home, &one.id, 1, "lab/model", after(3)).await?);
    assert!(!tasks::start(tx, &home, &one.id, 1, "lab/model", after(3)).await?);
    assert_eq!(state(tasks::load(tx, &home, &one.id).await?), (TaskState::Running, None));

    let waiting = Waiting { cause: WaitingFor::RateLimit, until: Some(after(9)), id: None };
    assert!(tasks::wait(tx, &home, &one.id, 1, Some(&waiting)).await?);
    assert!(!tasks::wait(tx, &home, &one.id, 1, Some(&waiting)).await?, "no news");
    assert_eq!(tasks::load(tx, &home, &one.id).await?.expect("there").waiting, Some(waiting));
    assert!(tasks::wait(tx, &home, &one.id, 1, None).await?);
    tasks::spend(tx, &home, &one.id, 1, &Usage { input_tokens: 7, ..Default::default() }).await?;

    let open = tasks::open_of_session(tx, &home, &talk).await?;
    assert_eq!(open.iter().map(|task| task.id.clone()).collect::<Vec<_>>(), [one.id.clone(), two.id.clone()]);
    assert_eq!(tasks::open_of_viber(tx, &home, &lab, None, 10).await?.len(), 2);
    assert!(tasks::open_of_viber(tx, &far, &lab, None, 10).await?.is_empty());
    assert_eq!(tasks::newest_of_session(tx, &home, &talk).await?.map(|task| task.id), Some(two.id.clone()));
    assert_eq!(tasks::of_messages(tx, &home, &talk, 1, 2).await?.len(), 1);
    let running =
        tasks::Filter { state: Some(TaskState::Running), session: Some(talk.clone()), viber: Some(lab.clone()) };
    assert_eq!(tasks::list(tx, &home, &running, None, 10).await?.len(), 1);
    let newest = tasks::list(tx, &home, &tasks::Filter::default(), None, 1).await?.remove(0);
    assert_eq!(tasks::list(tx, &home, &tasks::Filter::default(), Some(&newest.id), 10).await?.len(), 1);
    assert!(tasks::list(tx, &far, &tasks::Filter::default(), None, 10).await?.is_empty());

    let error =
        TaskError { code: ErrorCode::Lost, message: "silent".into(), retryable: true, suggestion: None, details: None };
    assert!(tasks::fail(tx, &home, &one.id, 1, &error, false, after(4)).await?);
    let result = TaskResult { text: "late".into(), ..Default::default() };
    assert!(!tasks::complete(tx, &home, &one.id, 1, &result, false, after(5)).await?, "final");
    assert!(tasks::complete(tx, &home, &one.id, 1, &result, true, after(5)).await?, "adopted");
    let found = tasks::load(tx, &home, &one.id).await?.expect("there");
    assert_eq!(
        (found.state, found.error, found.result.map(|result| result.text)),
        (TaskState::Completed, None, Some("late".into()))
    );
    assert_eq!((found.usage.input_tokens, found.model.as_deref()), (7, Some("lab/model")));

    let stop = |confirmed| tasks::Stop { by: "op", reason: "asked", confirmed };
    assert!(!tasks::stop(tx, &home, &one.id, 1, stop(false), after(6)).await?, "final");
    assert!(tasks::stop(tx, &home, &two.id, 1, stop(false), after(6)).await?);
    assert!(tasks::confirm_stop(tx, &home, &two.id, 1, None, after(7)).await?);
    assert!(!tasks::confirm_stop(tx, &home, &two.id, 1, None, after(8)).await?, "once");
    assert!(!tasks::again(tx, &home, &one.id, 1, true, after(9)).await?, "completed is completed");
    assert!(tasks::again(tx, &home, &two.id, 1, false, after(9)).await?);
    let found = tasks::load(tx, &home, &two.id).await?.expect("there");
    assert_eq!(
        (found.state, found.attempt, found.stop_confirmed_at, found.stopped_by),
        (TaskState::Pending, 2, None, None)
    );
    assert!(!tasks::accept(tx, &home, &two.id, 1).await?, "the old attempt moves nothing");
    Ok(())
}

async fn attempts_are_kept(tx: &mut Tx) -> Result<(), Error> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let work = task(tx, &home, &talk, "work", NOW).await?;
    assert!(attempts::load(tx, &far, &work.id, 1).await?.is_none());
    assert!(attempts::open_of_viber(tx, &home, &lab).await?.is_empty(), "not offered yet");
    let submit = commands::New { kind: "task:submit", attempt: Some((&work.id, 1)), body: "{}".into() };
    let cmd = commands::give(tx, &home, &lab, submit, NOW).await?.expect("a number");
    attempts::set_cmd_seq(tx, &home, &work.id, 1, cmd).await?;
    let open = attempts::open_of_viber(tx, &home, &lab).await?.remove(0);
    assert_eq!((open.attempt, open.newest, open.delivered, open.last_seq), (1, 1, false, 0));

    let message = MessageId::new(NOW.0);
    let step = |from, to| attempts::Advance {
        from,
        to,
        parts_seq: to - 1,
        message_id: Some(&message),
        started_at: Some(after(2)),
    };
    assert!(attempts::advance(tx, &home, &work.id, 1, &step(1, 3)).await?);
    assert!(!attempts::advance(tx, &home, &work.id, 1, &step(1, 3)).await?, "a duplicate");
    assert!(!attempts::advance(tx, &home, &work.id, 1, &step(5, 6)).await?, "a gap");
    assert!(attempts::advance(tx, &home, &work.id, 1, &step(4, 4)).await?);
    let held = attempts::held(tx, &home, &work.id, 1).await?.expect("there");
    assert_eq!((held.last_seq, held.parts_seq, held.newest, held.viber_id), (4, 3, 1, lab.clone()));
    assert!(attempts::held(tx, &far, &work.id, 1).await?.is_none());
    assert!(attempts::open_of_viber(tx, &home, &lab).await?[0].delivered);

    let end = |outcome| attempts::End { outcome, superseded: false, report: None };
    assert!(attempts::end(tx, &home, &work.id, 1, end("lost"), after(3)).await?);
    assert!(attempts::end(tx, &home, &work.id, 1, end("completed"), after(4)).await?, "adopted");
    assert!(!attempts::end(tx, &home, &work.id, 1, end("error"), after(5)).await?, "final");
    attempts::insert(tx, &home, (&work.id, 2), &lab, 9, after(6)).await?;
    let all = attempts::list(tx, &home, &work.id).await?;
    assert_eq!(all.iter().map(|attempt| attempt.outcome.as_deref()).collect::<Vec<_>>(), [Some("completed"), None]);
    assert_eq!(attempts::stale(tx, &home, after(100), 10).await?.len(), 1);
    assert!(attempts::stale(tx, &far, after(100), 10).await?.is_empty());
    attempts::trimmed(tx, &home, &work.id, 1, after(101)).await?;
    assert!(attempts::stale(tx, &home, after(200), 10).await?.is_empty());
    Ok(())
}

async fn events_are_kept(tx: &mut Tx) -> Result<(), Error> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let work = task(tx, &home, &talk, "work", NOW).await?;
    // Bytes are kept as they came, odd spaces and all.
    let item = |seq: u64| Item { seq, json: format!(r#"{{"seq":{seq}, "type":"task:accepted","x":"ü"}}"#).into() };
    for (from, to) in [(1, 3), (4, 4), (5, 8)] {
        let run = Committed::new(work.id.clone(), 1, from, (from..=to).map(item).collect());
        events::insert(tx, &home, &run, NOW).await?;
    }
    let seqs =
        |runs: Vec<Committed>| runs.iter().flat_map(|run| run.items.iter().map(|item| item.seq)).collect::<Vec<_>>();
    assert_eq!(seqs(events::after(tx, &home, &work.id, 1, 0, 10).await?), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(seqs(events::after(tx, &home, &work.id, 1, 2, 10).await?), [3, 4, 5, 6, 7, 8]);
    assert_eq!(seqs(events::after(tx, &home, &work.id, 1, 6, 10).await?), [7, 8]);
    assert_eq!(seqs(events::after(tx, &home, &work.id, 1, 3, 1).await?), [4]);
    assert!(events::after(tx, &home, &work.id, 1, 8, 10).await?.is_empty());
    assert!(events::after(tx, &home, &work.id, 2, 0, 10).await?.is_empty());
    assert!(events::after(tx, &far, &work.id, 1, 0, 10).await?.is_empty());
    let first = events::after(tx, &home, &work.id, 1, 0, 1).await?.remove(0);
    assert_eq!(&*first.items[0].json, r#"{"seq":1, "type":"task:accepted","x":"ü"}"#);
    let sizes = events::sizes(tx, &home, &work.id, 1, 2).await?;
    assert_eq!(sizes.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [3, 4]);
    assert!(sizes[0].1 > 120, "{sizes:?}");
    assert_eq!(events::clear(tx, &home, &work.id, 1, 4, 10).await?, 2, "none that ends later");
    assert_eq!(events::clear(tx, &home, &work.id, 1, 8, 10).await?, 1);
    assert!(events::sizes(tx, &home, &work.id, 1, 2).await?.is_empty());
    Ok(())
}
