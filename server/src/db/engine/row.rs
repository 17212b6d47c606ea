//! Parameters of statements and rows of results, for both engines.

use std::sync::Arc;

use sqlx::{
    Arguments as _, Postgres, Row as _, SqlStr,
    postgres::{PgArguments, PgRow},
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

use crate::db::DbError;

/// A parameter. Typed even when NULL, because PostgreSQL needs the type of a NULL. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Arg {
    Text(Option<Arc<str>>),
    Int(Option<i64>),
}

impl Arg {
    /// PostgreSQL refuses U+0000 in a text and SQLite stores it, so it is replaced for both.
    fn text(text: &str) -> Self {
        Self::Text(Some(if text.contains('\0') { crate::db::clean(text).into() } else { text.into() }))
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Self::text(value)
    }
}

impl From<String> for Arg {
    fn from(value: String) -> Self {
        Self::text(&value)
    }
}

impl From<&String> for Arg {
    fn from(value: &String) -> Self {
        Self::text(value)
    }
}

impl From<Option<String>> for Arg {
    fn from(value: Option<String>) -> Self {
        value.map_or(Self::Text(None), |text| Self::text(&text))
    }
}

impl From<Option<&str>> for Arg {
    fn from(value: Option<&str>) -> Self {
        value.map_or(Self::Text(None), Self::text)
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self::Int(Some(value.into()))
    }
}

/// A seq from the wire; one beyond what the database can hold becomes its largest number and matches nothing.
impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<Option<u64>> for Arg {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::Int(None), Self::from)
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Self {
        Self::Int(Some(value.into()))
    }
}

impl From<Option<i64>> for Arg {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<protocol::Instant> for Arg {
    fn from(value: protocol::Instant) -> Self {
        Self::Int(Some(value.0))
    }
}

impl From<Option<protocol::Instant>> for Arg {
    fn from(value: Option<protocol::Instant>) -> Self {
        Self::Int(value.map(|at| at.0))
    }
}

impl<W: crate::domain::Word> From<W> for Arg {
    fn from(value: W) -> Self {
        Self::text(value.word())
    }
}

macro_rules! ids_are_args {
    ($($id:ty),*) => {$(
        impl From<&$id> for Arg {
            fn from(id: &$id) -> Self {
                Self::Text(Some(id.as_str().into()))
            }
        }

        impl From<Option<&$id>> for Arg {
            fn from(id: Option<&$id>) -> Self {
                Self::Text(id.map(|id| id.as_str().into()))
            }
        }
    )*};
}

ids_are_args!(
    protocol::ArtifactId,
    protocol::TeamId,
    protocol::OperatorId,
    protocol::LoginId,
    protocol::ViberId,
    protocol::RolloutId,
    protocol::RunId,
    protocol::SessionId,
    protocol::SkillId,
    protocol::TaskId,
    protocol::MessageId,
    protocol::ApprovalId,
    protocol::ProposalId,
    protocol::CommentId,
    protocol::InvitationId,
    protocol::TokenId,
    protocol::JoinTokenId,
    protocol::EditId,
    protocol::BootId
);

/// A row of a result, its columns by name.
pub enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// A TEXT column that is never NULL.
    pub fn text(&self, column: &'static str) -> Result<String, DbError> {
        self.optional_text(column)?.ok_or_else(|| DbError::Broken(format!("{column} is NULL")))
    }

    /// A TEXT column.
    pub fn optional_text(&self, column: &'static str) -> Result<Option<String>, DbError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        })
    }

    /// A BIGINT column that is never NULL.
    pub fn int(&self, column: &'static str) -> Result<i64, DbError> {
        self.optional_int(column)?.ok_or_else(|| DbError::Broken(format!("{column} is NULL")))
    }

    /// A BIGINT column, or a number that a statement makes itself: PostgreSQL calls `1` an INT4.
    pub fn optional_int(&self, column: &'static str) -> Result<Option<i64>, DbError> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => match row.try_get::<Option<i32>, _>(column) {
                Ok(small) => small.map(i64::from),
                Err(_) => row.try_get(column)?,
            },
        })
    }

    /// A count or seq, never negative.
    pub fn count(&self, column: &'static str) -> Result<u64, DbError> {
        u64::try_from(self.int(column)?).map_err(|_| DbError::Broken(format!("{column} is negative")))
    }

    /// A BIGINT column that holds 0 or 1.
    pub fn flag(&self, column: &'static str) -> Result<bool, DbError> {
        Ok(self.int(column)? != 0)
    }

    /// An instant that is never NULL.
    pub fn instant(&self, column: &'static str) -> Result<protocol::Instant, DbError> {
        Ok(protocol::Instant(self.int(column)?))
    }

    /// An instant.
    pub fn optional_instant(&self, column: &'static str) -> Result<Option<protocol::Instant>, DbError> {
        Ok(self.optional_int(column)?.map(protocol::Instant))
    }

    /// A TEXT column that holds an identifier, a role, a state …
    pub fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(&self, column: &'static str) -> Result<T, DbError> {
        self.text(column)?.parse().map_err(|error| DbError::Broken(format!("{column}: {error}")))
    }

    /// The same for a column that may be NULL.
    pub fn optional_parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, DbError> {
        let parse = |text: String| text.parse().map_err(|error| DbError::Broken(format!("{column}: {error}")));
        self.optional_text(column)?.map(parse).transpose()
    }

    /// A TEXT column that holds JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: &'static str) -> Result<T, DbError> {
        serde_json::from_str(&self.text(column)?).map_err(|error| DbError::Broken(format!("{column}: {error}")))
    }

    /// The same for a column that may be NULL.
    pub fn optional_json<T: serde::de::DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, DbError> {
        let parse =
            |text: String| serde_json::from_str(&text).map_err(|error| DbError::Broken(format!("{column}: {error}")));
        self.optional_text(column)?.map(parse).transpose()
    }
}

/// The parameters of statements that are sent together, one after the other.
pub(in crate::db) fn sqlite_arguments<'a>(all: impl Iterator<Item = &'a Arg>) -> Result<SqliteArguments, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for arg in all {
        match arg {
            Arg::Text(Some(text)) => arguments.add(text.clone()),
            Arg::Text(None) => arguments.add(None::<String>),
            Arg::Int(value) => arguments.add(*value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

pub(in crate::db) fn bind_postgres<'a>(
    sql: SqlStr,
    args: impl Iterator<Item = &'a Arg>,
) -> Query<'static, Postgres, PgArguments> {
    args.fold(sqlx::query(sql), |query, arg| match arg {
        Arg::Text(value) => query.bind(value.clone()),
        Arg::Int(value) => query.bind(*value),
    })
}

/// Parameters of a statement: `args![id, now]`. Those of a [`db::TeamTx`](crate::db::TeamTx) come after its team and begin
/// with `$2`.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Arg::from($value)),*] };
}
