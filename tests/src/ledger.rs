//! What the harness writes down outside the product, so that nobody has to believe the product about itself: submits that
//! were acknowledged, events that were acknowledged, what each viewer was shown, secrets that were handed out.
//!
//! Everybody who speaks to a Board shares the ledger of its address. [`crate::invariants`] compares it with the Board's rows.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest as _, Sha256};

use crate::{canary::Canary, person::StreamFrame};

/// SHA-256.
pub type Hash = [u8; 32];
/// A task and the number of its attempt.
pub type Attempt = (String, u32);

/// The ledger of one Board.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<LedgerEntries>);

/// All that it holds.
#[derive(Clone, Debug, Default)]
pub struct LedgerEntries {
    pub submits: Vec<Submit>,
    /// Submits whose answer did not come, or did not name the task: each may have made one.
    pub unsure: u64,
    /// Somebody submits whom the harness can't see.
    pub unseen: bool,
    /// What fake daemons sent, by attempt and seq; more than one hash when it was sent in different words.
    pub sent: BTreeMap<Attempt, BTreeMap<u64, Vec<Hash>>>,
    /// Up to where it was acknowledged.
    pub acked: BTreeMap<Attempt, u64>,
    /// Under which command numbers an attempt was handed to which viber.
    pub offers: BTreeMap<Attempt, BTreeSet<(String, u64)>>,
    /// Each opened stream of a task's events.
    pub views: Vec<Arc<Mutex<View>>>,
    pub secrets: Vec<Canary>,
    /// The root folders of real vibers, where their test builds note what they start.
    pub vibers: Vec<PathBuf>,
    /// How attempts had ended when it was last looked at: outcome and report.
    pub endings: BTreeMap<Attempt, (String, String)>,
    /// Lines of the log with one of these words are no surprise.
    pub expected: Vec<String>,
}

/// A submit that was answered 201.
#[derive(Clone, Debug)]
pub struct Submit {
    pub task: String,
    pub session: String,
    /// Who asked with which `Idempotency-Key`.
    pub key: Option<(String, String)>,
}

/// What one viewer of a task's events was shown.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub task: String,
    /// The cursor it came with.
    pub from: Option<String>,
    pub frames: Vec<StreamFrame>,
}

/// The ledger of the Board at `url`.
pub fn at(url: &str) -> Arc<Ledger> {
    lock(&BOARDS).entry(url.to_owned()).or_default().clone()
}

/// A new Board begins at `url`.
pub fn begin(url: &str) -> Arc<Ledger> {
    let ledger = Arc::new(Ledger::default());
    lock(&BOARDS).insert(url.to_owned(), ledger.clone());
    ledger
}

/// The Board of `ledger` is also reached at `url`.
pub fn alias(url: &str, ledger: &Arc<Ledger>) {
    lock(&BOARDS).insert(url.to_owned(), ledger.clone());
}

static BOARDS: LazyLock<Mutex<HashMap<String, Arc<Ledger>>>> = LazyLock::new(Mutex::default);

/// A test that failed while it wrote does not hide what others wrote.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, LedgerEntries> {
        lock(&self.0)
    }

    /// All of it, as it now is.
    pub fn read(&self) -> LedgerEntries {
        self.entries().clone()
    }

    /// From now on somebody submits whom the harness can't see: tasks beyond the acknowledged ones prove nothing.
    pub fn somebody_else_submits(&self) {
        self.entries().unseen = true;
    }

    /// The test makes the Board write lines with `word` (a panic that it asked for).
    pub fn expect_in_log(&self, word: &str) {
        self.entries().expected.push(word.to_owned());
    }

    /// A secret that was handed out: it may stand nowhere in the Board's log, database or folder. Short ones could stand
    /// anywhere by chance and are not watched.
    pub fn secret(&self, kind: &'static str, secret: &str) {
        let mut entries = self.entries();
        if secret.len() >= 16 && entries.secrets.iter().all(|known| known.secret != secret) {
            entries.secrets.push(Canary::of(kind, secret));
        }
    }

    /// A real viber belongs to this Board.
    pub fn viber(&self, root: PathBuf) {
        let mut entries = self.entries();
        if !entries.vibers.contains(&root) {
            entries.vibers.push(root);
        }
    }

    /// A request that may make a task is on its way.
    pub(crate) fn asked(&self) {
        self.entries().unsure += 1;
    }

    /// It was answered: with a task, or with a refusal.
    pub(crate) fn answered(&self, task: Option<Submit>) {
        let mut entries = self.entries();
        entries.unsure = entries.unsure.saturating_sub(1);
        entries.submits.extend(task);
    }

    /// A fake daemon sends an event.
    pub(crate) fn sent(&self, task: &str, attempt: u32, seq: u64, bytes: &str) {
        let mut entries = self.entries();
        let at = (task.to_owned(), attempt);
        if entries.acked.get(&at).is_some_and(|acked| seq <= *acked) {
            return;
        }
        let hash = hash(bytes);
        let known = entries.sent.entry(at).or_default().entry(seq).or_default();
        if !known.contains(&hash) {
            known.push(hash);
        }
    }

    /// The Board says that it has recorded an attempt up to `seq`.
    pub(crate) fn acked(&self, task: &str, attempt: u32, seq: u64) {
        let mut entries = self.entries();
        let acked = entries.acked.entry((task.to_owned(), attempt)).or_default();
        *acked = (*acked).max(seq);
    }

    /// The Board hands an attempt to a viber.
    pub(crate) fn offered(&self, task: &str, attempt: u32, viber: &str, cmd_seq: u64) {
        self.entries().offers.entry((task.to_owned(), attempt)).or_default().insert((viber.to_owned(), cmd_seq));
    }

    /// A viewer looks at a task's events.
    pub(crate) fn view(&self, task: &str, from: Option<&str>) -> Arc<Mutex<View>> {
        let view = View { task: task.to_owned(), from: from.map(str::to_owned), frames: Vec::new() };
        let view = Arc::new(Mutex::new(view));
        self.entries().views.push(view.clone());
        view
    }

    /// How attempts had ended, for the next look.
    pub(crate) fn endings(&self, endings: BTreeMap<Attempt, (String, String)>) {
        self.entries().endings = endings;
    }
}

/// SHA-256 of a text.
pub fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}
