//! Vibers, join tokens, commands.

use protocol::{AgentInfo, BootId, EditId, Hello, Instant, JoinTokenId, ProviderInfo, ViberState, WriteOp};
use server::{
    db::{DbError, Tx, commands, edits, files, join_tokens, teams, vibers},
    domain::{By, ContactState, Edit, EditState, FileReport, JoinToken},
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(
    vibers_are_kept,
    contact_follows_the_newest_connection,
    vibers_are_counted,
    join_tokens_work_once,
    commands_are_numbered,
    old_changes_of_files_are_forgotten,
    a_folder_leaves_with_what_is_in_it,
);

/// A change of `path` that ended at `at`, or waits.
async fn change(
    tx: &mut Tx,
    team: &protocol::TeamId,
    viber: &protocol::ViberId,
    (path, at): (&str, Instant),
    state: EditState,
) -> Result<EditId, DbError> {
    let text = "text".to_owned();
    let edit = Edit {
        id: EditId::new(at.0),
        viber_id: viber.clone(),
        path: path.to_owned(),
        op: WriteOp::Put,
        base_hash: None,
        base: None,
        content: Some(text.clone()),
        hash: Some(text),
        to: None,
        state,
        reason: None,
        theirs_hash: None,
        made_by: "op".into(),
        author: "Olga".into(),
        created_at: at,
        ended_at: None,
    };
    edits::insert(&mut tx.of(team), &Edit { state: EditState::Queued, ..edit.clone() }).await?;
    if state == EditState::Applied {
        let written = protocol::WorkspaceWritten {
            edit_id: edit.id.clone(),
            path: path.to_owned(),
            state: protocol::WriteState::Applied,
            hash: edit.hash.clone(),
            reason: None,
        };
        assert!(edits::end(&mut tx.change(team, &By::board(), at), viber, &written).await?);
    }
    Ok(edit.id)
}

async fn old_changes_of_files_are_forgotten(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (one, theirs) = (viber(tx, &home, "one").await?, viber(tx, &far, "theirs").await?);
    let old = change(tx, &home, &one, ("a.md", after(0)), EditState::Applied).await?;
    let waits = change(tx, &home, &one, ("a.md", after(1)), EditState::Queued).await?;
    let foreign = change(tx, &far, &theirs, ("a.md", after(0)), EditState::Applied).await?;
    let mut many = Vec::new();
    for n in 0..5 {
        many.push(change(tx, &home, &one, ("b.md", after(1_000 + n)), EditState::Applied).await?);
    }
    let mut stale = edits::stale(&mut tx.of(&home), after(500), 3, 100).await?;
    stale.sort();
    let mut due = vec![old.clone(), many[0].clone(), many[1].clone()];
    due.sort();
    assert_eq!(stale, due, "what is old, and all but the newest three of a file");
    assert_eq!(edits::stale(&mut tx.of(&home), after(500), 3, 2).await?.len(), 2);
    for id in &stale {
        edits::forget(&mut tx.of(&far), id).await?;
    }
    assert!(edits::load(&mut tx.of(&home), &old).await?.is_some(), "another team forgets nothing of ours");
    for id in &stale {
        edits::forget(&mut tx.of(&home), id).await?;
    }
    assert!(
        edits::load(&mut tx.of(&home), &old).await?.is_none()
            && edits::stale(&mut tx.of(&home), after(500), 3, 9).await?.is_empty()
    );
    assert!(edits::load(&mut tx.of(&home), &waits).await?.is_some(), "what waits stays");
    assert!(edits::load(&mut tx.of(&far), &foreign).await?.is_some());
    Ok(())
}

async fn a_folder_leaves_with_what_is_in_it(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (one, theirs) = (viber(tx, &home, "one").await?, viber(tx, &far, "theirs").await?);
    let heard =
        |path: &str| FileReport { path: path.into(), hash: Some("h".into()), size: 1, mtime: None, by: "file".into() };
    for path in ["no%es/a.md", "no%es/deep/b.md", "no%esx/c.md", "notes/d.md"] {
        files::record_report(&mut tx.change(&home, &By::board(), NOW), &one, &heard(path)).await?;
        files::record_report(&mut tx.change(&far, &By::board(), NOW), &theirs, &heard(path)).await?;
    }
    files::mark_folder_gone(&mut tx.change(&home, &By::board(), after(1)), &one, "no%es", 10).await?;
    for (path, there) in
        [("no%es/a.md", false), ("no%es/deep/b.md", false), ("no%esx/c.md", true), ("notes/d.md", true)]
    {
        let ours = files::load(&mut tx.of(&home), &one, path).await?.expect("known");
        assert_eq!(ours.hash.is_some(), there, "{path}");
        assert!(
            files::load(&mut tx.of(&far), &theirs, path).await?.expect("known").hash.is_some(),
            "{path} of another team"
        );
    }
    let three = || files::three_query(&one, ["notes/d.md", "no%es/a.md", "never heard of"]);
    let mut known = tx.of(&home).query(three()).await?;
    known.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(known.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["no%es/a.md", "notes/d.md"]);
    assert!(tx.of(&far).query(three()).await?.is_empty(), "foreign is unknown");
    Ok(())
}

async fn vibers_are_kept(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (one, two) = (viber(tx, &home, "one").await?, viber(tx, &home, "two").await?);
    let theirs = viber(tx, &far, "theirs").await?;

    let found = vibers::load(&mut tx.of(&home), &one).await?.expect("there");
    assert_eq!(
        (found.name.as_str(), found.hostname.as_str(), found.contact.state),
        ("one", "lab", ContactState::Disconnected)
    );
    assert_eq!(found.labels["os"], "linux");
    assert!(!found.drained && found.agents.is_empty() && found.seen_at.is_none());
    assert!(vibers::load(&mut tx.of(&far), &one).await?.is_none(), "foreign is unknown");

    let names = |fleet: Vec<server::domain::Viber>| fleet.into_iter().map(|viber| viber.name).collect::<Vec<_>>();
    let mut all = names(vibers::list(&mut tx.of(&home), None, 10).await?);
    all.sort();
    assert_eq!(all, ["one", "two"]);
    let first = vibers::list(&mut tx.of(&home), None, 1).await?.remove(0);
    let rest = vibers::list(&mut tx.of(&home), Some(&first.id), 10).await?;
    assert_eq!(rest.len(), 1);
    assert_ne!(rest[0].id, first.id);

    assert!(vibers::rename(&mut tx.of(&home), &one, "uno").await?);
    assert!(!vibers::rename(&mut tx.of(&far), &one, "stolen").await?);
    assert!(vibers::set_labels(&mut tx.of(&home), &one, &[("gpu".into(), "no".into())].into()).await?);
    assert!(vibers::set_drained(&mut tx.of(&home), &one, true).await?);
    assert!(!vibers::set_drained(&mut tx.of(&home), &one, true).await?, "nothing changed");
    let found = vibers::load(&mut tx.of(&home), &one).await?.expect("there");
    assert_eq!((found.name.as_str(), found.drained, found.labels.len()), ("uno", true, 1));
    assert_eq!(vibers::names(&mut tx.of(&home), Some(&two)).await?, ["uno"]);
    assert_eq!(vibers::names(&mut tx.of(&home), None).await?.len(), 2);

    let candidates = vibers::candidates(&mut tx.of(&home), &Default::default()).await?;
    assert_eq!(candidates.len(), 2);
    let candidate = vibers::candidate(&mut tx.of(&home), &one).await?.expect("there");
    assert!(candidate.drained && !candidate.connected && candidate.busy == 0);
    assert!(vibers::candidate(&mut tx.of(&home), &theirs).await?.is_none());

    let hash = format!("hash of {one}");
    assert_eq!(
        vibers::by_credential(tx, &hash).await?.map(|(team, id, _)| (team, id)),
        Some((home.clone(), one.clone()))
    );
    assert!(vibers::by_credential(tx, "nobody's").await?.is_none());
    assert!(!vibers::revoke(&mut tx.change(&far, &By::board(), NOW), &one).await?);
    assert!(vibers::revoke(&mut tx.change(&home, &By::board(), NOW), &one).await?);
    assert!(!vibers::revoke(&mut tx.change(&home, &By::board(), NOW), &one).await?, "once");
    assert!(vibers::by_credential(tx, &hash).await?.is_none());
    assert!(vibers::load(&mut tx.of(&home), &one).await?.is_none());
    assert!(vibers::connected(tx).await?.is_empty() && vibers::at_work(tx).await?.is_empty());
    assert!(vibers::may_connect(&mut tx.of(&home), &two).await?);
    assert!(!vibers::may_connect(&mut tx.of(&home), &one).await?, "revoked");
    assert!(!vibers::may_connect(&mut tx.of(&far), &two).await?, "foreign");
    Ok(())
}

fn hello(id: &protocol::ViberId) -> Hello {
    Hello {
        protocol: [1, 1],
        viber_id: id.clone(),
        boot_id: BootId::new(7),
        version: "0.2.0".into(),
        platform: "linux/arm64".into(),
        hostname: "bench".into(),
        capabilities: vec!["landlock".into()],
        labels: [].into(),
        state: ViberState {
            agents: Some(vec![AgentInfo { id: "default".into(), ..Default::default() }]),
            providers: Some(vec![ProviderInfo { id: "local".into(), api: "ollama".into(), ..Default::default() }]),
            ..Default::default()
        },
        last_cmd_seq: 0,
        running: Vec::new(),
        outbox: Vec::new(),
    }
}

async fn vibers_are_counted(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (0, 0));
    let (one, two) = (viber(tx, &home, "one").await?, viber(tx, &home, "two").await?);
    viber(tx, &far, "theirs").await?;
    for id in [&one, &two] {
        vibers::connect(&mut tx.change(&home, &By::board(), NOW), &hello(id), 1, (0, 0)).await?;
        vibers::connect(&mut tx.change(&home, &By::board(), NOW), &hello(id), 2, (0, 0)).await?;
    }
    assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (2, 2), "each once");
    vibers::revoke(&mut tx.change(&home, &By::board(), NOW), &one).await?;
    assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (1, 1));
    assert_eq!(vibers::forget_contact(&mut tx.change(&home, &By::board(), NOW), 10).await?, 1);
    assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (1, 0));
    assert_eq!(vibers::connectivity(&mut tx.of(&far)).await?, (1, 0));
    for (goes, left) in [
        ("DELETE FROM vibers WHERE team_id = $1 AND revoked_at IS NOT NULL", 1),
        ("DELETE FROM vibers WHERE team_id = $1", 0),
    ] {
        tx.of(&home).execute(goes, &[]).await?;
        assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (left, 0), "{goes}");
    }

    // Counters that somebody changed by hand are found and set right; until then they break nothing.
    for wrong in ["UPDATE viber_counts SET vibers = vibers - 5, connected = 7", "DELETE FROM viber_counts"] {
        tx.execute(wrong, &[]).await?;
        assert_eq!(vibers::connectivity(&mut tx.of(&far)).await?, (0, 0), "{wrong}");
        assert!(!vibers::is_counted(&mut tx.of(&far)).await?);
        vibers::recount(&mut tx.of(&far)).await?;
        assert!(vibers::is_counted(&mut tx.of(&far)).await?);
        assert_eq!(vibers::connectivity(&mut tx.of(&far)).await?, (1, 0));
    }
    Ok(())
}

async fn contact_follows_the_newest_connection(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let id = viber(tx, &home, "lab").await?;
    let before = vibers::counters(&mut tx.of(&home), &id).await?.expect("there");
    assert_eq!(
        (before.conn_epoch, before.cmd_seq, before.acked_cmd_seq, before.contact),
        (0, 0, 0, ContactState::Disconnected)
    );
    assert!(vibers::boot(&before.boot_id).is_none());

    vibers::connect(&mut tx.change(&home, &By::board(), after(5)), &hello(&id), 1, (0, 0)).await?;
    vibers::connect(&mut tx.change(&home, &By::board(), after(9)), &hello(&id), 2, (4, 3)).await?;
    let found = vibers::load(&mut tx.of(&home), &id).await?.expect("there");
    assert_eq!(
        (found.contact.state, found.contact.since),
        (ContactState::Connected, after(5)),
        "contact was never lost"
    );
    assert_eq!((found.version.as_str(), found.agents.len(), found.providers.len()), ("0.2.0", 1, 1));
    assert_eq!(vibers::epoch(&mut tx.of(&home), &id).await?, Some(2));
    let counters = vibers::counters(&mut tx.of(&home), &id).await?.expect("there");
    assert_eq!((counters.cmd_seq, counters.acked_cmd_seq), (4, 3));
    assert!(vibers::boot(&counters.boot_id).is_some());

    assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (1, 1));
    let lease = vibers::connected(tx).await?.remove(0);
    assert_eq!((lease.epoch, lease.connected, lease.lost_after_ms), (2, true, 900_000));
    teams::suspend(&mut tx.of(&home), Some(after(9))).await?;
    assert!(vibers::connected(tx).await?.is_empty(), "nobody waits for the vibers of a suspended team");
    assert_eq!(
        vibers::teams_with_connected(tx).await?,
        std::slice::from_ref(&home),
        "what is said of them is still to be corrected"
    );
    teams::suspend(&mut tx.of(&home), None).await?;
    assert!(
        !vibers::disconnect(&mut tx.change(&home, &By::board(), after(10)), &id, 1).await?,
        "an old connection's end is no news"
    );
    assert!(vibers::disconnect(&mut tx.change(&home, &By::board(), after(10)), &id, 2).await?);
    let found = vibers::load(&mut tx.of(&home), &id).await?.expect("there");
    assert_eq!((found.contact.state, found.contact.since), (ContactState::Disconnected, after(10)));
    assert_eq!(vibers::connectivity(&mut tx.of(&home)).await?, (1, 0));
    assert!(vibers::teams_with_connected(tx).await?.is_empty());

    vibers::lists(&mut tx.of(&home), &id, &ViberState { agents: Some(Vec::new()), ..Default::default() }).await?;
    let found = vibers::load(&mut tx.of(&home), &id).await?.expect("there");
    assert_eq!((found.agents.len(), found.providers.len()), (0, 1), "an absent list stays");

    vibers::seen(&mut tx.of(&home), &id, after(20)).await?;
    vibers::seen(&mut tx.of(&home), &id, after(15)).await?;
    vibers::mark_cloned(&mut tx.change(&home, &By::board(), after(21)), &id).await?;
    let found = vibers::load(&mut tx.of(&home), &id).await?.expect("there");
    assert_eq!((found.seen_at, found.cloned_at), (Some(after(20)), Some(after(21))));

    assert_eq!(vibers::next_cmd_seq(&mut tx.of(&home), &id).await?, Some(5));
    assert!(!vibers::set_acked(&mut tx.of(&home), &id, 2, 6).await?, "nobody has what was never given");
    assert!(!vibers::set_acked(&mut tx.of(&home), &id, 1, 5).await?, "an old connection has no say");
    assert!(vibers::set_acked(&mut tx.of(&home), &id, 2, 5).await?);
    assert!(!vibers::set_acked(&mut tx.of(&home), &id, 2, 4).await?, "never back");
    assert!(vibers::connected(tx).await?.is_empty() && vibers::at_work(tx).await?.is_empty(), "it has no work");
    Ok(())
}

async fn join_tokens_work_once(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let id = viber(tx, &home, "lab").await?;
    let token = |n: i64| JoinToken {
        id: JoinTokenId::new(NOW.0 + n),
        labels: [("rack".to_owned(), n.to_string())].into(),
        created_at: NOW,
        expires_at: after(900),
        used_at: None,
        viber_id: None,
    };
    let (one, two, three) = (token(1), token(2), token(3));
    for (token, hash) in [(&one, "h1"), (&two, "h2"), (&three, "h3")] {
        join_tokens::insert(&mut tx.of(&home), token, hash, "op").await?;
    }
    assert_eq!(join_tokens::open(&mut tx.of(&home), NOW, 10).await?.len(), 3);
    assert!(join_tokens::open(&mut tx.of(&far), NOW, 10).await?.is_empty());
    assert!(join_tokens::redeem(tx, "nobody's", &id, NOW).await?.is_none());
    let (of, labels) = join_tokens::redeem(tx, "h1", &id, NOW).await?.expect("good");
    assert_eq!((of, labels["rack"].as_str()), (home.clone(), "1"));
    assert!(join_tokens::redeem(tx, "h1", &id, NOW).await?.is_none(), "once");
    assert!(join_tokens::redeem(tx, "h2", &id, after(901)).await?.is_none(), "too late");
    assert!(!join_tokens::revoke(&mut tx.change(&far, &By::board(), NOW), &three.id).await?);
    assert!(join_tokens::revoke(&mut tx.change(&home, &By::board(), NOW), &three.id).await?);
    assert!(!join_tokens::revoke(&mut tx.change(&home, &By::board(), NOW), &three.id).await?);
    assert!(join_tokens::redeem(tx, "h3", &id, NOW).await?.is_none(), "revoked");
    assert_eq!(join_tokens::open(&mut tx.of(&home), NOW, 10).await?, [two]);
    let used = join_tokens::load(&mut tx.of(&home), &one.id).await?.expect("still there to read");
    assert_eq!((used.viber_id, used.used_at), (Some(id), Some(NOW)));
    assert!(join_tokens::load(&mut tx.of(&far), &one.id).await?.is_none());
    Ok(())
}

async fn commands_are_numbered(tx: &mut Tx) -> Result<(), DbError> {
    let home = team(tx, "home").await?.id;
    let id = viber(tx, &home, "lab").await?;
    let other = viber(tx, &home, "other").await?;
    let session = session(tx, &home, &id, "s", NOW).await?;
    let task = task(tx, &home, &session, "goal", NOW).await?;
    let submit = commands::NewCommand { kind: "task:submit", attempt: Some((&task.id, 1)), body: "{}".into() };
    assert_eq!(commands::enqueue(&mut tx.change(&home, &By::board(), NOW), &id, submit).await?, Some(1));
    server::db::attempts::set_cmd_seq(&mut tx.of(&home), &task.id, 1, 1).await?;
    let drain = || commands::NewCommand { kind: "viber:drain", attempt: None, body: r#"{"drained":true}"#.into() };
    assert_eq!(commands::enqueue(&mut tx.change(&home, &By::board(), NOW), &id, drain()).await?, Some(2));
    assert_eq!(
        commands::enqueue(&mut tx.change(&home, &By::board(), NOW), &other, drain()).await?,
        Some(1),
        "each viber counts by itself"
    );

    let all = commands::after(&mut tx.of(&home), &id, 0, 10).await?;
    assert_eq!(
        all.iter().map(|command| (command.cmd_seq, command.kind.as_str())).collect::<Vec<_>>(),
        [(1, "task:submit"), (2, "viber:drain")]
    );
    assert_eq!((all[0].task_id.as_ref(), all[0].attempt), (Some(&task.id), Some(1)));
    assert_eq!(commands::after(&mut tx.of(&home), &id, 1, 10).await?.len(), 1);
    assert_eq!(commands::after(&mut tx.of(&home), &id, 0, 1).await?.len(), 1);
    assert_eq!(commands::submit_of(&mut tx.of(&home), &id, &task.id, 1).await?.map(|command| command.cmd_seq), Some(1));
    assert!(commands::submit_of(&mut tx.of(&home), &other, &task.id, 1).await?.is_none());
    assert!(commands::exists_for_task(&mut tx.of(&home), &id, &task.id).await?);
    assert!(!commands::exists_for_task(&mut tx.of(&home), &other, &task.id).await?, "never told of it");
    assert_eq!(commands::ack(&mut tx.change(&home, &By::board(), after(1)), &id, 1, 10).await?, 1);
    assert_eq!(commands::ack(&mut tx.change(&home, &By::board(), after(2)), &id, 2, 10).await?, 1, "only the new one");
    assert!(commands::after(&mut tx.of(&home), &id, 0, 10).await?.iter().all(|command| command.acked));

    assert_eq!(commands::enqueue(&mut tx.change(&home, &By::board(), NOW), &id, drain()).await?, Some(3));
    let acked = |all: Vec<commands::StoredCommand>| all.iter().all(|command| command.acked);
    commands::ack_range(&mut tx.change(&home, &By::board(), after(3)), &id, 0, 2).await?;
    assert!(!acked(commands::after(&mut tx.of(&home), &id, 2, 10).await?), "it comes after the range");
    commands::ack_range(&mut tx.change(&home, &By::board(), after(3)), &id, 2, 3).await?;
    assert!(acked(commands::after(&mut tx.of(&home), &id, 2, 10).await?));
    vibers::revoke(&mut tx.change(&home, &By::board(), NOW), &id).await?;
    assert_eq!(commands::enqueue(&mut tx.change(&home, &By::board(), NOW), &id, drain()).await?, None);
    Ok(())
}
