//! Bringing trees forward: what follows from what is there is done, one change after the other, until nothing follows any more.
//!
//! Each change reads the tree again behind a lock, and does nothing when what it came for is not to be done any more.

use std::sync::Arc;

use protocol::{ParentCall, TaskId, TeamId};

use super::{is_over, make, refuse, tell};
use crate::{
    actions::{
        AfterCommit,
        artifacts::{self, HandedArtifact},
        dispatch, tasks,
    },
    db::{self, Change, tasks::delegations},
    domain::{ArtifactOrigin, By, DelegationState, Task, TaskTree, TreeMove},
    error::{Error, Result},
    state::Board,
};

/// Changes that are made of one tree before others have their turn.
const MAX_MOVES: usize = 100;
/// Versions of artifacts that are read to find those that go along.
const MAX_VERSIONS_READ: u64 = 500;
/// Longest words of what came of a task that are kept for pages, bytes.
const MAX_OUTCOME_BYTES: usize = 1_024;

/// Does what is to be done about a tree now. Files that go along are fetched beside that.
pub async fn advance(board: &Board, team: &TeamId, root: &TaskId) -> Result<()> {
    let Some(_turn) = board.trees.begin(root, None) else {
        // Whoever does it may have looked already.
        board.trees.poke(team, root);
        return Ok(());
    };
    for _ in 0..MAX_MOVES {
        let Some(tree) = look(board, team, root).await? else {
            board.trees.forget(root);
            return Ok(());
        };
        let open = tree.kin.iter().filter_map(|kin| kin.task.as_ref()).chain([&tree.root]);
        for task in open.filter(|task| !task.state.is_final()) {
            board.trees.follow(team, root, &task.id);
        }
        let moves = tree.moves();
        board.trees.set_at_rest(root, moves.is_empty());
        let mut now = None;
        for one in moves {
            match one {
                TreeMove::Make(call) => spawn(board, team, root, call),
                other if now.is_none() => now = Some(other),
                _ => {}
            }
        }
        let Some(now) = now else {
            if tree.is_settled() && tree.open() == 0 {
                board.trees.forget(root);
            }
            return Ok(());
        };
        make_move(board, team, root, now).await?;
    }
    board.trees.poke(team, root);
    Ok(())
}

async fn look(board: &Board, team: &TeamId, root: &TaskId) -> Result<Option<TaskTree>> {
    let mut tx = board.db.reader_of(team).await?;
    Ok(delegations::tree(&mut tx, root).await?)
}

async fn make_move(board: &Board, team: &TeamId, root: &TaskId, next: TreeMove) -> Result<()> {
    crate::fault::at("mesh::before_move");
    let wanted = Arc::new((root.clone(), next));
    let making = board.change(team, &By::board(), move |tx| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let mut after = AfterCommit::default();
            match &wanted.1 {
                TreeMove::Tell(call) => tell_end(tx, &wanted.0, call, &mut after).await?,
                TreeMove::Stop(task) => stop(tx, &wanted.0, task, &mut after).await?,
                TreeMove::Make(_) => {}
            }
            Ok::<_, Error>(after)
        })
    });
    let after = making.await?;
    crate::fault::at("mesh::after_move");
    after.publish(board, team);
    Ok(())
}

/// Tells whoever asked how it ended, unless they know. What nobody asks after any more is forgotten.
async fn tell_end(tx: &mut Change<'_>, root: &TaskId, call: &ParentCall, after: &mut AfterCommit) -> Result<()> {
    let Some(parent) = db::tasks::load(tx, &call.task_id).await? else {
        delegations::remove(tx, call).await?;
        return Ok(());
    };
    // Behind the session's lock no other attempt of it begins meanwhile.
    db::sessions::lock(tx, &parent.session_id).await?;
    let Some(parent) = db::tasks::load(tx, &call.task_id).await? else { return Ok(()) };
    let tree = delegations::tree(tx, root).await?;
    let is_due = tree.is_some_and(|tree| tree.moves().contains(&TreeMove::Tell(call.clone())));
    if !is_due {
        return Ok(());
    }
    let child = delegations::load(tx, call).await?.and_then(|asked| asked.child);
    let child = match &child {
        Some(child) => db::tasks::load(tx, child).await?,
        None => None,
    };
    if delegations::set_told(tx, call, child.and_then(outcome).as_deref()).await? {
        tell(tx, &parent, call, after).await?;
        after.task(&parent.session_id, &parent.id);
    }
    Ok(())
}

/// The first words of what came of a task.
fn outcome(task: Task) -> Option<String> {
    let words = task.result.map(|result| result.summary).or(task.error.map(|error| error.message))?;
    Some(protocol::text::head(&words, MAX_OUTCOME_BYTES).to_owned())
}

/// Ends a task that its tree does not want.
async fn stop(tx: &mut Change<'_>, root: &TaskId, id: &TaskId, after: &mut AfterCommit) -> Result<()> {
    let Some(task) = db::tasks::load(tx, id).await? else { return Ok(()) };
    let Some(tree) = delegations::tree(tx, root).await? else { return Ok(()) };
    if !tree.moves().contains(&TreeMove::Stop(id.clone())) {
        return Ok(());
    }
    let asked = tree.kin.iter().find(|kin| kin.asked.child.as_ref() == Some(id)).map(|kin| &kin.asked);
    let refusal = asked.and_then(|asked| asked.refusal.clone());
    let reason = refusal.unwrap_or_else(|| "the task that asked for it was stopped".to_owned());
    if tasks::end(tx, &task, protocol::text::head(&reason, 500), after).await? {
        dispatch::next(tx, &task.session_id, after).await?;
    }
    Ok(())
}

/// Makes a task beside everything else, once what goes along is there.
fn spawn(board: &Board, team: &TeamId, root: &TaskId, call: ParentCall) {
    let step = format!("{}:{}", call.attempt, call.call_id);
    let Some(turn) = board.trees.begin(&call.task_id, Some(&step)) else { return };
    let (board, team, root) = (board.clone(), team.clone(), root.clone());
    let shutdown = board.shutdown.clone();
    shutdown.spawn(async move {
        let made = tokio::select! {
            // The next Board makes it.
            () = board.shutdown.soft.cancelled() => return,
            made = make_with_files(&board, &team, &call) => made,
        };
        drop(turn);
        match made {
            Ok(()) => board.trees.poke(&team, &root),
            Err(error) => tracing::warn!(task.id = %call.task_id, %error, "a task that was asked for is not made yet"),
        }
    });
}

async fn make_with_files(board: &Board, team: &TeamId, call: &ParentCall) -> Result<()> {
    let files = gather(board, team, call).await?;
    let wanted = Arc::new((call.clone(), files));
    let making = board.change(team, &By::board(), move |tx| {
        let wanted = wanted.clone();
        Box::pin(async move {
            let (call, files) = &*wanted;
            let mut after = AfterCommit::default();
            submit(tx, call, files, &mut after).await?;
            Ok::<_, Error>(after)
        })
    });
    making.await?.publish(board, team);
    Ok(())
}

/// The files, or why there are none.
async fn gather(board: &Board, team: &TeamId, call: &ParentCall) -> Result<Result<Vec<HandedArtifact>, String>> {
    let (names, made) = {
        let mut tx = board.db.reader_of(team).await?;
        let Some(asked) = delegations::load(&mut tx, call).await? else { return Ok(Ok(Vec::new())) };
        // Of one that is over nothing is fetched: it is refused.
        let parent = db::tasks::load(&mut tx, &call.task_id).await?.filter(|parent| !is_over(parent));
        let Some(parent) = parent else { return Ok(Ok(Vec::new())) };
        let made = db::artifacts::products(&mut tx, &parent.session_id, MAX_VERSIONS_READ).await?;
        (asked.artifacts, made)
    };
    let mut files: Vec<HandedArtifact> = Vec::new();
    for name in names {
        let is_it = |one: &&crate::domain::Artifact| one.name == name && one.origin != ArtifactOrigin::Operator;
        let Some(found) = made.iter().find(is_it) else {
            return Ok(Err(format!("the task that asks has no artifact {name:?}")));
        };
        match artifacts::keep_version(board, team, &found.id).await? {
            Some(file) if files.iter().all(|known| known.name != file.name) => files.push(file),
            Some(_) => {}
            None => return Ok(Err(format!("the artifact {name:?} cannot be had from its viber now"))),
        }
    }
    Ok(Ok(files))
}

async fn submit(
    tx: &mut Change<'_>,
    call: &ParentCall,
    files: &Result<Vec<HandedArtifact>, String>,
    after: &mut AfterCommit,
) -> Result<()> {
    let Some(parent) = db::tasks::load(tx, &call.task_id).await? else {
        delegations::remove(tx, call).await?;
        return Ok(());
    };
    db::sessions::lock(tx, &parent.session_id).await?;
    let asked = delegations::load(tx, call).await?.filter(|asked| asked.state == DelegationState::Gathering);
    let Some(asked) = asked else { return Ok(()) };
    let tree = delegations::tree(tx, &asked.root).await?;
    // It is not one more than there are: without itself.
    let others = tree.map(|mut tree| {
        tree.kin.retain(|kin| kin.asked.call != *call);
        tree
    });
    let planned = match files {
        Ok(files) => make::plan(tx, &parent, &asked, others.as_ref()).await?.map(|plan| (plan, files.clone())),
        Err(why) => Err(why.clone()),
    };
    let root = asked.root.clone();
    match planned {
        Ok((plan, files)) => {
            let made = make::submit(tx, &parent, (&asked, plan), files, after).await?;
            delegations::decide(tx, call, Ok((&made.id, &made.session_id))).await?;
            after.in_tree(&root, &made.id);
        }
        Err(why) => {
            let refused = refuse(tx, &parent, asked, &why).await?;
            delegations::decide(tx, call, Err(refused.refusal.as_deref().unwrap_or_default())).await?;
            delegations::set_told(tx, call, None).await?;
        }
    }
    after.task(&parent.session_id, &parent.id);
    tell(tx, &parent, call, after).await
}
