//! Preflight checks: what to know about a viber and an agent before submitting a task.

mod options;
mod skills;

use askama::Template;
use protocol::{AgentInfo, AgentMode, Capability, Instant, ViberId};

use crate::{
    db::{self, TeamTx, vibers::FoundVibers},
    domain::{ContactState, Viber, ViberFilter},
    error::Result,
    state::Board,
    web::pages::providers::{self, KeyCard},
    web::{
        extract::Caller,
        urls,
        view::{Badge, filters},
    },
};

pub use options::{AgentOptions, MAX_OFFERED_MODELS, OWN_MODEL};
pub use skills::{SkillWord, words as skill_words};

/// Vibers that the choice offers at once; the others are found by their words.
const MAX_OFFERED_VIBERS: usize = 30;
/// The agent that gets a task when none is named.
const DEFAULT_AGENT: &str = "default";
/// Longest id of an agent that is repeated, bytes.
const MAX_AGENT_BYTES: usize = 100;
/// Searches for one choice, each of which goes on where the one before it ended.
const MAX_SEARCHES: usize = 10;

/// The choice of viber and agent, and the facts about it: fetched anew after a choice.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/preflight/_choice.html")]
pub struct ViberChoice {
    pub slug: String,
    /// There are more vibers than are offered, or they were searched.
    pub is_searchable: bool,
    /// What their words were searched for.
    pub find: String,
    pub vibers: Vec<SelectOption>,
    pub options: AgentOptions,
    /// What a goal for the chosen agent can begin with.
    pub skills: Vec<SkillWord>,
    pub facts: Vec<Fact>,
    /// How to give the chosen agent a model, when it has none. It stands beside the form that the choice is part of.
    pub key_card: Option<KeyCard>,
    /// It replaces the one that is there, though something else was asked for.
    pub is_swapped: bool,
    pub now: Instant,
}

/// The answer to a choice.
#[derive(Debug, Template)]
#[template(path = "fleet/preflight/answer.html")]
pub struct ChoiceAnswer {
    pub choice: ViberChoice,
}

/// What is chosen, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChoiceQuery<'a> {
    /// Empty: whichever the Board chooses.
    pub viber: Option<&'a str>,
    pub agent: Option<&'a str>,
    /// `provider/model`; the agent's own when absent.
    pub model: Option<&'a str>,
    /// Words of the vibers that are offered.
    pub find: &'a str,
}

/// Vibers to choose from, in order of joining.
#[derive(Clone, Debug, Default)]
struct OfferedVibers {
    vibers: Vec<Viber>,
    /// There are others with these words.
    more: bool,
    /// The search ended before there were enough: there may be others.
    is_partial: bool,
    /// The team has rules for calls of tools that must be kept.
    is_restricted: bool,
}

/// An entry of a select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectOption {
    pub value: String,
    pub label: String,
    pub chosen: bool,
}

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// `wait` when it will hinder the task, `fail` when it will end it, `mute` when it is only good to know.
    pub tone: &'static str,
    pub icon: &'static str,
    pub lead: String,
    /// When `lead` became true.
    pub since: Option<Instant>,
    pub rest: String,
    pub link: Option<(String, &'static str)>,
    /// Commands that mend it, for people to copy.
    pub fixes: Vec<String>,
}

impl Fact {
    fn new(tone: &'static str, icon: &'static str, lead: impl Into<String>, rest: impl Into<String>) -> Self {
        Self { tone, icon, lead: lead.into(), since: None, rest: rest.into(), link: None, fixes: Vec::new() }
    }

    fn linked(mut self, to: String, words: &'static str) -> Self {
        self.link = Some((to, words));
        self
    }
}

impl ViberChoice {
    /// The choice among the team's vibers: connected ones before the others, and the one that is chosen already.
    pub async fn load(board: &Board, caller: &Caller, asked: ChoiceQuery<'_>) -> Result<Self> {
        let find = db::clean(protocol::text::head(asked.find.trim(), 200));
        let offered = {
            let mut tx = board.db.reader_of(&caller.team.id).await?;
            let online = search(&mut tx, ViberFilter::Online, &find, MAX_OFFERED_VIBERS).await?;
            let room = MAX_OFFERED_VIBERS.saturating_sub(online.vibers.len()).max(1);
            let offline = search(&mut tx, ViberFilter::Offline, &find, room).await?;
            let more = online.next.is_some() || offline.next.is_some();
            let is_partial = (online.next.is_some() && online.vibers.len() < MAX_OFFERED_VIBERS)
                || (offline.next.is_some() && offline.vibers.len() < room);
            let mut vibers = online.vibers;
            vibers.extend(offline.vibers);
            let named: Option<ViberId> = asked.viber.and_then(|id| id.parse().ok()).filter(|_| find.is_empty());
            if let Some(id) = named.filter(|id| vibers.iter().all(|viber| viber.id != *id)) {
                vibers.extend(db::vibers::load(&mut tx, &id).await?);
            }
            vibers.sort_by(|one, other| one.id.cmp(&other.id));
            // Of those in a list nobody knows the skills.
            if let Some(id) = chosen(&vibers, asked).map(|viber| viber.id.clone())
                && let Some(whole) = db::vibers::load(&mut tx, &id).await?
                && let Some(listed) = vibers.iter_mut().find(|viber| viber.id == id)
            {
                *listed = whole;
            }
            let is_restricted = db::approvals::settings::load(&mut tx).await?.is_restrictive();
            OfferedVibers { vibers, more, is_partial, is_restricted }
        };
        let asked = ChoiceQuery { find: &find, ..asked };
        let now = board.clock.now();
        Ok(Self::of(&caller.team.slug, &offered, asked, |viber, agent| KeyCard::of(caller, viber, agent), now))
    }

    /// With this viber and agent chosen, as far as they are offered.
    fn of(
        slug: &str,
        offered: &OfferedVibers,
        asked: ChoiceQuery<'_>,
        card: impl Fn(&Viber, Option<&AgentInfo>) -> Option<KeyCard>,
        now: Instant,
    ) -> Self {
        let vibers = offered.vibers.as_slice();
        let is_searchable = offered.more || !asked.find.is_empty();
        let chosen = chosen(vibers, asked);
        let option = |viber: &Viber| {
            let badge = Badge::contact(viber.contact.state, viber.drained);
            let state =
                if badge.state == "online" { String::new() } else { format!(" ({})", badge.word.to_lowercase()) };
            SelectOption {
                value: viber.id.to_string(),
                label: format!("{}{state}", viber.name),
                chosen: chosen.is_some_and(|chosen| chosen.id == viber.id),
            }
        };
        let mut options: Vec<SelectOption> = vibers.iter().map(option).collect();
        if vibers.len() > 1 || is_searchable {
            options.push(SelectOption {
                value: String::new(),
                label: "Any viber".to_owned(),
                chosen: chosen.is_none(),
            });
        }
        let agents = chosen.map(|viber| viber.agents.as_slice()).unwrap_or_default();
        let picked = agents
            .iter()
            .find(|known| Some(known.id.as_str()) == asked.agent)
            .or_else(|| agents.iter().find(|known| known.id == DEFAULT_AGENT))
            .or(agents.first());
        let mut facts = match chosen {
            Some(viber) => facts(slug, viber, picked),
            None if vibers.is_empty() => {
                let rest = " The Board chooses one, or you search for others.";
                let lead = if offered.is_partial { "No viber matches so far." } else { "No viber matches." };
                vec![Fact::new("mute", "info", lead, rest)]
            }
            None => vec![Fact::new(
                "mute",
                "info",
                "The Board chooses:",
                " a connected viber that is not drained, the least busy one.",
            )],
        };
        if let Some(fact) = missing_agent(asked.agent.unwrap_or_default(), chosen, picked) {
            facts.insert(0, fact);
        }
        if let Some(viber) = chosen.filter(|_| offered.is_restricted)
            && picked.is_some_and(|agent| !agent.capabilities.contains(&Capability::Approve))
        {
            let lead = format!("{} does not know the team's rules:", viber.name);
            let rest = " its daemon is too old to keep what the team forbids or wants to be asked about, so it is given no task.";
            let rules = urls::settings_page(slug, "approvals");
            facts.insert(0, Fact::new("fail", "lock", lead, rest).linked(rules, "The rules"));
        }
        if offered.is_partial {
            let list = format!("{}?q={}", urls::vibers(slug), urls::escape(asked.find));
            let fact = Fact::new("mute", "info", "Not all vibers were searched:", " the list of vibers goes on.");
            facts.push(fact.linked(list, "Search there"));
        }
        let answering = chosen.map(|viber| AgentOptions::of(viber, picked, asked.model)).unwrap_or_default();
        let skills = chosen.zip(picked).map(|(viber, agent)| skill_words(&viber.skills, &agent.id));
        Self {
            slug: slug.to_owned(),
            is_searchable,
            find: asked.find.to_owned(),
            vibers: options,
            options: answering,
            skills: skills.unwrap_or_default(),
            facts,
            key_card: chosen.and_then(|viber| card(viber, picked)),
            is_swapped: false,
            now,
        }
    }

    /// The tone of the gravest fact.
    fn tone(&self) -> &'static str {
        let has = |tone| self.facts.iter().any(|fact| fact.tone == tone);
        if has("fail") {
            "fail"
        } else if has("wait") {
            "wait"
        } else {
            "mute"
        }
    }
}

/// The first vibers with `words`: goes on behind those whose words one search reads.
async fn search(tx: &mut TeamTx<'_>, filter: ViberFilter, words: &str, limit: usize) -> Result<FoundVibers> {
    let mut found = FoundVibers { vibers: Vec::new(), next: None };
    for _ in 0..MAX_SEARCHES {
        let room = limit - found.vibers.len();
        let page = db::vibers::search(tx, filter, words, found.next.as_ref(), room).await?;
        found.vibers.extend(page.vibers);
        found.next = page.next;
        if found.next.is_none() || found.vibers.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// The viber that was asked for, if it is among these, else the best one; `None`: the Board chooses.
fn chosen<'v>(vibers: &'v [Viber], asked: ChoiceQuery<'_>) -> Option<&'v Viber> {
    match asked.viber {
        Some("") => None,
        Some(id) => vibers.iter().find(|viber| viber.id.as_str() == id).or_else(|| best(vibers, asked.agent)),
        None => best(vibers, asked.agent),
    }
}

/// Connected before not, with the agent that is asked for before without, taking tasks before drained, idle before busy.
fn best<'v>(vibers: &'v [Viber], agent: Option<&str>) -> Option<&'v Viber> {
    let has_agent = |viber: &Viber| viber.agents.iter().any(|known| Some(known.id.as_str()) == agent);
    vibers.iter().min_by_key(|viber| {
        let is_away = viber.contact.state != ContactState::Connected;
        (is_away, !has_agent(viber), viber.drained, viber.running + viber.queued)
    })
}

/// That another agent than the one that was asked for gets the task.
fn missing_agent(asked: &str, chosen: Option<&Viber>, picked: Option<&AgentInfo>) -> Option<Fact> {
    let agent = protocol::text::head(asked, MAX_AGENT_BYTES);
    let (lead, rest) = match (chosen, picked) {
        _ if asked.is_empty() => return None,
        (Some(_), Some(picked)) if picked.id == asked => return None,
        (Some(viber), Some(picked)) => {
            let rest = format!(" the task goes to {}. Choose another viber or agent.", picked.id);
            (format!("{} has no agent {agent}:", viber.name), rest)
        }
        (None, _) if asked != DEFAULT_AGENT => {
            let rest = format!(" the task goes to the {DEFAULT_AGENT} agent of the viber that the Board chooses.");
            (format!("To give it to {agent}, choose a viber:"), rest)
        }
        _ => return None,
    };
    Some(Fact::new("wait", "agent", lead, rest))
}

/// What one should know about this viber, the gravest first.
pub fn facts(slug: &str, viber: &Viber, agent: Option<&AgentInfo>) -> Vec<Fact> {
    let name = &viber.name;
    let page = || urls::viber(slug, &viber.id);
    let mut facts = Vec::new();
    if let Some(error) = agent.and_then(|agent| agent.error.as_ref()) {
        let place = if error.line > 0 { format!("{}, line {}", error.file, error.line) } else { error.file.clone() };
        facts.push(Fact::new("fail", "failed", "This agent takes no tasks.", format!(" {place}: {}", error.message)));
    } else if let Some(why) = agent.and_then(|agent| agent.refuses.as_ref()) {
        facts.push(Fact::new("fail", "failed", "This agent refuses tasks.", format!(" {why}")));
    }
    if viber.contact.state != ContactState::Connected {
        let lead = match viber.contact.state {
            ContactState::Unheard => format!("{name} has not been heard from since the Board restarted, "),
            _ => format!("{name} has been offline since "),
        };
        let mut fact = Fact::new("wait", "offline", lead, ": the task waits, and starts when the viber reconnects.");
        fact.since = Some(viber.contact.since);
        facts.push(fact);
    }
    if let Some(newest) = viber.damage.last() {
        let kept = protocol::text::head(&newest.file, 200);
        let rest = match viber.damage.len() {
            1 => format!(
                ": a file of the daemon. Everything intact in it was used and sent, and gaps are marked where they \
                 are. The original is kept on the machine as {kept}."
            ),
            n => format!(
                ": {n} files of the daemon. Everything intact in them was used and sent, and gaps are marked where \
                 they are. The originals are kept on the machine, the newest as {kept}; daemon-agent doctor lists them all."
            ),
        };
        let mut fact = Fact::new("wait", "note", format!("{name} found damage on its disk at "), rest);
        fact.since = Some(newest.at);
        facts.push(fact.linked(page(), "Its page"));
    }
    if viber.drained {
        let rest = " a task for it waits until the drain is ended.";
        facts.push(Fact::new("wait", "draining", format!("{name} is drained:"), rest).linked(page(), "Its page"));
    }
    if viber.cloned_at.is_some() {
        let rest = " its credential may have been copied. Revoke the viber and join again.";
        facts.push(
            Fact::new("fail", "conflict", format!("Two machines connect as {name}:"), rest).linked(page(), "Its page"),
        );
    }
    if viber.is_confined() == Some(false) {
        let rest = " its kernel does not confine commands, so they can access whatever its user can access.";
        facts.push(Fact::new("wait", "note", format!("{name} is unconfined:"), rest));
    }
    let Some(agent) = agent else {
        facts.push(Fact::new(
            "mute",
            "info",
            "",
            format!("{name} has not reported its agents yet; the task goes to its default agent."),
        ));
        return facts;
    };
    if agent.model.starts_with("demo/") {
        let rest = " scripted answers, real tools. Add a provider's key to talk to a real model.";
        let link = format!("{}#providers", page());
        facts.push(
            Fact::new("wait", "key", "This agent uses the built-in demo model:", rest).linked(link, "How to add one"),
        );
    }
    if let Some(provider) = providers::keyless_provider(viber, agent).filter(|_| agent.refuses.is_none()) {
        let rest = format!(" the model {} cannot be called until it has one.", agent.model);
        let link = format!("{}#providers", page());
        let lead = format!("{name} has no key for {}:", protocol::text::head(provider, 64));
        facts.push(Fact::new("fail", "key", lead, rest).linked(link, "How to add one"));
    }
    let needy = skills::needy(&viber.skills, agent);
    facts.extend(skills::facts(&needy, &urls::viber_skills(slug, &viber.id)));
    let is_told =
        |key: &str| key.strip_prefix("skills: ").is_some_and(|name| needy.iter().any(|skill| skill.name == name));
    let others: Vec<&str> = agent.not_in_effect.iter().map(String::as_str).filter(|key| !is_told(key)).collect();
    if !others.is_empty() {
        facts.push(Fact::new("mute", "info", "Not in effect yet:", format!(" {}.", others.join(", "))));
    }
    if viber.running > 0 {
        let rest =
            format!(" {} {} there now.", viber.running, if viber.running == 1 { "task runs" } else { "tasks run" });
        facts.push(Fact::new("mute", "working", "", rest.trim_start()));
    }
    facts.push(Fact::new("mute", "info", "", conduct(agent)));
    facts
}

/// How far an agent goes by itself.
pub fn conduct(agent: &AgentInfo) -> String {
    let asks = match agent.mode {
        AgentMode::AlwaysAsk => "Asks before every tool call",
        AgentMode::ViberDecides => "Asks before risky tool calls",
        AgentMode::AlwaysExecute => "Uses its tools without asking",
    };
    format!("{asks}, at most {} steps per task. Model: {}.", agent.max_steps, agent.model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_did_not_read_all_vibers_says_so() {
        let facts = |is_partial| {
            let offered = OfferedVibers { more: is_partial, is_partial, ..OfferedVibers::default() };
            let asked = ChoiceQuery { find: "a b", ..ChoiceQuery::default() };
            ViberChoice::of("home", &offered, asked, |_, _| None, Instant(0)).facts
        };
        let leads = |facts: &[Fact]| facts.iter().map(|fact| fact.lead.clone()).collect::<Vec<_>>();
        assert_eq!(leads(&facts(false)), ["No viber matches."]);
        let partial = facts(true);
        assert_eq!(leads(&partial), ["No viber matches so far.", "Not all vibers were searched:"]);
        assert_eq!(partial[1].link.as_ref().map(|(to, _)| to.as_str()), Some("/t/home/vibers?q=a%20b"));
    }
}
