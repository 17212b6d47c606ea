//! The state that every module of the Board shares. Cheap to clone.

use std::{ops::Deref, sync::Arc};

use arc_swap::ArcSwap;
use protocol::{LoginId, OperatorId, TeamId};

use crate::{
    artifacts::{BlobStore, StoreAddress},
    clock::Clock,
    config::{Config, Reloadable},
    db::{Change, Db, DbError, TxFuture},
    domain::{By, Login, Operator, Role, Team, Token},
    guard::{Cache, Keys, LoginLimits, Passwords},
    hub::{Hub, RunWatch, TreeWatch},
    lifecycle::Lifecycle,
    registry::{RegistryAddress, SkillRegistry},
};

/// A running Board. One counter is raised for a clone: each request makes several.
#[derive(Clone)]
pub struct Board(Arc<BoardParts>);

/// What a Board consists of.
pub struct BoardParts {
    pub db: Db,
    pub hub: Hub,
    /// Which tasks belong to runs of playbooks.
    pub runs: RunWatch,
    /// Which tasks belong to trees, because agents asked others for them.
    pub trees: TreeWatch,
    pub clock: Clock,
    /// As it was at the start. What SIGHUP can change is in `reloadable`.
    pub config: Config,
    pub reloadable: ArcSwap<Reloadable>,
    pub guard: Guard,
    pub store: BlobStore,
    /// If the administrator named one.
    pub registry: Option<SkillRegistry>,
    pub shutdown: Lifecycle,
}

impl Deref for Board {
    type Target = BoardParts;

    fn deref(&self) -> &BoardParts {
        &self.0
    }
}

/// What signing in needs, and a short-lived cache of who is signed in.
#[derive(Debug)]
pub struct Guard {
    keys: ArcSwap<Keys>,
    pub passwords: Passwords,
    pub login_limits: LoginLimits,
    /// Valid logins; `None` for one that is not valid.
    pub logins: Cache<LoginId, Option<Arc<(Login, Operator)>>>,
    /// An operator's team by slug.
    pub members: Cache<(OperatorId, String), Option<Arc<(Team, Role)>>>,
    /// Tokens by the hash of their secret.
    pub tokens: Cache<String, Option<Arc<(Team, Token)>>>,
}

impl Guard {
    /// With empty caches.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys: ArcSwap::from_pointee(keys),
            passwords: Passwords::new(),
            login_limits: LoginLimits::default(),
            logins: Cache::default(),
            members: Cache::default(),
            tokens: Cache::default(),
        }
    }

    /// The keys as they are now.
    pub fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Replaces the keys; requests under way finish with those they started with.
    pub fn use_keys(&self, keys: Keys) {
        self.keys.store(Arc::new(keys));
    }

    /// Empties the caches, because a login, membership, role, team or token changed.
    pub fn forget(&self) {
        self.logins.forget();
        self.members.forget();
        self.tokens.forget();
    }
}

impl Board {
    /// A Board over an open database. Starts nothing.
    pub fn new(config: Config, db: Db, keys: Keys, clock: Clock) -> Self {
        // `serve` refuses an address that cannot be read before it comes here.
        let address = config.artifacts.as_deref().and_then(|url| StoreAddress::parse(url).ok());
        let address = address.unwrap_or_else(|| StoreAddress::beside(&config.data));
        // The same of a registry.
        let registry = config.skill_registry.as_deref().and_then(|url| RegistryAddress::parse(url).ok());
        Self(Arc::new(BoardParts {
            store: BlobStore::new(address, &config.data),
            registry: registry.map(SkillRegistry::at),
            db,
            hub: Hub::default(),
            runs: RunWatch::default(),
            trees: TreeWatch::default(),
            clock,
            reloadable: ArcSwap::from_pointee(config.reloadable()),
            config,
            guard: Guard::new(keys),
            shutdown: Lifecycle::default(),
        }))
    }

    /// A change of a team, made by somebody now: see [`Db::write`].
    #[track_caller]
    pub fn change<'b, T, E, F>(
        &'b self,
        team: &TeamId,
        by: &By,
        work: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<'b, T, E, F>
    where
        F: for<'a> Fn(&'a mut Change<'_>) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.db.change(team, by, self.clock.now(), work)
    }

    /// The same as a piece of long work: see [`Db::piece`].
    #[track_caller]
    pub fn piece<'b, T, E, F>(
        &'b self,
        team: &TeamId,
        by: &By,
        work: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<'b, T, E, F>
    where
        F: for<'a> Fn(&'a mut Change<'_>) -> TxFuture<'a, Result<T, E>> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.db.piece_of(team, by, self.clock.now(), work)
    }
}
