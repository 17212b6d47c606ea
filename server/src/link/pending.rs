//! What a connection has to do beside recording: one thing at a time, and what waits merges with its like.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    pin::Pin,
    time::Duration,
};

use protocol::{EditId, Numbered, Running, ViberState, WorkspaceWritten};

use super::compose;
use crate::{
    actions::{
        file_reports,
        reconcile::{self, AttemptVerdict, LastSeen},
    },
    domain::{Connection, FileReport},
    error::{Error, Result},
    state::Board,
};

/// Changed files that may wait. Others are left out: whoever looks at one asks for it.
const MAX_PENDING_FILES: usize = 10_000;

/// A change that the database refused for now is tried again after this time.
pub const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Something under way.
pub type BoxedWork<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// All that waits.
#[derive(Debug, Default)]
pub struct PendingWork {
    waiting: BTreeMap<Kind, Pending>,
}

/// The kinds of work, in the order in which they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Acked,
    Lists,
    Claims,
    Settle,
    Written,
    Heard,
    Commands,
}

/// One of each kind is all that waits.
#[derive(Clone, Debug, PartialEq)]
pub enum Pending {
    /// The daemon has commands up to here on disk.
    Acked(u64),
    Lists(Box<ViberState>),
    Claims(Vec<Running>),
    Settle(Vec<Running>),
    /// What became of changes of files.
    Written(Vec<WorkspaceWritten>),
    /// Files that are others now, by path.
    Heard(BTreeMap<String, FileReport>),
    /// There may be new commands.
    Commands,
}

/// What a piece of work came to.
pub enum Done {
    Nothing,
    Commands(Vec<Numbered>),
    /// The Board has what became of these changes.
    Written(Vec<EditId>),
    /// The database is away: once more.
    Again(Pending),
}

impl PendingWork {
    /// Adds what came last.
    pub fn add(&mut self, newer: Pending) {
        match self.waiting.entry(newer.kind()) {
            Entry::Vacant(place) => {
                place.insert(newer);
            }
            Entry::Occupied(mut older) => older.get_mut().merge(newer),
        }
    }

    /// Puts back what could not be done, below what came meanwhile.
    pub fn restore(&mut self, older: Pending) {
        let newer = self.waiting.insert(older.kind(), older);
        newer.into_iter().for_each(|newer| self.add(newer));
    }

    /// Takes what the daemon has acknowledged: whoever commits anyway commits that too.
    pub fn take_acked(&mut self) -> Option<u64> {
        match self.waiting.remove(&Kind::Acked) {
            Some(Pending::Acked(cmd_seq)) => Some(cmd_seq),
            _ => None,
        }
    }

    /// Begins the next one, if there is one. Commands are composed after `sent`, the last one that was sent, and only
    /// when there is room for them.
    pub fn next(
        &mut self,
        board: &Board,
        connection: &Connection,
        sent: u64,
        has_room: bool,
    ) -> Option<BoxedWork<Done>> {
        let work = self.take(has_room)?;
        let (board, own) = (board.clone(), connection.clone());
        Some(Box::pin(async move {
            match work.carry_out(&board, &own, sent).await {
                Ok(done) => done,
                Err(Error::Unavailable { .. } | Error::Conflict { .. }) => {
                    tokio::time::sleep(RETRY_AFTER).await;
                    Done::Again(work)
                }
                Err(error) => {
                    tracing::error!(%error, "something that a viber told could not be kept");
                    Done::Nothing
                }
            }
        }))
    }

    fn take(&mut self, has_room: bool) -> Option<Pending> {
        let first = self.waiting.first_entry()?;
        (has_room || *first.key() != Kind::Commands).then(|| first.remove())
    }
}

impl Pending {
    /// A file is another one now.
    pub fn heard(heard: FileReport) -> Self {
        Self::Heard(BTreeMap::from([(heard.path.clone(), heard)]))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Acked(_) => Kind::Acked,
            Self::Lists(_) => Kind::Lists,
            Self::Claims(_) => Kind::Claims,
            Self::Settle(_) => Kind::Settle,
            Self::Written(_) => Kind::Written,
            Self::Heard(_) => Kind::Heard,
            Self::Commands => Kind::Commands,
        }
    }

    /// Takes in what came later of the same kind.
    fn merge(&mut self, newer: Self) {
        match (self, newer) {
            (Self::Acked(cmd_seq), Self::Acked(newer)) => *cmd_seq = newer.max(*cmd_seq),
            (Self::Lists(lists), Self::Lists(newer)) => replace(lists, *newer),
            (Self::Claims(all), Self::Claims(newer)) | (Self::Settle(all), Self::Settle(newer)) => all.extend(newer),
            (Self::Written(all), Self::Written(newer)) => all.extend(newer),
            (Self::Heard(all), Self::Heard(newer)) => {
                for (path, heard) in newer {
                    if all.len() < MAX_PENDING_FILES || all.contains_key(&path) {
                        all.insert(path, heard);
                    }
                }
            }
            // Commands are read when it is their turn; two kinds never meet.
            _ => {}
        }
    }

    async fn carry_out(&self, board: &Board, own: &Connection, sent: u64) -> Result<Done> {
        match self {
            Self::Acked(cmd_seq) => reconcile::ack_commands(board, own, *cmd_seq).await?,
            Self::Lists(lists) => reconcile::lists(board, own, lists).await?,
            Self::Claims(claims) => reconcile::claims(board, own, claims).await?,
            Self::Settle(lost) => {
                let seen = LastSeen { team: &own.team, viber: &own.viber, epoch: own.epoch };
                reconcile::settle(board, seen, lost, AttemptVerdict::DaemonRestarted).await?;
            }
            Self::Written(written) => {
                file_reports::written(board, own, written).await?;
                return Ok(Done::Written(written.iter().map(|one| one.edit_id.clone()).collect()));
            }
            Self::Heard(heard) => file_reports::heard(board, own, heard.values().cloned().collect()).await?,
            Self::Commands => return Ok(Done::Commands(compose::next(board, own, sent).await?)),
        }
        Ok(Done::Nothing)
    }
}

/// A list that was told again is told anew; the others stay.
fn replace(lists: &mut ViberState, newer: ViberState) {
    let ViberState { agents, skills, jobs, providers, damage, confinement } = newer;
    lists.agents = agents.or(lists.agents.take());
    lists.skills = skills.or(lists.skills.take());
    lists.jobs = jobs.or(lists.jobs.take());
    lists.providers = providers.or(lists.providers.take());
    lists.damage = damage.or(lists.damage.take());
    lists.confinement = confinement.or(lists.confinement.take());
}

#[cfg(test)]
mod tests {
    use protocol::AgentInfo;

    use super::*;

    const TASK: &str = "task_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3";

    fn running(attempt: u32) -> Running {
        Running { task_id: TASK.parse().expect("an id"), attempt }
    }

    fn file(path: &str, size: u64) -> Pending {
        Pending::heard(FileReport { path: path.into(), hash: None, size, mtime: None, by: "file".into() })
    }

    fn agents(names: &[&str]) -> Option<Vec<AgentInfo>> {
        Some(names.iter().map(|name| AgentInfo { name: (*name).into(), ..AgentInfo::default() }).collect())
    }

    /// All that waits, in the order in which it is done.
    fn all(mut pending: PendingWork) -> Vec<Pending> {
        std::iter::from_fn(|| pending.take(true)).collect()
    }

    #[test]
    fn each_kind_has_its_turn_and_commands_wait_for_room() {
        let mut pending = PendingWork::default();
        pending.add(Pending::Commands);
        assert_eq!(pending.take(false), None);
        pending.add(file("a", 1));
        pending.add(Pending::Written(Vec::new()));
        pending.add(Pending::Settle(vec![running(1)]));
        pending.add(Pending::Claims(vec![running(2)]));
        pending.add(Pending::Lists(Box::default()));
        pending.add(Pending::Acked(1));
        let order: Vec<Kind> = std::iter::from_fn(|| pending.take(false)).map(|work| work.kind()).collect();
        assert_eq!(order, [Kind::Acked, Kind::Lists, Kind::Claims, Kind::Settle, Kind::Written, Kind::Heard]);
        assert_eq!(all(pending), [Pending::Commands]);
    }

    #[test]
    fn what_waits_merges_with_its_like() {
        let mut pending = PendingWork::default();
        for cmd_seq in [3, 7, 5] {
            pending.add(Pending::Acked(cmd_seq));
        }
        pending.add(Pending::Lists(Box::new(ViberState { agents: agents(&["a"]), ..ViberState::default() })));
        let damage = Some(Vec::new());
        pending.add(Pending::Lists(Box::new(ViberState { damage: damage.clone(), ..ViberState::default() })));
        pending.add(Pending::Lists(Box::new(ViberState { agents: agents(&["b"]), ..ViberState::default() })));
        pending.add(Pending::Claims(vec![running(1)]));
        pending.add(Pending::Settle(vec![running(2)]));
        pending.add(Pending::Claims(vec![running(3)]));
        pending.add(Pending::Commands);
        pending.add(Pending::Commands);
        let lists = ViberState { agents: agents(&["b"]), damage, ..ViberState::default() };
        let expected = [
            Pending::Acked(7),
            Pending::Lists(Box::new(lists)),
            Pending::Claims(vec![running(1), running(3)]),
            Pending::Settle(vec![running(2)]),
            Pending::Commands,
        ];
        assert_eq!(all(pending), expected);
    }

    #[test]
    fn what_is_put_back_lies_below_what_came_meanwhile() {
        let mut pending = PendingWork::default();
        pending.restore(Pending::Commands);
        pending.add(Pending::Acked(7));
        pending.restore(Pending::Acked(5));
        pending.add(Pending::Settle(vec![running(2)]));
        pending.restore(Pending::Settle(vec![running(1)]));
        pending.add(file("a", 2));
        let mut older = file("a", 1);
        older.merge(file("b", 1));
        pending.restore(older);
        let mut newest = file("a", 2);
        newest.merge(file("b", 1));
        let expected = [Pending::Acked(7), Pending::Settle(vec![running(1), running(2)]), newest, Pending::Commands];
        assert_eq!(all(pending), expected);
    }

    #[test]
    fn the_newest_of_a_file_counts_and_too_many_files_are_left_out() {
        let mut pending = PendingWork::default();
        for n in 0..MAX_PENDING_FILES + 2 {
            pending.add(file(&n.to_string(), 1));
        }
        pending.add(file("7", 2));
        let [Pending::Heard(heard)] = &all(pending)[..] else { panic!("one kind waits") };
        assert_eq!((heard.len(), heard["7"].size, heard["8"].size), (MAX_PENDING_FILES, 2, 1));
        assert!(!heard.contains_key(&MAX_PENDING_FILES.to_string()));
    }

    #[test]
    fn acks_go_with_a_change_that_is_made_anyway() {
        let mut pending = PendingWork::default();
        assert_eq!(pending.take_acked(), None);
        pending.add(Pending::Acked(2));
        pending.add(Pending::Commands);
        assert_eq!((pending.take_acked(), pending.take_acked()), (Some(2), None));
        assert_eq!(all(pending), [Pending::Commands]);
    }
}
