//! What a member has not seen since they joined, and lists that are narrowed.

use protocol::{OperatorId, SessionId, TeamId};
use server::{
    db::{
        DbError, Tx, members, operators, read_marks,
        sessions::{self, SessionFilter, TitleSearch, UnreadCount},
        tasks,
    },
    domain::{By, Operator, Role, SessionState},
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(
    unread_counts_from_joining_on,
    what_was_read_one_by_one_is_not_looked_at_again,
    lists_are_narrowed_to_agents_people_and_states,
    what_needs_a_person_is_found_behind_the_steps_of_runs,
);

/// A member who joins `seconds` after the beginning.
async fn joins(tx: &mut Tx, team: &TeamId, seconds: i64) -> Result<OperatorId, DbError> {
    let id = OperatorId::new(NOW.0);
    let operator = Operator {
        id: id.clone(),
        email: format!("{id}@example.org"),
        name: "Ada".into(),
        theme: "system".into(),
        disabled_at: None,
        created_at: after(0),
    };
    operators::insert(tx, &operator, "hash").await?;
    members::insert(&mut tx.change(team, &By::board(), after(seconds)), &id, Role::Viewer).await?;
    Ok(id)
}

async fn unread(tx: &mut Tx, team: &TeamId, reader: &OperatorId) -> Result<(usize, bool), DbError> {
    let UnreadCount { count, or_more } = sessions::count_unread(&mut tx.of(team), reader).await?;
    // A list with the filter has the same sessions.
    let filter = SessionFilter { state: Some(SessionState::Unread), ..Default::default() };
    let asked = TitleSearch { reader: Some(reader), filter: &filter, title: "" };
    let listed = sessions::search(&mut tx.of(team), asked, None, 200).await?.lines;
    assert!(listed.iter().all(|line| line.unread) && (or_more || listed.len() == count));
    Ok((count, or_more))
}

async fn unread_counts_from_joining_on(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    for n in 0..120 {
        session(tx, &home, &lab, &format!("Before {n}"), after(n)).await?;
    }
    let (old, new) = (joins(tx, &home, -1).await?, joins(tx, &home, 500).await?);
    assert_eq!(unread(tx, &home, &old).await?, (99, true));
    assert_eq!(unread(tx, &home, &new).await?, (0, false), "history is none of a new member's news");
    assert_eq!(unread(tx, &far, &new).await?, (0, false));
    let mut later = Vec::new();
    for n in 0..3 {
        later.push(session(tx, &home, &lab, &format!("After {n}"), after(600 + n)).await?);
    }
    assert_eq!(unread(tx, &home, &new).await?, (3, false));
    // What is at work is no news before it has ended.
    let work = task(tx, &home, &later[0], "look", after(700)).await?;
    assert_eq!(unread(tx, &home, &new).await?, (2, false));
    sessions::touch(&mut tx.change(&home, &By::board(), after(710)), &later[0]).await?;
    let stop = tasks::TaskStop { by: "board", reason: "enough", confirmed: true };
    assert!(tasks::stop(&mut tx.change(&home, &By::board(), after(710)), &work.id, 1, stop).await?);
    assert_eq!(unread(tx, &home, &new).await?, (3, false));
    read_marks::set(&mut tx.change(&home, &By::board(), after(720)), &new, &later[1], 0).await?;
    assert_eq!(unread(tx, &home, &new).await?, (2, false));
    assert!(sessions::set_archived(&mut tx.of(&home), &later[2], Some(after(730))).await?);
    assert_eq!(unread(tx, &home, &new).await?, (1, false));
    // One row for all of them, and for nobody else's.
    let marks = "SELECT COUNT(*) AS n FROM read_marks";
    let before = tx.row(marks, &[]).await?.expect("a count").count("n")?;
    read_marks::set_all(&mut tx.change(&home, &By::board(), after(100)), &old).await?;
    assert_eq!(unread(tx, &home, &old).await?, (0, false), "even by a clock that was set back");
    assert_eq!(tx.row(marks, &[]).await?.expect("a count").count("n")?, before);
    assert_eq!(unread(tx, &home, &new).await?, (1, false));
    sessions::touch(&mut tx.change(&home, &By::board(), after(800)), &later[1]).await?;
    assert_eq!((unread(tx, &home, &old).await?, unread(tx, &home, &new).await?), ((1, false), (2, false)));
    Ok(())
}

async fn what_was_read_one_by_one_is_not_looked_at_again(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let lab = viber(tx, &home, "lab").await?;
    let reader = joins(tx, &home, 0).await?;
    let mut all = Vec::new();
    for n in 1..=50 {
        all.push(session(tx, &home, &lab, &format!("Session {n}"), after(n)).await?);
    }
    let read = async |tx: &mut Tx, id: &SessionId| {
        let mut change = tx.change(&home, &By::board(), after(100));
        read_marks::set(&mut change, &reader, id, 0).await?;
        read_marks::compact(&mut change, &reader).await
    };
    for (n, id) in all.iter().enumerate() {
        if n != 30 {
            read(tx, id).await?;
        }
        let left = 50 - (n + 1) + usize::from(n >= 30);
        assert_eq!(unread(tx, &home, &reader).await?, (left, false), "{n}");
    }
    let sql = "SELECT read_before FROM members";
    let before = tx.row(sql, &[]).await?.expect("a member").int("read_before")?;
    assert_eq!(before, after(30).0, "up to the one that is unread");
    read(tx, &all[30]).await?;
    assert_eq!(unread(tx, &home, &reader).await?, (0, false));
    assert_eq!(tx.row(sql, &[]).await?.expect("a member").int("read_before")?, after(50).0);
    Ok(())
}

/// The titles of a narrowed list, page by page.
async fn titles(tx: &mut Tx, team: &TeamId, filter: &SessionFilter, title: &str) -> Result<Vec<String>, DbError> {
    let (mut all, mut cursor): (Vec<String>, Option<(protocol::Instant, SessionId)>) = (Vec::new(), None);
    loop {
        let asked = TitleSearch { reader: None, filter, title };
        let place = cursor.as_ref().map(|(at, id)| (*at, id));
        let page = sessions::search(&mut tx.of(team), asked, place, 2).await?;
        all.extend(page.lines.into_iter().map(|line| line.session.title));
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
}

async fn lists_are_narrowed_to_agents_people_and_states(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let mut ids = Vec::new();
    for (n, (title, on)) in (1..).zip([("One", &lab), ("Two", &den), ("Three", &lab), ("Four", &lab), ("Five", &lab)]) {
        ids.push(session(tx, &home, on, title, after(n)).await?);
    }
    tx.execute("UPDATE sessions SET agent_id = 'coder', created_by = 'op_ada' WHERE title IN ('One', 'Two')", &[])
        .await?;
    let (work, waits, failed) = (
        task(tx, &home, &ids[0], "work", after(20)).await?,
        task(tx, &home, &ids[1], "wait", after(19)).await?,
        task(tx, &home, &ids[2], "fail", after(18)).await?,
    );
    let running = "UPDATE tasks SET state = 'running', delivery = NULL WHERE goal IN ('work', 'wait')";
    tx.execute(running, &[]).await?;
    tx.execute("UPDATE tasks SET waiting = '{\"for\":\"approval\"}' WHERE goal = 'wait'", &[]).await?;
    tx.execute("UPDATE tasks SET waiting = '{\"for\":\"rate_limit\"}' WHERE goal = 'work'", &[]).await?;
    tx.execute("UPDATE tasks SET state = 'error', delivery = NULL WHERE goal = 'fail'", &[]).await?;
    drop((work, waits, failed));
    // More than a list reads one by one, all of them newer.
    let many = "INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, created_at, \
                active_at) WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < 4200) \
                SELECT $1, ";
    let sql: &'static str = match tx.is_sqlite() {
        true => Box::leak(
            format!("{many} printf('ses_%032x', i), $2, 'default', 'Hay', 'hay', 'op', $3 + i, $3 + i FROM n")
                .into_boxed_str(),
        ),
        false => Box::leak(
            format!(
                "{many} 'ses_' || lpad(to_hex(i), 32, '0'), $2, 'default', 'Hay', 'hay', 'op', $3 + i, $3 + i FROM n"
            )
            .into_boxed_str(),
        ),
    };
    for crowd in [false, true] {
        if crowd {
            tx.execute(sql, server::args![&home, &lab, after(1_000)]).await?;
        }
        let any = SessionFilter::default;
        let state = |state| SessionFilter { state: Some(state), ..any() };
        let coder = SessionFilter { agent: Some("coder".into()), ..any() };
        let ada = SessionFilter { person: Some("op_ada".into()), ..any() };
        for (filter, title, due) in [
            (coder.clone(), "", vec!["One", "Two"]),
            (ada.clone(), "", vec!["One", "Two"]),
            (SessionFilter { viber: Some(den.clone()), ..ada.clone() }, "", vec!["Two"]),
            (SessionFilter { person: Some("op_ada".into()), ..coder.clone() }, "one", vec!["One"]),
            (state(SessionState::Working), "", vec!["One"]),
            (state(SessionState::Waiting), "", vec!["Two"]),
            (state(SessionState::Error), "", vec!["Three"]),
            (state(SessionState::Stopped), "", vec![]),
            (state(SessionState::Unread), "", vec![]),
            (SessionFilter { state: Some(SessionState::Waiting), ..coder.clone() }, "", vec!["Two"]),
            (SessionFilter { state: Some(SessionState::Error), ..coder.clone() }, "", vec![]),
            (SessionFilter { agent: Some("nobody".into()), ..any() }, "", vec![]),
            (SessionFilter { archived: true, ..coder.clone() }, "", vec![]),
            (SessionFilter { agent: Some("default".into()), ..state(SessionState::Error) }, "thr", vec!["Three"]),
        ] {
            assert_eq!(titles(tx, &home, &filter, title).await?, due, "{filter:?} {title}, crowd: {crowd}");
            assert!(titles(tx, &far, &filter, title).await?.is_empty());
        }
    }
    assert_eq!(sessions::agents(&mut tx.of(&home), 10).await?, ["coder", "default"]);
    assert_eq!(sessions::agents(&mut tx.of(&home), 1).await?, ["coder"]);
    assert!(sessions::agents(&mut tx.of(&far), 10).await?.is_empty());
    Ok(())
}

async fn what_needs_a_person_is_found_behind_the_steps_of_runs(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let reader = joins(tx, &home, -1).await?;
    let mut ids = Vec::new();
    for (n, title) in ["Asks", "Failed", "Busy", "Its step failed"].into_iter().enumerate() {
        let id = session(tx, &home, &lab, title, after(n as i64)).await?;
        task(tx, &home, &id, title, after(10 + n as i64)).await?;
        ids.push(id);
    }
    let asks =
        "UPDATE tasks SET state = 'running', delivery = NULL, waiting = '{\"for\":\"input\"}' WHERE goal = 'Asks'";
    tx.execute(asks, &[]).await?;
    let busy =
        "UPDATE tasks SET state = 'running', delivery = NULL, waiting = '{\"for\":\"child\"}' WHERE goal = 'Busy'";
    tx.execute(busy, &[]).await?;
    let failed = "UPDATE tasks SET state = 'error', delivery = NULL WHERE goal IN ('Failed', 'Its step failed')";
    tx.execute(failed, &[]).await?;
    tx.execute("UPDATE tasks SET origin = 'playbook' WHERE goal = 'Its step failed'", &[]).await?;
    for n in 0..120 {
        session(tx, &home, &lab, "A step", after(1_000 + n)).await?;
    }
    tx.execute("UPDATE sessions SET run_id = 'run_1' WHERE title IN ('A step', 'Its step failed')", &[]).await?;

    let titles = |lines: Vec<server::domain::SessionLine>| -> Vec<String> {
        lines.into_iter().map(|line| line.session.title).collect()
    };
    let found = sessions::needing(&mut tx.of(&home), Some(&reader), 20).await?;
    assert_eq!(titles(found), ["Failed", "Asks"], "however many newer sessions there are");
    assert_eq!(titles(sessions::needing(&mut tx.of(&home), Some(&reader), 1).await?), ["Failed"]);
    assert_eq!(titles(sessions::needing(&mut tx.of(&home), None, 20).await?), ["Asks"], "a token has read everything");
    assert!(sessions::needing(&mut tx.of(&far), Some(&reader), 20).await?.is_empty());

    let own = SessionFilter { own: true, ..Default::default() };
    let listed = sessions::list(&mut tx.of(&home), Some(&reader), &own, None, 60).await?;
    assert_eq!(titles(listed), ["Busy", "Failed", "Asks"], "no step among them");
    let asked = TitleSearch { reader: Some(&reader), filter: &own, title: "" };
    assert_eq!(sessions::search(&mut tx.of(&home), asked, None, 60).await?.lines.len(), 3);
    let all = SessionFilter::default();
    let asked = TitleSearch { reader: Some(&reader), filter: &all, title: "step" };
    assert_eq!(sessions::search(&mut tx.of(&home), asked, None, 200).await?.lines.len(), 121, "a search finds them");
    let UnreadCount { count, or_more } = sessions::count_unread(&mut tx.of(&home), &reader).await?;
    assert_eq!((count, or_more), (1, false), "the failed one");
    // Read or archived, it needs nobody.
    read_marks::set(&mut tx.change(&home, &By::board(), after(2_000)), &reader, &ids[1], 0).await?;
    assert!(sessions::set_archived(&mut tx.of(&home), &ids[0], Some(after(2_001))).await?);
    assert!(sessions::needing(&mut tx.of(&home), Some(&reader), 20).await?.is_empty());
    Ok(())
}
