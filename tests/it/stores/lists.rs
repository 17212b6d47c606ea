//! Lists: each filter finds the same rows in the same order, page by page, whichever index it reads.

use std::collections::BTreeMap;

use protocol::{Instant, MessageId, SessionId, TaskId, TeamId, ViberId};
use server::{
    db::{DbError, Tx, commands, messages, sessions, tasks, vibers},
    domain::{By, Message, MessageRole, Part, Task, TaskState, ViberFilter},
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(
    sessions_are_listed_by_any_filter,
    tasks_are_listed_by_any_filter,
    completed_tasks_are_found_behind_a_great_many_others,
    messages_are_read_in_bounded_pages,
    vibers_that_are_ready_are_found,
    vibers_are_listed_by_any_filter,
    commands_are_forgotten_when_nobody_needs_them,
);

async fn sessions_are_listed_by_any_filter(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let mut all: Vec<(SessionId, bool, &ViberId, bool)> = Vec::new();
    for n in 0..12 {
        let (on, named) = (if n % 3 == 0 { &lab } else { &den }, n % 2 == 0);
        // Four of them were active at the same time.
        let at = after(if (4..8).contains(&n) { 5 } else { n });
        let id = session(tx, &home, on, if named { "Needle" } else { "Hay" }, at).await?;
        let is_archived = n % 4 == 1;
        if is_archived {
            sessions::set_archived(&mut tx.of(&home), &id, Some(after(90))).await?;
        }
        all.push((id, is_archived, on, named));
    }
    let theirs = viber(tx, &far, "theirs").await?;
    session(tx, &far, &theirs, "Needle", NOW).await?;
    for archived in [false, true] {
        for on in [None, Some(&lab), Some(&den)] {
            for title in ["", "NEEDLE"] {
                let filter = sessions::SessionFilter { archived, viber: on.cloned(), ..Default::default() };
                let found = found(tx, &home, &filter, title).await?;
                assert!(found.is_sorted_by(|one, two| one > two), "{filter:?}: {found:?}");
                let mut found: Vec<SessionId> = found.into_iter().map(|(_, id)| id).collect();
                let fits = |row: &&(SessionId, bool, &ViberId, bool)| {
                    row.1 == archived && on.is_none_or(|on| on == row.2) && (title.is_empty() || row.3)
                };
                let mut due: Vec<SessionId> = all.iter().filter(fits).map(|row| row.0.clone()).collect();
                found.sort();
                due.sort();
                assert_eq!(found, due, "{filter:?}");
            }
        }
    }
    Ok(())
}

/// What a search finds page by page, two of a page.
pub(super) async fn found(
    tx: &mut Tx,
    team: &TeamId,
    filter: &sessions::SessionFilter,
    title: &str,
) -> Result<Vec<(Instant, SessionId)>, DbError> {
    let (mut found, mut cursor): (_, Option<(Instant, SessionId)>) = (Vec::new(), None);
    loop {
        let before = cursor.as_ref().map(|(at, id)| (*at, id));
        let page = sessions::search(&mut tx.of(team), sessions::TitleSearch { reader: None, filter, title }, before, 2)
            .await?;
        found.extend(page.lines.into_iter().map(|line| (line.session.active_at, line.session.id)));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(found),
        }
    }
}

async fn tasks_are_listed_by_any_filter(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let (one, two) = (session(tx, &home, &lab, "one", NOW).await?, session(tx, &home, &den, "two", NOW).await?);
    let states = [TaskState::Pending, TaskState::Running, TaskState::Completed, TaskState::Error, TaskState::Stopped];
    let mut all: Vec<Task> = Vec::new();
    for n in 0..20 {
        let mut made = task(tx, &home, if n % 3 == 0 { &one } else { &two }, "goal", after(n)).await?;
        made.state = states[(n as usize) % states.len()];
        let sql = "UPDATE tasks SET state = $2 WHERE task_id = $1";
        tx.execute(sql, server::args![&made.id, made.state]).await?;
        all.push(made);
    }
    let theirs = viber(tx, &far, "theirs").await?;
    let foreign = session(tx, &far, &theirs, "theirs", NOW).await?;
    task(tx, &far, &foreign, "goal", NOW).await?;
    for state in [None].into_iter().chain(states.map(Some)) {
        for on in [None, Some(&lab), Some(&den)] {
            for of in [None, Some(&one), Some(&two)] {
                let filter = tasks::TaskFilter { state, session: of.cloned(), viber: on.cloned() };
                let mut found: Vec<TaskId> = Vec::new();
                loop {
                    let page = tasks::list(&mut tx.of(&home), &filter, found.last(), 3).await?;
                    assert_eq!(page.goes_on_behind, None, "few are looked at");
                    if page.tasks.is_empty() {
                        break;
                    }
                    found.extend(page.tasks.into_iter().map(|task| task.id));
                }
                let fits = |task: &&Task| {
                    state.is_none_or(|state| state == task.state)
                        && on.is_none_or(|on| *on == task.viber_id)
                        && of.is_none_or(|of| *of == task.session_id)
                };
                let due: Vec<TaskId> = all.iter().rev().filter(fits).map(|task| task.id.clone()).collect();
                assert_eq!(found, due, "{filter:?}");
            }
        }
    }
    Ok(())
}

async fn completed_tasks_are_found_behind_a_great_many_others(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let hex = if tx.is_sqlite() { "printf('%032x', i)" } else { "lpad(to_hex(i), 32, '0')" };
    // The oldest one is completed; all that came after it failed.
    let many = format!(
        "INSERT INTO tasks (team_id, task_id, session_id, viber_id, agent_id, message_id, message_seq, goal, state, attempt, \
         created_by, created_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) \
         SELECT '{home}', 'task_' || {hex}, '{talk}', '{lab}', 'default', 'msg_' || {hex}, i, 'goal', \
         CASE WHEN i = 1 THEN 'completed' ELSE 'error' END, 1, 'op', 1 FROM n"
    );
    tx.execute(Box::leak(many.into_boxed_str()), &[]).await?;
    let filter =
        tasks::TaskFilter { state: Some(TaskState::Completed), viber: Some(lab.clone()), ..Default::default() };
    let (mut cursor, mut pages) = (None, 0);
    let found = loop {
        let page = tasks::list(&mut tx.of(&home), &filter, cursor.as_ref(), 3).await?;
        pages += 1;
        match page.goes_on_behind {
            Some(behind) => {
                assert!(page.tasks.is_empty() && cursor.is_none_or(|cursor| behind < cursor), "{behind}");
                cursor = Some(behind);
            }
            None => break page.tasks,
        }
    };
    assert_eq!((found.len(), pages), (1, 3), "each page looks at some thousands");
    Ok(())
}

async fn messages_are_read_in_bounded_pages(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    for (n, sizes) in [vec![10, 400, 30], vec![], vec![900], vec![5; 12]].into_iter().enumerate() {
        let asked = task(tx, &home, &talk, &format!("question {n}"), after(n as i64)).await?;
        let answer = Message {
            id: MessageId::new(NOW.0),
            session_id: talk.clone(),
            seq: asked.message_seq + 1,
            role: MessageRole::Assistant,
            author: "default".into(),
            task_id: asked.id,
            attempt: 1,
            parts: Vec::new(),
            created_at: after(n as i64),
        };
        messages::insert(&mut tx.of(&home), &answer).await?;
        let part = |(n, size): (usize, &usize)| Part::text("x".repeat(*size) + &n.to_string());
        let parts: Vec<Part> = sizes.iter().enumerate().map(part).collect();
        messages::append(&mut tx.change(&home, &By::board(), NOW), &answer.id, &parts).await?;
    }
    let texts =
        |all: Vec<Message>| -> Vec<(u64, Vec<Part>)> { all.into_iter().map(|one| (one.seq, one.parts)).collect() };
    let whole = texts(messages::page(&mut tx.of(&home), &talk, None, 100).await?);
    for max_bytes in [1, 100, 500, 1_000, 100_000] {
        for limit in [1, 3, 100] {
            let (mut all, mut before, mut pages): (Vec<(u64, Vec<Part>)>, _, _) = (Vec::new(), None, 0);
            loop {
                let page = messages::bounded::page(&mut tx.of(&home), &talk, before, limit, max_bytes).await?;
                let (first_part, more) = (page.first_part, page.more);
                let mut newer = std::mem::replace(&mut all, texts(page.messages));
                let seq = all[0].0;
                // The rest of a message whose beginning is in this page.
                if let Some((seq, parts)) = all.last_mut()
                    && newer.first().is_some_and(|(newer, _)| newer == seq)
                {
                    parts.append(&mut newer.remove(0).1);
                }
                all.append(&mut newer);
                pages += 1;
                assert!(pages <= 40, "{max_bytes} bytes, {limit} messages: no end");
                before = Some((seq, Some(first_part).filter(|first| *first > 0)));
                if !more {
                    break;
                }
            }
            assert_eq!(all, whole, "{max_bytes} bytes, {limit} messages");
        }
    }
    assert!(messages::bounded::page(&mut tx.of(&far), &talk, None, 10, 100).await?.messages.is_empty());
    Ok(())
}

async fn vibers_that_are_ready_are_found(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let none = BTreeMap::new();
    let mut fleet = Vec::new();
    for name in ["connected", "away", "drained", "busy", "revoked", "labeled"] {
        fleet.push(viber(tx, &home, name).await?);
    }
    let theirs = viber(tx, &far, "theirs").await?;
    tx.execute("UPDATE vibers SET contact = 'connected'", &[]).await?;
    tx.execute("UPDATE vibers SET contact = 'disconnected' WHERE name = 'away'", &[]).await?;
    vibers::set_drained(&mut tx.of(&home), &fleet[2], true).await?;
    let talk = session(tx, &home, &fleet[3], "talk", NOW).await?;
    task(tx, &home, &talk, "work", NOW).await?;
    vibers::revoke(&mut tx.change(&home, &By::board(), NOW), &fleet[4]).await?;
    vibers::set_labels(
        &mut tx.change(&home, &By::board(), NOW),
        &fleet[5],
        &[label("gpu", "yes"), label("os", "linux")].into(),
    )
    .await?;
    let ids = |found: Vec<vibers::Candidate>| found.into_iter().map(|one| one.id).collect::<Vec<_>>();
    let mut both = vec![fleet[0].clone(), fleet[5].clone()];
    both.sort();
    assert_eq!(ids(vibers::ready(&mut tx.of(&home), &none, 10).await?), both);
    assert_eq!(ids(vibers::ready(&mut tx.of(&home), &none, 1).await?), both[..1]);
    assert_eq!(ids(vibers::ready(&mut tx.of(&home), &[label("os", "linux")].into(), 10).await?), both);
    let gpu = [label("gpu", "yes"), label("os", "linux")].into();
    assert_eq!(ids(vibers::ready(&mut tx.of(&home), &gpu, 10).await?), fleet[5..]);
    assert_eq!(ids(vibers::candidates(&mut tx.of(&home), &gpu).await?), fleet[5..]);
    assert_eq!(ids(vibers::candidates(&mut tx.of(&home), &none).await?).len(), 5, "all but the revoked one");
    assert!(vibers::ready(&mut tx.of(&home), &[label("gpu", "no")].into(), 10).await?.is_empty());
    assert_eq!(ids(vibers::ready(&mut tx.of(&far), &none, 10).await?), [theirs], "foreign ones are not");
    assert!(vibers::ready(&mut tx.of(&far), &[label("gpu", "yes")].into(), 10).await?.is_empty());
    let busy = vibers::candidate(&mut tx.of(&home), &fleet[3]).await?.expect("there");
    assert_eq!((busy.busy, busy.connected), (1, true));
    assert!(vibers::candidate(&mut tx.of(&far), &fleet[3]).await?.is_none());
    // Its labels are replaced, not added to.
    vibers::set_labels(&mut tx.change(&home, &By::board(), NOW), &fleet[5], &none).await?;
    assert!(vibers::ready(&mut tx.of(&home), &[label("gpu", "yes")].into(), 10).await?.is_empty());
    Ok(())
}

/// The vibers that a search finds page by page, two of a page.
async fn found_vibers(tx: &mut Tx, team: &TeamId, filter: ViberFilter, words: &str) -> Result<Vec<ViberId>, DbError> {
    let (mut found, mut cursor): (_, Option<ViberId>) = (Vec::new(), None);
    loop {
        let page = vibers::search(&mut tx.of(team), filter, words, cursor.as_ref(), 2).await?;
        assert!(page.vibers.len() <= 2);
        found.extend(page.vibers.into_iter().map(|viber| viber.id));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(found),
        }
    }
}

async fn vibers_are_listed_by_any_filter(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let mut fleet = Vec::new();
    for name in ["Kiln", "kiln 50%_off", "ÄÖÜ", "busy", "revoked kiln", "plain"] {
        fleet.push(viber(tx, &home, name).await?);
    }
    let theirs = viber(tx, &far, "their kiln").await?;
    tx.execute("UPDATE vibers SET contact = 'connected' WHERE name IN ('Kiln', 'busy', 'revoked kiln')", &[]).await?;
    let talk = session(tx, &home, &fleet[3], "talk", NOW).await?;
    let work = task(tx, &home, &talk, "work", NOW).await?;
    vibers::revoke(&mut tx.change(&home, &By::board(), NOW), &fleet[4]).await?;
    let sorted = |numbers: &[usize]| -> Vec<ViberId> {
        let mut ids: Vec<ViberId> = numbers.iter().map(|n| fleet[*n].clone()).collect();
        ids.sort();
        ids
    };
    let wanted: [(ViberFilter, &str, &[usize]); 15] = [
        (ViberFilter::All, "", &[0, 1, 2, 3, 5]),
        (ViberFilter::Online, "", &[0, 3]),
        (ViberFilter::Offline, "", &[1, 2, 5]),
        (ViberFilter::Working, "", &[]),
        (ViberFilter::All, "KILN", &[0, 1]),
        (ViberFilter::Online, "kiln", &[0]),
        (ViberFilter::Offline, "kiln", &[1]),
        (ViberFilter::Working, "busy", &[]),
        (ViberFilter::All, "%", &[1]),
        (ViberFilter::All, "0%_o", &[1]),
        (ViberFilter::All, "k_ln", &[]),
        (ViberFilter::All, "äö", &[2]),
        (ViberFilter::All, "os=LINUX", &[0, 1, 2, 3, 5]),
        (ViberFilter::All, "lab", &[0, 1, 2, 3, 5]),
        (ViberFilter::All, "nothing", &[]),
    ];
    for round in ["as they joined", "without words", "with words again"] {
        match round {
            "without words" => drop(tx.execute("UPDATE viber_words SET words = NULL", &[]).await?),
            "with words again" => {
                while vibers::write_words(&mut tx.of(&home)).await? {}
                assert_eq!(vibers::teams_without_words(tx).await?, std::slice::from_ref(&far));
            }
            _ => assert!(vibers::teams_without_words(tx).await?.is_empty()),
        }
        for (filter, words, due) in wanted {
            assert_eq!(found_vibers(tx, &home, filter, words).await?, sorted(due), "{round}: {filter:?} {words}");
        }
    }
    tx.execute("UPDATE tasks SET state = 'running' WHERE task_id = $1", server::args![&work.id]).await?;
    assert_eq!(found_vibers(tx, &home, ViberFilter::Working, "").await?, sorted(&[3]));
    assert_eq!(found_vibers(tx, &home, ViberFilter::Working, "bus").await?, sorted(&[3]));
    assert!(found_vibers(tx, &home, ViberFilter::Working, "kiln").await?.is_empty());
    assert_eq!(found_vibers(tx, &far, ViberFilter::All, "kiln").await?, std::slice::from_ref(&theirs));
    assert!(found_vibers(tx, &far, ViberFilter::Working, "").await?.is_empty());
    // What is written is what is found.
    assert!(vibers::rename(&mut tx.of(&home), &fleet[0], "Forge").await?);
    vibers::set_labels(&mut tx.of(&home), &fleet[5], &[("gpu".to_owned(), "A100".to_owned())].into()).await?;
    let scribe = protocol::AgentInfo { id: "Scribe".into(), name: "Écrivain".into(), ..Default::default() };
    let state = protocol::ViberState { agents: Some(vec![scribe]), ..Default::default() };
    vibers::lists(&mut tx.of(&home), &fleet[1], &state).await?;
    for (words, due) in [("forge", 0), ("gpu=a100", 5), ("scribe", 1), ("ÉCRI", 1)] {
        assert_eq!(found_vibers(tx, &home, ViberFilter::All, words).await?, sorted(&[due]), "{words}");
    }
    assert_eq!(found_vibers(tx, &home, ViberFilter::All, "kiln").await?, sorted(&[1]));
    // Also when it had no words before.
    assert!(vibers::rename(&mut tx.of(&far), &theirs, "Their forge").await?);
    assert!(vibers::teams_without_words(tx).await?.is_empty());
    assert_eq!(found_vibers(tx, &far, ViberFilter::All, "their forge").await?, [theirs]);
    Ok(())
}

async fn commands_are_forgotten_when_nobody_needs_them(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let talk = session(tx, &home, &lab, "talk", NOW).await?;
    let open = task(tx, &home, &talk, "open", NOW).await?;
    for n in 1..=5 {
        let attempt = (n == 4).then_some((&open.id, 1));
        let kind = if n == 4 { "task:submit" } else { "viber:drain" };
        let command = commands::NewCommand { kind, attempt, body: "{}".into() };
        commands::enqueue(&mut tx.change(&home, &By::board(), after(n)), &lab, command).await?;
    }
    server::db::attempts::set_cmd_seq(&mut tx.of(&home), &open.id, 1, 4).await?;
    assert_eq!(commands::oldest_needed(&mut tx.of(&home), &lab).await?, 1, "none was seen to arrive");
    tx.execute("UPDATE vibers SET acked_cmd_seq = 5 WHERE name = 'lab'", &[]).await?;
    assert_eq!(commands::oldest_needed(&mut tx.of(&home), &lab).await?, 4, "its attempt is open");
    vibers::set_drained(&mut tx.of(&home), &lab, true).await?;
    assert_eq!(commands::oldest_needed(&mut tx.of(&home), &lab).await?, 4);
    let old = vibers::with_commands_before(&mut tx.of(&home), None, after(2), 10).await?;
    assert_eq!(old, std::slice::from_ref(&lab), "the other has none");
    assert!(vibers::with_commands_before(&mut tx.of(&home), None, after(1), 10).await?.is_empty());
    assert!(vibers::with_commands_before(&mut tx.of(&home), Some(&lab), after(2), 10).await?.is_empty());
    assert_eq!(commands::forget(&mut tx.of(&home), &lab, 4, after(3), 1).await?, 1, "one at a time");
    assert_eq!(commands::forget(&mut tx.of(&home), &lab, 4, after(3), 9).await?, 1, "those before an instant");
    let left = commands::after(&mut tx.of(&home), &lab, 0, 10).await?;
    assert_eq!(left.iter().map(|command| command.cmd_seq).collect::<Vec<_>>(), [3, 4, 5]);
    let end = server::db::attempts::AttemptEnd { outcome: "completed", superseded: false, report: None };
    server::db::attempts::end(&mut tx.change(&home, &By::board(), after(6)), &open.id, 1, end).await?;
    assert_eq!(commands::oldest_needed(&mut tx.of(&home), &lab).await?, 5, "the one that drained it");
    vibers::set_drained(&mut tx.of(&home), &lab, false).await?;
    assert_eq!(commands::oldest_needed(&mut tx.of(&home), &lab).await?, 6);
    assert_eq!(commands::oldest_needed(&mut tx.of(&home), &den).await?, 1);
    Ok(())
}
