//! Errors: one enum per operation, each with a stable code.

mod activate;
mod control;
mod deliver;
mod dispose;
mod drain;
mod fork;
mod list;
mod provider;
mod publish;
mod published;
mod query;
mod run;
mod start;
mod system;
mod write;

pub use activate::ActivateError;
pub use control::ControlError;
pub use deliver::DeliverError;
pub use dispose::DisposeError;
pub use drain::{DrainError, TeardownFailure};
pub use fork::ForkError;
pub use list::ListError;
pub use provider::ProviderError;
pub use publish::PublishError;
pub use published::PublishedError;
pub use query::QueryError;
pub use run::RunError;
pub use start::StartError;
pub use system::SystemError;
pub use write::WriteError;

macro_rules! into_turn_error {
    ($($error:ty),*) => { $(
        impl From<$error> for crate::behavior::TurnError {
            fn from(error: $error) -> Self {
                Self::new(error.code(), error.to_string())
            }
        }
    )* };
}

into_turn_error!(
    WriteError,
    DeliverError,
    StartError,
    QueryError,
    ListError,
    ControlError,
    DrainError,
    ForkError,
    ProviderError,
    PublishError,
    PublishedError,
    RunError,
    DisposeError
);
