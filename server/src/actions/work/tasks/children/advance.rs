//! Bringing trees forward: what follows from what is there is done, one change after the other, until nothing follows any more.
//!
//! Each change reads the tree again behind a lock, and does nothing when what it came for is not to be done any more.

use std::sync::Arc;

use protocol::{ParentCall, TaskId, TeamId};

use super::{ask::is_too_many, make, refuse, tell};
use crate::{
    actions::{
        AfterCommit,
        artifacts::{self, HandedArtifact},
        dispatch, tasks,
    },
    db::{self, Change, tasks::delegations},
    domain::{ArtifactOrigin, By, DelegationState, TaskTree, TreeMove},
    error::{Error, Result},
    state::Board,
};

/// Changes that are made of one tree before others have their turn.
const MAX_MOVES: usize = 100;
/// Versions of artifacts that are read to find those that go along.
const MAX_VERSIONS_READ: u64 = 500;

/// Does what is to be done about a tree now. Files that go along are fetched beside that.
pub async fn advance(board: &Board, team: &TeamId, root: &TaskId) -> Result<()> {
    let Some(_turn) = board.trees.begin(root, None) else {
        // Whoever does it may have looked already.
        board.trees.poke(team, root);
        return Ok(());
    };
    for _ in 0..MAX_MOVES {
        let Some((tree, next)) = look(board, team, root).await? else { return Ok(()) };
        let open = tree.kin.iter().filter_map(|kin| kin.task.as_ref()).chain([&tree.root]);
        for task in open.filter(|task| !task.state.is_final()) {
            board.trees.follow(team, root, &task.id);
        }
        let mut now = None;
        for one in next {
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

/// The tree, and what is to be done about it.
async fn look(board: &Board, team: &TeamId, root: &TaskId) -> Result<Option<(TaskTree, Vec<TreeMove>)>> {
    let mut tx = board.db.reader_of(team).await?;
    let Some(tree) = delegations::tree(&mut tx, root).await? else { return Ok(None) };
    let settings = db::mesh_settings::load(&mut tx).await?;
    let mut moves = tree.moves();
    // A viber makes tasks by itself; what is more than a tree may have does not go on.
    let open = tree.kin.iter().filter_map(|kin| kin.task.as_ref()).filter(|task| !task.state.is_final());
    let more = open.filter(|task| is_too_many(&tree, &task.id, &settings).is_some());
    moves.extend(more.map(|task| TreeMove::Stop(task.id.clone())));
    Ok(Some((tree, moves)))
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

/// Tells whoever asked how it ended, unless they know.
async fn tell_end(tx: &mut Change<'_>, root: &TaskId, call: &ParentCall, after: &mut AfterCommit) -> Result<()> {
    let Some(parent) = db::tasks::load(tx, &call.task_id).await? else {
        delegations::set_told(tx, call).await?;
        return Ok(());
    };
    // Behind the session's lock no other attempt of it begins meanwhile.
    db::sessions::lock(tx, &parent.session_id).await?;
    let Some(parent) = db::tasks::load(tx, &call.task_id).await? else { return Ok(()) };
    let tree = delegations::tree(tx, root).await?;
    let is_due = tree.is_some_and(|tree| tree.moves().contains(&TreeMove::Tell(call.clone())));
    if is_due && delegations::set_told(tx, call).await? {
        tell(tx, &parent, call, after).await?;
        after.task(&parent.session_id, &parent.id);
    }
    Ok(())
}

/// Ends a task whose tree does not want it any more.
async fn stop(tx: &mut Change<'_>, root: &TaskId, id: &TaskId, after: &mut AfterCommit) -> Result<()> {
    let Some(task) = db::tasks::load(tx, id).await? else { return Ok(()) };
    let Some(tree) = delegations::tree(tx, root).await? else { return Ok(()) };
    let settings = db::mesh_settings::load(tx).await?;
    let reason = match tree.moves().contains(&TreeMove::Stop(id.clone())) {
        true => "the task that asked for it was stopped".to_owned(),
        false => match is_too_many(&tree, id, &settings) {
            Some(why) => why,
            None => return Ok(()),
        },
    };
    if tasks::end(tx, &task, &reason, after).await? {
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
        let Some(parent) = db::tasks::load(&mut tx, &call.task_id).await? else { return Ok(Ok(Vec::new())) };
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
    let Some(parent) = db::tasks::load(tx, &call.task_id).await? else { return Ok(()) };
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
            let child = make::submit(tx, &parent, (&asked, plan), files, after).await?;
            delegations::decide(tx, call, Ok(&child)).await?;
            after.in_tree(&root, &child);
        }
        Err(why) => {
            let refused = refuse(tx, &parent, asked, &why).await?;
            delegations::decide(tx, call, Err(refused.refusal.as_deref().unwrap_or_default())).await?;
            delegations::set_told(tx, call).await?;
        }
    }
    after.task(&parent.session_id, &parent.id);
    tell(tx, &parent, call, after).await
}
