//! What a session's page needs of the database, cached while the database does not change.
//!
//! Nothing that depends on the time or belongs to one answer is cached. Whether the database is still the same is
//! asked each time, in one statement.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use protocol::{OperatorId, SessionId, TeamId};

use crate::{
    db,
    domain::Role,
    error::Result,
    state::Board,
    web::pages::{
        conversation::{Conversation, PageEnd, RenderedMessages},
        pane,
    },
    web::{
        extract::Caller,
        view::{Shell, ShellData},
    },
};

/// HTML in a generation, bytes; the older one is dropped when the newer is full. A conversation takes a few times more.
const GENERATION_BYTES: usize = 4 * 1024 * 1024;

/// A conversation and the frame around it, as they are in one version of the database.
pub struct SessionPageData {
    pub conversation: Conversation,
    pub frame: ShellData,
    /// The messages as this reader sees them, oldest first.
    pub messages: Vec<String>,
    /// The seq of the first one.
    pub first: u64,
    /// What the pane beside it shows.
    pub pane: pane::PaneData,
}

/// Everything that a reader's view depends on: two readers with the same key see the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    team: TeamId,
    slug: String,
    session: SessionId,
    before: Option<PageEnd>,
    pane: pane::PaneSelection,
    reader: Option<OperatorId>,
    may_send: bool,
    /// The rail groups sessions by day.
    day: i64,
}

/// What was read lately: two generations, bounded by bytes. Ids are unique, and so are versions of states, so that
/// several Boards of one process may share it.
static CACHE: LazyLock<Mutex<Cache<SessionPageData>>> = LazyLock::new(Mutex::default);

struct Cache<T> {
    newer: HashMap<Key, (db::DataVersion, Arc<T>)>,
    older: HashMap<Key, (db::DataVersion, Arc<T>)>,
    /// Bytes that were put into `newer`.
    bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), bytes: 0 }
    }
}

impl SessionPageData {
    /// The newest page of a conversation, or the one before the message `before`.
    pub async fn load(
        board: &Board,
        caller: &Caller,
        id: &SessionId,
        before: Option<PageEnd>,
        pane: &pane::PaneSelection,
    ) -> Result<Arc<Self>> {
        let key = Key {
            team: caller.team.id.clone(),
            slug: caller.team.slug.clone(),
            session: id.clone(),
            before,
            pane: pane.clone(),
            reader: caller.reader().cloned(),
            may_send: caller.role >= Role::Operator,
            day: Shell::day(board.clock.now()),
        };
        // Asked before anything is read: what is cached is at least as new as its version.
        let version = board.db.version().await?;
        let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = cache().get(&key, &version) {
            return Ok(read);
        }
        let conversation = Conversation::load(board, &caller.team.id, id, before).await?;
        let frame = ShellData::load(board, caller).await?;
        let RenderedMessages { html: messages, first } = conversation.carried(caller);
        let bytes = messages.iter().map(String::len).sum();
        let pane = pane::PaneData::load(board, &caller.team.id, &conversation.session, pane).await?;
        let read = Arc::new(Self { conversation, frame, messages, first, pane });
        cache().put(key, version, read.clone(), bytes);
        Ok(read)
    }
}

impl<T> Cache<T> {
    fn get(&self, key: &Key, version: &db::DataVersion) -> Option<Arc<T>> {
        let (of, read) = self.newer.get(key).or_else(|| self.older.get(key))?;
        (of == version).then(|| read.clone())
    }

    fn put(&mut self, key: Key, version: db::DataVersion, read: Arc<T>, bytes: usize) {
        if self.bytes + bytes > GENERATION_BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.newer.insert(key, (version, read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_read_stands_until_anybody_commits() {
        let folder = tempfile::tempdir().expect("a folder");
        let db = db::Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
        let (team, slug, session) = (TeamId::new(1), "home".to_owned(), SessionId::new(1));
        let key = Key {
            team,
            slug,
            session,
            before: None,
            pane: pane::PaneSelection::default(),
            reader: None,
            may_send: true,
            day: 1,
        };
        let version = db.version().await.expect("a version");
        let mut cache = Cache::default();
        cache.put(key.clone(), version.clone(), Arc::new("a page"), 1);
        assert_eq!(cache.get(&key, &db.version().await.expect("a version")).as_deref(), Some(&"a page"));
        assert!(cache.get(&Key { may_send: false, ..key.clone() }, &version).is_none(), "another reader");
        db.write(|tx| Box::pin(async move { db::settings::set(tx, "a", "b").await })).await.expect("a change");
        assert!(cache.get(&key, &db.version().await.expect("a version")).is_none(), "it changed");
        for _ in 0..4 {
            let other = Key { session: SessionId::new(2), ..key.clone() };
            cache.put(other, version.clone(), Arc::new("large"), GENERATION_BYTES);
        }
        assert!(cache.newer.len() + cache.older.len() <= 2, "it is bounded");
    }
}
