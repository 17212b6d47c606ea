//! What a session's page needs of the database, kept from one reader to the next. Nothing that depends on the time or
//! belongs to one answer is kept.
//!
//! While nobody commits anything, a page's data stands as it is; one statement asks that. After a commit everything small is
//! read again. The messages are not: their HTML stands while all that it was made of does, which the session's version and a
//! few small rows tell. When these differ, messages that are still the same keep theirs.

use std::{
    collections::HashMap,
    fmt::{self, Debug, Write as _},
    hash::Hash,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use protocol::{OperatorId, SessionId, TeamId};

use crate::{
    db::{self, tasks::message_modes::ChosenModes},
    domain::{Artifact, Role},
    error::Result,
    state::Board,
    web::pages::{
        conversation::{Conversation, MessageInputs, PageEnd, RenderedMessages},
        pane,
        session::composer,
    },
    web::{
        extract::Caller,
        view::{Shell, ShellData},
    },
};

/// Bytes in a generation; the older one is dropped when the newer is full. Pages and messages together take 16 MiB at most.
const GENERATION_BYTES: usize = 4 * 1024 * 1024;

/// A conversation and the frame around it, as they are in one version of the database.
pub struct SessionPageData {
    /// Without its messages.
    pub conversation: Conversation,
    pub frame: ShellData,
    /// The messages as this reader sees them.
    pub messages: Arc<RenderedMessages>,
    /// What the pane beside it shows.
    pub pane: pane::PaneData,
    /// Files that go with the next message.
    pub waiting: Vec<Artifact>,
    /// When a task is told what this reader sends with Enter.
    pub modes: ChosenModes,
}

/// Everything that a reader's view depends on: two readers with the same key see the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    messages: MessagesKey,
    pane: pane::PaneSelection,
    reader: Option<OperatorId>,
    /// The rail groups sessions by day.
    day: i64,
}

/// Everything that the HTML of messages depends on besides the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MessagesKey {
    team: TeamId,
    slug: String,
    session: SessionId,
    before: Option<PageEnd>,
    may_send: bool,
}

/// A page's data, and the version of the database that it is of.
type KeptPage = (db::DataVersion, Arc<SessionPageData>);

/// A page's messages, and what else they were made of.
struct KeptMessages {
    /// `None`: one of them grew.
    inputs: Option<MessageInputs>,
    rendered: Arc<RenderedMessages>,
}

/// Ids are unique, and so are versions of the database, so that several Boards of one process may share them.
static PAGES: LazyLock<Mutex<Generations<PageKey, KeptPage>>> = LazyLock::new(Mutex::default);
static MESSAGES: LazyLock<Mutex<Generations<MessagesKey, Arc<KeptMessages>>>> = LazyLock::new(Mutex::default);

/// What was used lately: two generations, bounded by bytes.
struct Generations<K, V> {
    /// Each with its bytes.
    newer: HashMap<K, (V, usize)>,
    older: HashMap<K, (V, usize)>,
    /// Bytes in `newer`.
    bytes: usize,
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
        let key = PageKey {
            messages: MessagesKey {
                team: caller.team.id.clone(),
                slug: caller.team.slug.clone(),
                session: id.clone(),
                before,
                may_send: caller.role >= Role::Operator,
            },
            pane: pane.clone(),
            reader: caller.reader().cloned(),
            day: Shell::day(board.clock.now()),
        };
        // Asked before anything is read: what is kept is at least as new as its version.
        let version = board.db.version().await?;
        let kept = lock(&PAGES).get(&key);
        if let Some((_, page)) = kept.filter(|(of, _)| *of == version) {
            return Ok(page);
        }
        let mut conversation = Conversation::load(board, &caller.team.id, id, before).await?;
        let messages = rendered(board, caller, &mut conversation, &key.messages).await?;
        let frame = ShellData::load(board, caller).await?;
        let pane = pane::PaneData::load(board, &caller.team.id, &conversation.session, caller.reader(), pane).await?;
        let waiting = composer::waiting(board, &caller.team.id, id).await?;
        let modes = composer::modes(board, caller, id).await?;
        let page = Arc::new(Self { conversation, frame, messages, pane, waiting, modes });
        let bytes = page.bytes();
        lock(&PAGES).put(key, (version, page.clone()), bytes);
        Ok(page)
    }

    /// About how many bytes it takes.
    fn bytes(&self) -> usize {
        self.messages.bytes() + self.frame.bytes() + debug_bytes(&(&self.conversation, &self.pane, &self.waiting))
    }
}

/// The messages of a page as HTML: kept, or read and made. They are not left in the conversation.
async fn rendered(
    board: &Board,
    caller: &Caller,
    conversation: &mut Conversation,
    key: &MessagesKey,
) -> Result<Arc<RenderedMessages>> {
    let inputs = conversation.message_inputs();
    let kept = lock(&MESSAGES).get(key);
    if let Some(kept) = &kept
        && inputs.is_some()
        && inputs == kept.inputs
    {
        return Ok(kept.rendered.clone());
    }
    let earlier = kept.as_ref().map(|kept| &*kept.rendered);
    let rendered = Arc::new(conversation.render(board, caller, key.before, earlier).await?);
    conversation.forget_messages();
    let bytes = rendered.bytes() + debug_bytes(&inputs);
    let kept = Arc::new(KeptMessages { inputs, rendered: rendered.clone() });
    lock(&MESSAGES).put(key.clone(), kept, bytes);
    Ok(rendered)
}

fn lock<T>(cache: &Mutex<T>) -> MutexGuard<'_, T> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// About how many bytes a value takes: those of its `Debug` form, which has every field.
fn debug_bytes(value: &impl Debug) -> usize {
    struct ByteCounter(usize);

    impl fmt::Write for ByteCounter {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }

    let mut counter = ByteCounter(0);
    // Counting cannot fail.
    let _ = write!(counter, "{value:?}");
    counter.0
}

impl<K: Eq + Hash, V: Clone> Generations<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.newer.get(key) {
            return Some(value.clone());
        }
        let (key, (value, bytes)) = self.older.remove_entry(key)?;
        self.put(key, value.clone(), bytes);
        Some(value)
    }

    /// Keeps a value of at most a generation's bytes; one that the key had is replaced.
    fn put(&mut self, key: K, value: V, bytes: usize) {
        self.older.remove(&key);
        if let Some((_, replaced)) = self.newer.remove(&key) {
            self.bytes -= replaced;
        }
        if bytes > GENERATION_BYTES {
            return;
        }
        if self.bytes + bytes > GENERATION_BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.newer.insert(key, (value, bytes));
    }
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_bounded_by_bytes_and_keeps_what_is_used() {
        let mut cache = Generations::default();
        cache.put(0, "used", 1);
        for n in 1..100 {
            cache.put(n, "large", GENERATION_BYTES / 3);
            assert_eq!(cache.get(&0), Some("used"), "dropped after {n}");
            let kept: usize = cache.newer.values().chain(cache.older.values()).map(|(_, bytes)| bytes).sum();
            assert!(kept <= 2 * GENERATION_BYTES, "{kept} bytes after {n}");
        }
        assert_eq!(cache.get(&1), None, "it was not used");
        cache.put(0, "too large", GENERATION_BYTES + 1);
        assert_eq!(cache.get(&0), None, "neither the old value nor the new one");
    }

    #[test]
    fn a_value_that_replaces_another_takes_its_room() {
        let mut cache = Generations::default();
        cache.put("a neighbour", 0, 1);
        for n in 0..100 {
            cache.put("changes often", n, GENERATION_BYTES / 2);
            assert_eq!(cache.newer.get("changes often").map(|(value, _)| *value), Some(n));
        }
        assert_eq!((cache.newer.len(), cache.older.len()), (2, 0), "nobody else is dropped for it");
        assert_eq!(cache.bytes, GENERATION_BYTES / 2 + 1);
    }

    #[test]
    fn the_bytes_of_all_texts_are_counted() {
        let texts = (vec!["x".repeat(1000)], Some("y".repeat(500)), HashMap::from([(1, "z".repeat(100))]));
        assert!((1600..1700).contains(&debug_bytes(&texts)), "{}", debug_bytes(&texts));
    }
}
