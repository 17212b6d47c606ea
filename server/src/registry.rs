//! The registry of skills that the administrator named, and the only thing that is asked of it: one version of a skill,
//! as a zip.
//!
//! Nowhere else does the Board call somebody because a person says so, and nobody says an address: people name a skill,
//! the origin is the administrator's, redirects lead nowhere else, and every address is looked at once its name is
//! resolved (`address.rs`). Nothing of the Board goes along, neither cookies nor credentials nor what a proxy would
//! add. Knows no SQL, and does not read what arrives: that is taken in like an upload.
//!
//! The call is ClawHub's `GET /api/v1/download?slug=…&version=…`, which needs no account: docs/http-api.md of
//! github.com/openclaw/clawhub, *Public endpoints*, read in November 2026. It answers with a zip, and with 410 for a
//! version that was taken back. The other statuses are in that repository's `convex/downloads.ts`: 404 for what it does
//! not have, 409 where several publishers have a skill of that name (`ownerHandle` tells them apart), 403 for one that
//! is blocked or hidden, 423 while one is being checked; and 429 with `Retry-After`.

mod address;
mod reference;

use std::{
    collections::HashMap,
    error::Error as StdError,
    iter,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::TeamId;
use reqwest::{Client, Response, StatusCode, Url, header, redirect};
use tokio::{sync::Semaphore, time::timeout};

pub use self::{address::RegistryAddress, reference::RegistryReference};

/// How long a fetch may take in all, with the wait for a place.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Fetches of a team at once.
const MAX_FETCHES_OF_A_TEAM: usize = 2;
/// Fetches of all teams at once: each may hold a whole archive in memory.
const MAX_FETCHES: usize = 4;
/// Redirects within the registry that are followed.
const MAX_REDIRECTS: usize = 3;
/// When it makes sense to ask again, if nobody says so, seconds.
const RETRY_AFTER: u64 = 30;
/// Longest pause that a registry can ask for, seconds.
const MAX_RETRY_AFTER: u64 = 3_600;

/// Why there is no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryError {
    /// The registry has no such skill, or not in this version.
    Missing,
    /// It has the version and does not hand it out.
    Withheld,
    /// Several publishers have a skill of this name.
    Ambiguous,
    /// The archive is larger than it may be.
    TooLarge,
    /// The team fetches as many as it may.
    Busy,
    /// There was no answer of a registry: what it did instead, and seconds until asking again makes sense.
    Away { why: &'static str, retry_after: u64 },
}

/// The registry, and who fetches from it now.
pub struct SkillRegistry {
    address: RegistryAddress,
    /// Made when it is needed first: it reads the machine's certificates.
    client: Mutex<Option<Client>>,
    places: Semaphore,
    fetching: Mutex<HashMap<TeamId, usize>>,
}

/// One fetch of a team, for as long as it takes.
struct TeamFetch<'r> {
    fetching: &'r Mutex<HashMap<TeamId, usize>>,
    team: TeamId,
}

impl SkillRegistry {
    /// The registry at this address. Calls nobody yet.
    pub fn at(address: RegistryAddress) -> Self {
        Self { address, client: Mutex::default(), places: Semaphore::new(MAX_FETCHES), fetching: Mutex::default() }
    }

    /// What people read of where it is.
    pub fn host(&self) -> &str {
        self.address.host()
    }

    /// The archive of one version, of at most `max_bytes`. Takes up to 30 s.
    pub async fn fetch(
        &self,
        team: &TeamId,
        wanted: &RegistryReference,
        max_bytes: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let _fetch = self.begin(team)?;
        let fetched = timeout(FETCH_TIMEOUT, self.download(wanted, max_bytes)).await;
        fetched.unwrap_or_else(|_| Err(away("took longer than 30 s")))
    }

    fn begin(&self, team: &TeamId) -> Result<TeamFetch<'_>, RegistryError> {
        let mut fetching = lock(&self.fetching);
        let count = fetching.entry(team.clone()).or_default();
        if *count >= MAX_FETCHES_OF_A_TEAM {
            return Err(RegistryError::Busy);
        }
        *count += 1;
        Ok(TeamFetch { fetching: &self.fetching, team: team.clone() })
    }

    async fn download(&self, wanted: &RegistryReference, max_bytes: u64) -> Result<Vec<u8>, RegistryError> {
        let _place = self.places.acquire().await.map_err(|_| away("cannot be asked"))?;
        let asked = self.client()?.get(self.url(wanted)).header(header::ACCEPT, "application/zip").send().await;
        let mut answer = asked.map_err(|error| failed(&error))?;
        if let Some(refused) = refusal(&answer) {
            return Err(refused);
        }
        if answer.content_length().is_some_and(|length| length > max_bytes) {
            return Err(RegistryError::TooLarge);
        }
        let mut archive = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| failed(&error))? {
            // What it said of the length need not be true.
            if (archive.len() + piece.len()) as u64 > max_bytes {
                return Err(RegistryError::TooLarge);
            }
            archive.extend_from_slice(&piece);
        }
        Ok(archive)
    }

    fn url(&self, wanted: &RegistryReference) -> Url {
        let mut url = self.address.origin().clone();
        url.set_path("/api/v1/download");
        let owner = wanted.owner.as_deref().map(|owner| ("ownerHandle", owner));
        let named = [("slug", wanted.slug.as_str()), ("version", wanted.version.as_str())];
        url.query_pairs_mut().extend_pairs(named).extend_pairs(owner);
        url
    }

    fn client(&self) -> Result<Client, RegistryError> {
        let mut kept = lock(&self.client);
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let origin = self.address.origin().origin();
        let within = move |attempt: redirect::Attempt<'_>| {
            if attempt.url().origin() != origin {
                attempt.error("it leads to another site")
            } else if attempt.previous().len() > MAX_REDIRECTS {
                attempt.error("it leads from one place to the next")
            } else {
                attempt.follow()
            }
        };
        let client = Client::builder()
            .user_agent("viber-board")
            .redirect(redirect::Policy::custom(within))
            .referer(false)
            // A proxy would resolve the name itself, and nobody could look at the address.
            .no_proxy()
            .dns_resolver(self.address.resolver())
            .connect_timeout(CONNECT_TIMEOUT)
            // An archive is packed already.
            .no_gzip()
            .pool_max_idle_per_host(0)
            .build();
        let client = client.map_err(|error| failed(&error))?;
        *kept = Some(client.clone());
        Ok(client)
    }
}

impl Drop for TeamFetch<'_> {
    fn drop(&mut self) {
        let mut fetching = lock(self.fetching);
        if let Some(count) = fetching.get_mut(&self.team) {
            *count -= 1;
            if *count == 0 {
                fetching.remove(&self.team);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn away(why: &'static str) -> RegistryError {
    RegistryError::Away { why, retry_after: RETRY_AFTER }
}

/// What an answer without an archive means; `None` if it has one.
fn refusal(answer: &Response) -> Option<RegistryError> {
    let status = answer.status();
    Some(match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => RegistryError::Missing,
        StatusCode::FORBIDDEN | StatusCode::LOCKED | StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS => {
            RegistryError::Withheld
        }
        StatusCode::CONFLICT => RegistryError::Ambiguous,
        StatusCode::TOO_MANY_REQUESTS => RegistryError::Away { why: "was asked too often", retry_after: pause(answer) },
        _ if status.is_success() => return None,
        _ => {
            tracing::warn!(status = status.as_u16(), "the registry of skills does not answer as one");
            away("does not answer as a registry does")
        }
    })
}

/// How long the registry wants to be left alone, seconds.
fn pause(answer: &Response) -> u64 {
    let said = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    said.unwrap_or(RETRY_AFTER).clamp(1, MAX_RETRY_AFTER)
}

/// A request that brought no answer, or none to its end. The log has the cause; whoever asked learns in general what it
/// was.
fn failed(error: &reqwest::Error) -> RegistryError {
    let causes = iter::successors(Some(error as &dyn StdError), |&error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    tracing::warn!(cause = causes.join(": "), "the registry of skills could not be read");
    away(if error.is_redirect() {
        "leads elsewhere"
    } else if error.is_timeout() {
        "does not answer"
    } else if error.is_connect() {
        "cannot be reached"
    } else {
        "broke off"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_fetches_two_at_once_and_the_next_when_one_has_ended() {
        let registry = SkillRegistry::at(RegistryAddress::parse("https://skills.example").expect("good"));
        let (team, other) = (TeamId::new(1), TeamId::new(2));
        let first = registry.begin(&team).expect("the first");
        let _second = registry.begin(&team).expect("the second");
        assert_eq!(registry.begin(&team).err(), Some(RegistryError::Busy));
        assert!(registry.begin(&other).is_ok(), "teams do not count together");
        drop(first);
        assert!(registry.begin(&team).is_ok());
        assert_eq!(lock(&registry.fetching).len(), 1, "who fetches nothing is not kept");
    }

    #[test]
    fn a_skill_is_asked_for_by_name_and_nothing_else() {
        let registry = SkillRegistry::at(RegistryAddress::parse("https://skills.example:8443").expect("good"));
        let url = |source: &str| registry.url(&source.parse().expect("a reference")).to_string();
        let at = "https://skills.example:8443/api/v1/download";
        assert_eq!(url("clawhub:release-notes@1.4.2"), format!("{at}?slug=release-notes&version=1.4.2"));
        assert_eq!(url("clawhub:a.b_c@1.0.0+x"), format!("{at}?slug=a.b_c&version=1.0.0%2Bx"));
        assert_eq!(url("clawhub:@ines/a@1.0.0-rc.1"), format!("{at}?slug=a&version=1.0.0-rc.1&ownerHandle=ines"));
    }
}
