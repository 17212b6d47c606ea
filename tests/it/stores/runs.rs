//! Runs of playbooks, and whose words the agents of a session were told.

use std::collections::BTreeMap;

use protocol::{RunId, TeamId, ViberId};
use server::{
    db::{DbError, Tx, playbook_runs, sessions, teams},
    domain::{By, PlaybookRun, RunState},
};

use super::{NOW, after, session, stories, task, team, viber};

stories!(runs_are_counted_and_rest_with_their_team, those_who_told_a_session_something_are_known);

/// A run that has just begun, started on its machine or not.
async fn run(tx: &mut Tx, team: &TeamId, viber: &ViberId, by_viber: bool) -> Result<RunId, DbError> {
    let run = PlaybookRun {
        id: RunId::new(NOW.0),
        viber_id: viber.clone(),
        playbook: "p".into(),
        path: "playbooks/p.md".into(),
        hash: "h".into(),
        text: "# Playbook: p".into(),
        inputs: BTreeMap::new(),
        supervised: false,
        step_count: 1,
        state: RunState::Running,
        paused: false,
        needs: None,
        summary: None,
        supervisor: None,
        supervisor_session: None,
        supervisor_attempts: 0,
        told_by: Vec::new(),
        by_viber,
        started_by: "op".into(),
        starter: "Olga".into(),
        created_at: NOW,
        ended_at: None,
        version: 1,
        ledger_version: 0,
        settled: false,
    };
    playbook_runs::insert(&mut tx.change(team, &By::board(), NOW), &run).await?;
    let found = playbook_runs::load(&mut tx.of(team), &run.id).await?.expect("there");
    assert_eq!(found, run);
    let changed = PlaybookRun { told_by: vec!["op".into(), "tok".into()], ..run };
    playbook_runs::save(&mut tx.change(team, &By::board(), NOW), &changed).await?;
    let found = playbook_runs::load(&mut tx.of(team), &changed.id).await?.expect("there");
    assert_eq!((found.told_by, found.version), (changed.told_by, 2));
    Ok(changed.id)
}

async fn runs_are_counted_and_rest_with_their_team(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let (lab, den) = (viber(tx, &home, "lab").await?, viber(tx, &home, "den").await?);
    let (one, two) = (run(tx, &home, &lab, true).await?, run(tx, &home, &lab, true).await?);
    run(tx, &home, &lab, false).await?;
    run(tx, &home, &den, true).await?;
    assert_eq!(playbook_runs::open_count(&mut tx.of(&home), 100).await?, 4);
    assert_eq!(playbook_runs::open_count_of_machine(&mut tx.of(&home), &lab, 100).await?, 2);
    assert_eq!(playbook_runs::open_count_of_machine(&mut tx.of(&home), &lab, 1).await?, 1, "as far as it matters");
    assert_eq!(playbook_runs::open_count_of_machine(&mut tx.of(&far), &lab, 100).await?, 0);
    playbook_runs::settle(&mut tx.change(&home, &By::board(), NOW), &two).await?;
    assert_eq!(playbook_runs::open_count_of_machine(&mut tx.of(&home), &lab, 100).await?, 1);

    let open = playbook_runs::load_open(&mut tx.of(&home), &one).await?.expect("there");
    assert_eq!((open.id.clone(), open.text.as_str(), open.hash.as_str()), (one.clone(), "", "h"), "without its text");
    assert!(playbook_runs::load_open(&mut tx.of(&far), &one).await?.is_none(), "foreign is unknown");
    teams::suspend(&mut tx.of(&home), Some(after(1))).await?;
    assert!(playbook_runs::load_open(&mut tx.of(&home), &one).await?.is_none(), "nothing goes on there");
    assert!(playbook_runs::load(&mut tx.of(&home), &one).await?.is_some());
    teams::suspend(&mut tx.of(&home), None).await?;
    assert!(playbook_runs::load_open(&mut tx.of(&home), &one).await?.is_some());
    Ok(())
}

async fn those_who_told_a_session_something_are_known(tx: &mut Tx) -> Result<(), DbError> {
    let (home, far) = (team(tx, "home").await?.id, team(tx, "far").await?.id);
    let lab = viber(tx, &home, "lab").await?;
    let (talk, other) = (session(tx, &home, &lab, "talk", NOW).await?, session(tx, &home, &lab, "other", NOW).await?);
    assert!(sessions::authors(&mut tx.of(&home), &talk).await?.is_empty());
    task(tx, &home, &talk, "look", after(1)).await?;
    task(tx, &home, &talk, "look again", after(2)).await?;
    assert_eq!(sessions::authors(&mut tx.of(&home), &talk).await?, ["op"], "each once");
    assert!(sessions::authors(&mut tx.of(&home), &other).await?.is_empty());
    assert!(sessions::authors(&mut tx.of(&far), &talk).await?.is_empty(), "foreign is unknown");
    Ok(())
}
