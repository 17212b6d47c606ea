//! Sessions, messages, tasks, attempts, events, read marks.

use protocol::{ErrorCode, MessageId, OperatorId, SessionId, TaskError, TaskResult, TeamId, Usage};
use server::{
    db::{DbError, Tx, attempts, commands, events, messages, purge, read_marks, sessions, tasks, usage, vibers},
    domain::{
        By, Committed, Delivery, Message, MessageRole, Operator, Part, TaskState, Waiting, WaitingFor, committed::Item,
    },
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(
    sessions_are_kept,
    a_version_rises_behind_its_sessions_lock,
    messages_are_kept,
    tasks_move_by_compare_and_set,
    attempts_are_kept,
    events_are_kept,
    many_runs_are_kept_and_counted_at_once,
);

async fn sessions_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let old = session(tx, &home, &lab, "Fix the 100% CPU_bug", NOW).await?;
    let new = session(tx, &home, &den, "Grüße aus ÄÖÜ", after(10)).await?;
    assert!(sessions::load(&mut tx.of(&far), &old).await?.is_none(), "foreign is unknown");
    let found = sessions::load(&mut tx.of(&home), &old).await?.expect("there");
    assert_eq!((found.last_seq, found.active_at, found.title.as_str()), (0, NOW, "Fix the 100% CPU_bug"));

    let operator = OperatorId::new(NOW.0);
    let any = sessions::SessionFilter::default();
    let all = sessions::list(&mut tx.of(&home), Some(&operator), &any, None, 10).await?;
    assert_eq!(all.iter().map(|line| line.session.id.clone()).collect::<Vec<_>>(), [new.clone(), old.clone()]);
    assert!(all.iter().all(|line| line.unread && line.task.is_none()));
    assert_eq!(all[0].viber_name, "den");
    assert!(!sessions::list(&mut tx.of(&home), None, &any, None, 10).await?[0].unread, "a token has read everything");
    assert!(sessions::list(&mut tx.of(&far), None, &any, None, 10).await?.is_empty());
    let rest = sessions::list(&mut tx.of(&home), None, &any, Some((after(10), &new)), 10).await?;
    assert_eq!(rest.len(), 1);

    for (title, count) in
        [("cpu_", 1), ("100%", 1), ("%", 1), ("_", 1), ("grüße", 1), ("äöü", 1), ("nothing", 0), ("", 2)]
    {
        let found =
            sessions::search(&mut tx.of(&home), sessions::TitleSearch { reader: None, filter: &any, title }, None, 10)
                .await?;
        assert_eq!((found.lines.len(), found.next), (count, None), "{title}");
    }
    let filter = sessions::SessionFilter { viber: Some(lab.clone()), ..Default::default() };
    assert_eq!(sessions::list(&mut tx.of(&home), None, &filter, None, 10).await?.len(), 1);

    let work = task(tx, &home, &old, "look", after(20)).await?;
    let line = sessions::list(&mut tx.of(&home), None, &any, None, 1).await?.remove(0);
    assert_eq!((line.session.id, line.task.expect("a task").id), (old.clone(), work.id), "active again, so on top");

    assert_eq!(sessions::reserve_seqs(&mut tx.change(&home, &By::board(), after(30)), &old, 2).await?, Some(3));
    assert!(sessions::touch(&mut tx.change(&home, &By::board(), after(25)), &old).await?);
    let found = sessions::load(&mut tx.of(&home), &old).await?.expect("there");
    assert_eq!((found.last_seq, found.active_at), (4, after(30)), "time does not go back");
    assert_eq!(sessions::reserve_seqs(&mut tx.change(&far, &By::board(), NOW), &old, 1).await?, None);

    sessions::entitle(&mut tx.of(&home), &old, "From its goal").await?;
    assert_eq!(sessions::load(&mut tx.of(&home), &old).await?.expect("there").title, "From its goal");
    assert!(sessions::rename(&mut tx.change(&home, &By::board(), after(31)), &old, "Another").await?);
    sessions::entitle(&mut tx.of(&home), &old, "From another goal").await?;
    assert!(sessions::set_pinned(&mut tx.of(&home), &old, Some(after(32))).await?);
    assert!(sessions::set_archived(&mut tx.of(&home), &old, Some(after(33))).await?);
    assert!(!sessions::rename(&mut tx.change(&far, &By::board(), NOW), &old, "Stolen").await?);
    assert!(!sessions::set_archived(&mut tx.of(&far), &old, None).await?);
    assert!(!sessions::set_pinned(&mut tx.of(&far), &old, None).await?);
    let found = sessions::load(&mut tx.of(&home), &old).await?.expect("there");
    assert_eq!(
        (found.title.as_str(), found.renamed_at, found.pinned_at, found.archived_at),
        ("Another", Some(after(31)), Some(after(32)), Some(after(33)))
    );
    let away = sessions::SessionFilter { archived: true, ..Default::default() };
    assert_eq!(sessions::list(&mut tx.of(&home), None, &away, None, 10).await?.len(), 1);
    assert_eq!(sessions::list(&mut tx.of(&home), None, &any, None, 10).await?.len(), 1);

    let operator = reader(tx).await?;
    read_marks::set(&mut tx.change(&home, &By::board(), after(5)), &operator, &new, 0).await?;
    assert!(
        sessions::list(&mut tx.of(&home), Some(&operator), &any, None, 1).await?[0].unread,
        "seen before the last news"
    );
    read_marks::set(&mut tx.change(&home, &By::board(), after(40)), &operator, &new, 0).await?;
    assert!(!sessions::list(&mut tx.of(&home), Some(&operator), &any, None, 1).await?[0].unread);

    assert!(!purge::hide_session(&mut tx.change(&far, &By::board(), NOW), &old).await?);
    assert!(purge::hide_session(&mut tx.change(&home, &By::board(), NOW), &old).await?);
    assert!(!purge::hide_session(&mut tx.change(&home, &By::board(), NOW), &old).await?, "once");
    assert!(sessions::load(&mut tx.of(&home), &old).await?.is_none());
    assert_eq!(sessions::reserve_seqs(&mut tx.change(&home, &By::board(), NOW), &old, 1).await?, None);
    assert_eq!(sessions::list(&mut tx.of(&home), None, &away, None, 10).await?.len(), 0);
    assert!(
        purge::is_session_deleted(&mut tx.of(&home), &old).await?
            && !purge::is_session_deleted(&mut tx.of(&far), &old).await?
    );
    assert_eq!(purge::sessions(tx, 10).await?, [(home.clone(), old.clone())]);
    while !purge::session(&mut tx.of(&home), &old).await? {}
    assert!(!purge::is_session_deleted(&mut tx.of(&home), &old).await? && purge::sessions(tx, 10).await?.is_empty());
    assert!(messages::page(&mut tx.of(&home), &old, None, 10).await?.is_empty(), "its messages went along");
    Ok(())
}

async fn a_version_rises_behind_its_sessions_lock(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let (talk, other) = (session(tx, &home, &lab, "talk", NOW).await?, session(tx, &home, &lab, "other", NOW).await?);
    let beginning = version(tx, &home, &talk).await?.expect("there");
    // All in one instant: the time of the last activity does not tell.
    sessions::reserve_seqs(&mut tx.change(&home, &By::board(), NOW), &talk, 1).await?;
    assert_eq!(version(tx, &home, &talk).await?, Some(beginning + 1));
    assert!(sessions::touch(&mut tx.change(&home, &By::board(), NOW), &talk).await?);
    assert_eq!(version(tx, &home, &talk).await?, Some(beginning + 2));
    assert!(sessions::lock(&mut tx.of(&home), &talk).await?);
    assert_eq!(version(tx, &home, &talk).await?, Some(beginning + 3));
    assert!(!sessions::lock(&mut tx.of(&far), &talk).await?);
    assert_eq!(version(tx, &home, &talk).await?, Some(beginning + 3), "others cannot lock it");
    assert_eq!(version(tx, &home, &other).await?, Some(beginning), "nobody locked this one");
    assert_eq!(version(tx, &far, &talk).await?, None, "foreign is unknown");
    let (found, _) = tx.of(&home).query(sessions::versioned_query(&talk)).await?.expect("there");
    assert_eq!(Some(found), sessions::load(&mut tx.of(&home), &talk).await?);
    assert!(purge::hide_session(&mut tx.change(&home, &By::board(), NOW), &talk).await?);
    assert_eq!(version(tx, &home, &talk).await?, None, "deleted");
    Ok(())
}

async fn version(tx: &mut Tx, team: &TeamId, id: &SessionId) -> Result<Option<u64>, DbError> {
    Ok(tx.of(team).query(sessions::versioned_query(id)).await?.map(|(_, version)| version))
}

async fn reader(tx: &mut Tx) -> Result<OperatorId, DbError> {
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

async fn messages_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let first = task(tx, &home, &talk, "question", NOW).await?;
    let answer = Message {
        id: MessageId::new(NOW.0),
        session_id: talk.clone(),
        seq: first.message_seq + 1,
        role: MessageRole::Assistant,
        author: "default".into(),
        task_id: first.id.clone(),
        attempt: 1,
        parts: Vec::new(),
        created_at: after(1),
    };
    messages::insert(&mut tx.of(&home), &answer).await?;
    let parts = [
        Part::Reasoning { text: "hm".into(), duration_ms: 5 },
        Part::text("answer ☃ \u{1F980}"),
        Part::ToolCall {
            call_id: "c".into(),
            tool: "shell".into(),
            args: serde_json::json!({"command": "ls"}),
            at: None,
        },
        Part::text("done"),
    ];
    messages::append(&mut tx.change(&home, &By::board(), after(2)), &answer.id, &parts[..2]).await?;
    messages::append(&mut tx.change(&home, &By::board(), after(3)), &answer.id, &parts[2..]).await?;
    assert_eq!(messages::parts(&mut tx.of(&home), &answer.id).await?, parts);
    assert_eq!(messages::load(&mut tx.of(&home), &answer.id).await?.expect("there").parts, parts);
    assert!(messages::load(&mut tx.of(&far), &answer.id).await?.is_none());
    assert!(messages::parts(&mut tx.of(&far), &answer.id).await?.is_empty());
    assert!(messages::is_said(&mut tx.of(&home), &answer.id).await?);

    let second = task(tx, &home, &talk, "again", after(10)).await?;
    let page = messages::page(&mut tx.of(&home), &talk, None, 2).await?;
    assert_eq!(page.iter().map(|message| message.seq).collect::<Vec<_>>(), [2, 3], "the newest, ascending");
    assert_eq!(page[0].parts.len(), 4);
    let page = messages::page(&mut tx.of(&home), &talk, Some(2), 10).await?;
    assert_eq!((page.len(), page[0].role), (1, MessageRole::User));
    assert!(messages::page(&mut tx.of(&far), &talk, None, 10).await?.is_empty());

    let past = |until| messages::past::PastRange { session: &talk, below: second.message_seq, until };
    let turns = tx.of(&home).query(messages::past::newest_query(past(after(10)))).await?;
    let [turn] = turns.as_slice() else { panic!("one turn: {turns:?}") };
    assert_eq!((turn.question.seq, turn.question.parts.as_slice()), (first.message_seq, &[Part::text("question")][..]));
    assert_eq!(turn.answer.id.as_ref(), Some(&answer.id));
    assert_eq!(turn.answer.parts, parts[1..], "without the reasoning");
    let earlier = tx.of(&home).query(messages::past::newest_query(past(after(2)))).await?;
    assert_eq!((earlier[0].question.parts.len(), earlier[0].answer.parts.len()), (1, 1), "as it was then");
    Ok(())
}

async fn tasks_move_by_compare_and_set(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let one = task(tx, &home, &talk, "one", NOW).await?;
    let two = task(tx, &home, &talk, "two", after(1)).await?;
    assert!(tasks::load(&mut tx.of(&far), &one.id).await?.is_none());
    assert_eq!(tasks::load(&mut tx.of(&home), &one.id).await?.expect("there"), one);
    assert!(tasks::is_taken(tx, &one.id).await? && !tasks::is_taken(tx, &protocol::TaskId::new(1)).await?);
    let state = |task: Option<server::domain::Task>| task.map(|task| (task.state, task.delivery)).expect("there");

    assert_eq!(tx.of(&home).query(tasks::next_queued_query(&talk)).await?.map(|task| task.id), Some(one.id.clone()));
    assert!(!tasks::is_busy(&mut tx.of(&home), &talk).await?);
    assert!(!tasks::offer(&mut tx.change(&home, &By::board(), NOW), &one.id, 2).await?, "of another attempt");
    assert!(tasks::offer(&mut tx.change(&home, &By::board(), after(2)), &one.id, 1).await?);
    assert!(!tasks::offer(&mut tx.change(&home, &By::board(), after(2)), &one.id, 1).await?, "once");
    assert!(tasks::is_busy(&mut tx.of(&home), &talk).await?);
    assert_eq!(tasks::place(&mut tx.of(&home), &two).await?, 1);
    assert!(tasks::accept(&mut tx.of(&home), &one.id, 1).await?);
    assert_eq!(state(tasks::load(&mut tx.of(&home), &one.id).await?), (TaskState::Pending, Some(Delivery::Accepted)));
    assert!(tasks::start(&mut tx.change(&home, &By::board(), after(3)), &one.id, 1, "lab/model").await?);
    assert!(!tasks::start(&mut tx.change(&home, &By::board(), after(3)), &one.id, 1, "lab/model").await?);
    assert_eq!(state(tasks::load(&mut tx.of(&home), &one.id).await?), (TaskState::Running, None));

    let waiting = Waiting { cause: WaitingFor::RateLimit, until: Some(after(9)), id: None, next: None };
    assert!(tasks::wait(&mut tx.of(&home), &one.id, 1, Some(&waiting)).await?);
    assert!(!tasks::wait(&mut tx.of(&home), &one.id, 1, Some(&waiting)).await?, "no news");
    assert_eq!(tasks::load(&mut tx.of(&home), &one.id).await?.expect("there").waiting, Some(waiting));
    assert!(tasks::wait(&mut tx.of(&home), &one.id, 1, None).await?);
    tasks::spend(&mut tx.of(&home), &one.id, 1, &Usage { input_tokens: 7, ..Default::default() }).await?;

    let open = tx.of(&home).query(tasks::open_of_session_query(&talk)).await?;
    assert_eq!(open.iter().map(|task| task.id.clone()).collect::<Vec<_>>(), [one.id.clone(), two.id.clone()]);
    assert_eq!(tasks::open_of_viber(&mut tx.of(&home), &lab, None, 10).await?.len(), 2);
    assert!(tasks::open_of_viber(&mut tx.of(&far), &lab, None, 10).await?.is_empty());
    let newest = tx.of(&home).query(tasks::newest_of_session_query(&talk)).await?;
    assert_eq!(newest.map(|task| task.id), Some(two.id.clone()));
    assert_eq!(tasks::of_messages(&mut tx.of(&home), &talk, 1, 2).await?.len(), 1);
    let running =
        tasks::TaskFilter { state: Some(TaskState::Running), session: Some(talk.clone()), viber: Some(lab.clone()) };
    assert_eq!(tasks::list(&mut tx.of(&home), &running, None, 10).await?.tasks.len(), 1);
    let newest = tasks::list(&mut tx.of(&home), &tasks::TaskFilter::default(), None, 1).await?.tasks.remove(0);
    let older = tasks::list(&mut tx.of(&home), &tasks::TaskFilter::default(), Some(&newest.id), 10).await?;
    assert_eq!(older.tasks.len(), 1);
    assert!(tasks::list(&mut tx.of(&far), &tasks::TaskFilter::default(), None, 10).await?.tasks.is_empty());

    let error =
        TaskError { code: ErrorCode::Lost, message: "silent".into(), retryable: true, suggestion: None, details: None };
    assert!(tasks::fail(&mut tx.change(&home, &By::board(), after(4)), &one.id, 1, &error, false).await?);
    let result = TaskResult { text: "late".into(), ..Default::default() };
    let completion = |adopted| tasks::TaskCompletion { result: &result, model: Some("other/model"), adopted };
    assert!(
        !tasks::complete(&mut tx.change(&home, &By::board(), after(5)), &one.id, 1, completion(false)).await?,
        "final"
    );
    assert!(
        tasks::complete(&mut tx.change(&home, &By::board(), after(5)), &one.id, 1, completion(true)).await?,
        "adopted"
    );
    let found = tasks::load(&mut tx.of(&home), &one.id).await?.expect("there");
    assert_eq!(
        (found.state, found.error, found.result.map(|result| result.text)),
        (TaskState::Completed, None, Some("late".into()))
    );
    assert_eq!((found.usage.input_tokens, found.model.as_deref()), (7, Some("lab/model")));

    let stop = |confirmed| tasks::TaskStop { by: "op", reason: "asked", confirmed };
    assert!(!tasks::stop(&mut tx.change(&home, &By::board(), after(6)), &one.id, 1, stop(false)).await?, "final");
    assert!(tasks::stop(&mut tx.change(&home, &By::board(), after(6)), &two.id, 1, stop(false)).await?);
    assert!(tasks::confirm_stop(&mut tx.change(&home, &By::board(), after(7)), &two.id, 1, None).await?);
    assert!(!tasks::confirm_stop(&mut tx.change(&home, &By::board(), after(8)), &two.id, 1, None).await?, "once");
    assert!(
        !tasks::again(&mut tx.change(&home, &By::board(), after(9)), &one.id, 1, true).await?,
        "completed is completed"
    );
    assert!(tasks::again(&mut tx.change(&home, &By::board(), after(9)), &two.id, 1, false).await?);
    let found = tasks::load(&mut tx.of(&home), &two.id).await?.expect("there");
    assert_eq!(
        (found.state, found.attempt, found.stop_confirmed_at, found.stopped_by),
        (TaskState::Pending, 2, None, None)
    );
    assert!(!tasks::accept(&mut tx.of(&home), &two.id, 1).await?, "the old attempt moves nothing");
    Ok(())
}

async fn attempts_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let work = task(tx, &home, &talk, "work", NOW).await?;
    assert!(attempts::load(&mut tx.of(&far), &work.id, 1).await?.is_none());
    assert!(attempts::open_of_viber(&mut tx.of(&home), &lab).await?.is_empty(), "not offered yet");
    let lease = vibers::at_work(tx).await?.remove(0);
    assert_eq!((&lease.id, &lease.team, lease.connected, lease.lost_after_ms), (&lab, &home, false, 900_000));
    let submit = commands::NewCommand { kind: "task:submit", attempt: Some((&work.id, 1)), body: "{}".into() };
    let cmd = commands::enqueue(&mut tx.change(&home, &By::board(), NOW), &lab, submit).await?.expect("a number");
    attempts::set_cmd_seq(&mut tx.of(&home), &work.id, 1, cmd).await?;
    let open = attempts::open_of_viber(&mut tx.of(&home), &lab).await?.remove(0);
    assert_eq!((open.attempt, open.newest, open.delivered, open.last_seq), (1, 1, false, 0));

    let message = MessageId::new(NOW.0);
    let step = |from, to| attempts::Advance {
        from,
        to,
        parts_seq: to - 1,
        open_weight: 7,
        message_id: Some(&message),
        started_at: Some(after(2)),
        end: None,
    };
    assert!(attempts::advance(&mut tx.change(&home, &By::board(), NOW), &work.id, 1, step(1, 3)).await?);
    assert!(
        !attempts::advance(&mut tx.change(&home, &By::board(), NOW), &work.id, 1, step(1, 3)).await?,
        "a duplicate"
    );
    assert!(!attempts::advance(&mut tx.change(&home, &By::board(), NOW), &work.id, 1, step(5, 6)).await?, "a gap");
    assert!(attempts::advance(&mut tx.change(&home, &By::board(), NOW), &work.id, 1, step(4, 4)).await?);
    let held = attempts::load_with_task(&mut tx.of(&home), &work.id, 1).await?.expect("there");
    assert_eq!((held.last_seq, held.parts_seq, held.newest, held.viber_id), (4, 3, 1, lab.clone()));
    assert_eq!(held.open_weight, 7);
    assert!(attempts::load_with_task(&mut tx.of(&far), &work.id, 1).await?.is_none());
    assert!(attempts::open_of_viber(&mut tx.of(&home), &lab).await?[0].delivered);

    let end = |outcome| attempts::AttemptEnd { outcome, superseded: false, report: None };
    assert!(attempts::end(&mut tx.change(&home, &By::board(), after(3)), &work.id, 1, end("lost")).await?);
    attempts::trimmed(&mut tx.change(&home, &By::board(), after(3)), &work.id, 1).await?;
    assert!(
        attempts::end(&mut tx.change(&home, &By::board(), after(4)), &work.id, 1, end("completed")).await?,
        "adopted"
    );
    assert!(!attempts::end(&mut tx.change(&home, &By::board(), after(5)), &work.id, 1, end("error")).await?, "final");
    let to_end = |from, to| attempts::Advance { end: Some(end("stopped")), ..step(from, to) };
    assert!(!attempts::advance(&mut tx.change(&home, &By::board(), NOW), &work.id, 1, to_end(5, 5)).await?, "final");
    attempts::insert(&mut tx.change(&home, &By::board(), after(6)), (&work.id, 2), &lab, 9, None).await?;
    let all = attempts::list(&mut tx.of(&home), &work.id).await?;
    assert_eq!(all.iter().map(|attempt| attempt.outcome.as_deref()).collect::<Vec<_>>(), [Some("completed"), None]);

    let begin = attempts::EndedPlace::default();
    assert!(attempts::stale(&mut tx.of(&home), after(4), &begin, 10).await?.is_empty(), "too young");
    let mut stale = attempts::stale(&mut tx.of(&home), after(100), &begin, 10).await?;
    assert_eq!(stale.len(), 1, "what it reported after it was lost is trimmed too");
    assert_eq!(stale[0].agent_id.as_deref(), Some("default"));
    assert!(attempts::stale(&mut tx.of(&far), after(100), &begin, 10).await?.is_empty());
    let range = attempts::EndedRange { after: begin.clone(), to: stale.remove(0).place() };
    assert!(attempts::stale(&mut tx.of(&home), after(100), &range.to, 10).await?.is_empty(), "none behind it");
    let item = |seq: u64| Item { seq, json: format!(r#"{{"seq":{seq},"type":"task:accepted"}}"#).into() };
    let run = Committed::new(work.id.clone(), 1, 1, (1..=4).map(item).collect());
    events::insert(&mut tx.change(&home, &By::board(), NOW), &run).await?;
    attempts::clear_in(&mut tx.of(&far), &range).await?;
    attempts::trimmed_in(&mut tx.change(&far, &By::board(), after(101)), &range).await?;
    assert!(attempts::runs_in(&mut tx.of(&far), &range).await?.is_empty());
    let runs = attempts::runs_in(&mut tx.of(&home), &range).await?;
    assert_eq!(runs.iter().map(|run| (&run.task, run.attempt, run.from)).collect::<Vec<_>>(), [(&work.id, 1, 1)]);
    attempts::clear_in(&mut tx.of(&home), &range).await?;
    assert!(attempts::runs_in(&mut tx.of(&home), &range).await?.is_empty());
    attempts::trimmed_in(&mut tx.change(&home, &By::board(), after(101)), &range).await?;
    assert!(attempts::stale(&mut tx.of(&home), after(200), &begin, 10).await?.is_empty());
    assert!(attempts::advance(&mut tx.change(&home, &By::board(), after(200)), &work.id, 2, to_end(1, 2)).await?);
    let second = attempts::load(&mut tx.of(&home), &work.id, 2).await?.expect("there");
    assert_eq!((second.last_seq, second.outcome.as_deref(), second.ended_at), (2, Some("stopped"), Some(after(200))));
    Ok(())
}

async fn events_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let work = task(tx, &home, &talk, "work", NOW).await?;
    // Bytes are kept as they came, odd spaces and all.
    let item = |seq: u64| Item { seq, json: format!(r#"{{"seq":{seq}, "type":"task:accepted","x":"ü"}}"#).into() };
    for (from, to) in [(1, 3), (4, 4), (5, 8)] {
        let run = Committed::new(work.id.clone(), 1, from, (from..=to).map(item).collect());
        events::insert(&mut tx.change(&home, &By::board(), NOW), &run).await?;
    }
    let seqs =
        |runs: Vec<Committed>| runs.iter().flat_map(|run| run.items.iter().map(|item| item.seq)).collect::<Vec<_>>();
    assert_eq!(seqs(events::after(&mut tx.of(&home), &work.id, 1, 0, 10).await?), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(seqs(events::after(&mut tx.of(&home), &work.id, 1, 2, 10).await?), [3, 4, 5, 6, 7, 8]);
    assert_eq!(seqs(events::after(&mut tx.of(&home), &work.id, 1, 6, 10).await?), [7, 8]);
    assert_eq!(seqs(events::after(&mut tx.of(&home), &work.id, 1, 3, 1).await?), [4]);
    assert!(events::after(&mut tx.of(&home), &work.id, 1, 8, 10).await?.is_empty());
    assert!(events::after(&mut tx.of(&home), &work.id, 2, 0, 10).await?.is_empty());
    assert!(events::after(&mut tx.of(&far), &work.id, 1, 0, 10).await?.is_empty());
    let more =
        |from: u64, json: &str| Committed::new(work.id.clone(), 1, from, vec![Item { seq: from, json: json.into() }]);
    let ninth = more(9, r#"{"seq":9,  "x":"ä"}"#);
    assert!(!events::append(&mut tx.of(&far), &ninth).await?);
    assert!(events::append(&mut tx.of(&home), &ninth).await?);
    assert!(!events::append(&mut tx.of(&home), &ninth).await?, "it is there");
    assert!(!events::append(&mut tx.of(&home), &more(11, r#"{"seq":11}"#)).await?, "it does not follow");
    let long = format!(r#"{{"seq":10,"x":"{}"}}"#, "y".repeat(4000));
    assert!(!events::append(&mut tx.of(&home), &more(10, &long)).await?, "it is large");
    let last = events::after(&mut tx.of(&home), &work.id, 1, 6, 10).await?;
    assert_eq!((last.len(), last[0].from, last[0].to), (1, 7, 9));
    assert_eq!(&*last[0].items[2].json, r#"{"seq":9,  "x":"ä"}"#);
    let first = events::after(&mut tx.of(&home), &work.id, 1, 0, 1).await?.remove(0);
    assert_eq!(&*first.items[0].json, r#"{"seq":1, "type":"task:accepted","x":"ü"}"#);
    let sizes = events::sizes(&mut tx.of(&home), &work.id, 1, 2).await?;
    assert_eq!(sizes.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [3, 4]);
    assert!(sizes[0].1 > 120, "{sizes:?}");
    assert_eq!(events::clear(&mut tx.of(&home), &work.id, 1, 4, 10).await?, 2, "none that ends later");
    assert_eq!(events::clear(&mut tx.of(&home), &work.id, 1, 8, 10).await?, 0);
    assert_eq!(events::clear(&mut tx.of(&home), &work.id, 1, 9, 10).await?, 1);
    assert!(events::sizes(&mut tx.of(&home), &work.id, 1, 2).await?.is_empty());
    Ok(())
}

async fn many_runs_are_kept_and_counted_at_once(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let work = task(tx, &home, &talk, "work", NOW).await?;
    let item = |seq: u64| Item { seq, json: format!(r#"{{"seq":{seq},"type":"task:accepted"}}"#).into() };
    let runs: Vec<_> = (1..=19).map(|seq| Committed::new(work.id.clone(), 1, seq, vec![item(seq)])).collect();
    events::insert_all(&mut tx.change(&home, &By::board(), NOW), &runs).await?;
    let kept = events::after(&mut tx.of(&home), &work.id, 1, 0, 30).await?;
    assert_eq!(
        kept.iter().map(|run| (run.from, run.to)).collect::<Vec<_>>(),
        (1..=19).map(|seq| (seq, seq)).collect::<Vec<_>>()
    );
    assert_eq!(usage::drift(&mut tx.of(&home)).await?, 0, "each is counted, and once");
    Ok(())
}
