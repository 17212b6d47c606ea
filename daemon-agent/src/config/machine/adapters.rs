//! The section `adapters:` of `config.yaml`: the machine's own ways to operators.

use std::net::SocketAddr;

use protocol::{ConfigError, agent::is_id};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::config::{Variables, yaml::YamlFile};

/// Where Slack's Web API is.
const SLACK_API: &str = "https://slack.com/api";
/// Origins, channels or people that one list names at most.
const MAX_LISTED: usize = 200;

/// The section, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdaptersConfig {
    pub websocket: Option<WebSocketConfig>,
    /// The Slack, or why it cannot be used: a file that several machines share names variables that not all of them have.
    pub slack: Option<Result<SlackConfig, String>>,
}

/// A WebSocket for programs of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketConfig {
    /// On loopback.
    pub listen: SocketAddr,
    /// Web pages that may connect, such as `http://localhost:3000`.
    pub origins: Vec<String>,
}

/// A Slack app in Socket Mode.
#[derive(Clone, PartialEq, Eq)]
pub struct SlackConfig {
    /// `xapp-…`
    pub app_token: String,
    /// `xoxb-…`
    pub bot_token: String,
    /// The agent that answers there.
    pub agent: String,
    /// Channels that it is heard in; none: every one that it is in.
    pub channels: Vec<String>,
    /// People who may talk to it; none: nobody.
    pub users: Vec<String>,
    /// People who may decide what it asks; none: nobody.
    pub approvers: Vec<String>,
    /// Without a trailing slash.
    pub api_url: String,
}

impl std::fmt::Debug for SlackConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlackConfig")
            .field("agent", &self.agent)
            .field("channels", &self.channels)
            .finish_non_exhaustive()
    }
}

/// The section as written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AdaptersSection {
    websocket: Option<Spanned<WebSocketSection>>,
    slack: Option<Spanned<SlackSection>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebSocketSection {
    listen: Spanned<String>,
    #[serde(default)]
    origins: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SlackSection {
    app_token: Spanned<String>,
    bot_token: Spanned<String>,
    #[serde(default)]
    agent: Option<Spanned<String>>,
    #[serde(default)]
    channels: Vec<Spanned<String>>,
    #[serde(default)]
    users: Vec<Spanned<String>>,
    #[serde(default)]
    approvers: Vec<Spanned<String>>,
    #[serde(default)]
    api_url: Option<Spanned<String>>,
}

impl AdaptersSection {
    /// Returns the checked section, or what is wrong with it.
    pub(super) fn check(&self, source: &YamlFile, variables: &Variables) -> Result<AdaptersConfig, ConfigError> {
        let websocket = self.websocket.as_ref().map(|section| section.value.check(source)).transpose()?;
        let slack = self.slack.as_ref().map(|section| section.value.check(source, variables)).transpose()?;
        Ok(AdaptersConfig { websocket, slack })
    }
}

impl WebSocketSection {
    fn check(&self, source: &YamlFile) -> Result<WebSocketConfig, ConfigError> {
        let listen: SocketAddr = self.listen.value.parse().map_err(|_| {
            source.wrong(&self.listen, "expected an address and a port of this machine, such as 127.0.0.1:7411")
        })?;
        if listen.port() == 0 {
            return Err(source.wrong(&self.listen, "a program has to know the port, such as 127.0.0.1:7411"));
        }
        if !listen.ip().is_loopback() {
            return Err(source.wrong(&self.listen, "the WebSocket listens on loopback alone, such as 127.0.0.1:7411"));
        }
        let origins = listed(&self.origins, source, "an origin such as http://localhost:3000", |origin| {
            reqwest::Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == origin)
        })?;
        Ok(WebSocketConfig { listen, origins })
    }
}

impl SlackSection {
    fn check(&self, source: &YamlFile, variables: &Variables) -> Result<Result<SlackConfig, String>, ConfigError> {
        let filled = |written: &Spanned<String>| variables.fill(&written.value).map(|token| token.trim().to_owned());
        let (app, bot) = match (filled(&self.app_token), filled(&self.bot_token)) {
            (Ok(app), Ok(bot)) => (app, bot),
            (Err(name), _) | (_, Err(name)) => return Ok(Err(format!("the variable {name} is not set"))),
        };
        let token = |filled: &str, written: &Spanned<String>, prefix: &str| {
            let is_token = filled.starts_with(prefix) && filled.bytes().all(|byte| byte.is_ascii_graphic());
            if is_token {
                Ok(filled.to_owned())
            } else {
                Err(source.wrong(written, format!("expected a token {prefix}…")))
            }
        };
        let agent = match &self.agent {
            None => "default".to_owned(),
            Some(agent) if is_id(&agent.value) => agent.value.clone(),
            Some(agent) => return Err(source.wrong(agent, format!("{:?} is no agent's id", agent.value))),
        };
        let id = |first: &'static [char]| {
            move |id: &str| id.starts_with(first) && id.len() > 1 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let people = "the id of a person, such as U0123ABCD";
        Ok(Ok(SlackConfig {
            app_token: token(&app, &self.app_token, "xapp-")?,
            bot_token: token(&bot, &self.bot_token, "xoxb-")?,
            agent,
            channels: listed(&self.channels, source, "the id of a channel, such as C0123ABCD", id(&['C', 'G', 'D']))?,
            users: listed(&self.users, source, people, id(&['U', 'W']))?,
            approvers: listed(&self.approvers, source, people, id(&['U', 'W']))?,
            api_url: self.api_url(source, variables)?,
        }))
    }

    fn api_url(&self, source: &YamlFile, variables: &Variables) -> Result<String, ConfigError> {
        let Some(written) = &self.api_url else { return Ok(SLACK_API.to_owned()) };
        let filled = variables
            .fill(&written.value)
            .map_err(|name| source.wrong(written, format!("the variable {name} is not set")))?;
        let is_safe = reqwest::Url::parse(&filled).is_ok_and(|url| {
            let is_here = url.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
            url.scheme() == "https" || url.scheme() == "http" && is_here
        });
        if is_safe {
            return Ok(filled.trim_end_matches('/').to_owned());
        }
        Err(source.wrong(written, "expected an address with https, or one of this machine"))
    }
}

fn listed(
    written: &[Spanned<String>],
    source: &YamlFile,
    expected: &str,
    is_good: impl Fn(&str) -> bool,
) -> Result<Vec<String>, ConfigError> {
    if let Some(more) = written.get(MAX_LISTED) {
        return Err(source.wrong(more, format!("at most {MAX_LISTED} are listed")));
    }
    if let Some(bad) = written.iter().find(|one| !is_good(&one.value)) {
        return Err(source.wrong(bad, format!("expected {expected}")));
    }
    Ok(written.iter().map(|one| one.value.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AdaptersConfig, ConfigError> {
        let source = YamlFile::of(text.to_owned(), "config.yaml");
        let variables = Variables::of([("APP", "xapp-1-A"), ("BOT", "xoxb-2-B")]);
        source.parse::<AdaptersSection>()?.check(&source, &variables)
    }

    #[test]
    fn both_doors_are_read() {
        let config = read(
            "websocket: { listen: \"127.0.0.1:7411\", origins: [\"http://localhost:3000\"] }\n\
             slack: { appToken: \"${APP}\", botToken: \"${BOT}\", users: [U1A], approvers: [U2B], channels: [C3C] }\n",
        );
        let config = config.expect("a good section");
        let slack = config.slack.expect("a Slack").expect("that can be used");
        assert_eq!(
            (slack.app_token.as_str(), slack.agent.as_str(), slack.api_url.as_str()),
            ("xapp-1-A", "default", SLACK_API)
        );
        assert!(!format!("{slack:?}").contains("xoxb"), "a token is not shown");
        assert_eq!(config.websocket.map(|websocket| websocket.origins.len()), Some(1));
    }

    #[test]
    fn a_token_that_this_machine_does_not_have_spoils_nothing_else() {
        let config = read("slack: { appToken: \"${NONE}\", botToken: \"${BOT}\" }").expect("a good section");
        assert_eq!(config.slack, Some(Err("the variable NONE is not set".to_owned())));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("websocket: { listen: \"0.0.0.0:7411\" }", "loopback"),
            ("websocket: { listen: \"7411\" }", "an address and a port"),
            ("websocket: { listen: \"127.0.0.1:0\" }", "the port"),
            ("websocket: { listen: \"127.0.0.1:1\", origins: [\"http://a/b\"] }", "an origin"),
            ("slack: { appToken: \"${BOT}\", botToken: \"${BOT}\" }", "xapp-"),
            ("slack: { appToken: \"${APP}\", botToken: \"${BOT}\", users: [mia] }", "a person"),
            ("slack: { appToken: \"${APP}\", botToken: \"${BOT}\", apiUrl: \"http://example.org\" }", "https"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.message.contains(why), "{text}: {}", error.message);
        }
    }
}
