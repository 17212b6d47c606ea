//! Why tasks end without a result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a task ended without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskError {
    pub code: ErrorCode,
    pub message: String,
    pub retryable: bool,
    /// What a person can do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suggestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<Value>,
}

/// The kinds of failure a task can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = TaskErrorCode))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    ProviderAuth,
    ProviderRateLimited,
    ProviderUnavailable,
    ProviderBadRequest,
    ContentPolicy,
    ContextOverflow,
    ToolFailed,
    BudgetExceeded,
    MaxStepsReached,
    Timeout,
    DaemonRestarted,
    BoardRestored,
    Lost,
    OutboxFull,
    BadRequest,
    NotFound,
    Internal,
}

impl ErrorCode {
    /// The code as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProviderAuth => "provider_auth",
            Self::ProviderRateLimited => "provider_rate_limited",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::ProviderBadRequest => "provider_bad_request",
            Self::ContentPolicy => "content_policy",
            Self::ContextOverflow => "context_overflow",
            Self::ToolFailed => "tool_failed",
            Self::BudgetExceeded => "budget_exceeded",
            Self::MaxStepsReached => "max_steps_reached",
            Self::Timeout => "timeout",
            Self::DaemonRestarted => "daemon_restarted",
            Self::BoardRestored => "board_restored",
            Self::Lost => "lost",
            Self::OutboxFull => "outbox_full",
            Self::BadRequest => "bad_request",
            Self::NotFound => "not_found",
            Self::Internal => "internal",
        }
    }
}
