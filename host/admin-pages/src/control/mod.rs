//! Control interface between the admin pages and the reload thread: commands with their answers, and the reports that
//! the thread keeps for the pages.

mod answers;
mod command;
mod config_texts;
mod file_edit;
mod outcome;
mod status;
mod step;

pub use answers::{
    InstanceAnswer, PolicyAction, PolicyChange, RefusedChange, RefusedPolicyChange, RefusedRouteChange,
    RouteAnswer,
};
pub use command::ReloadCommand;
pub(crate) use command::send_command;
pub use config_texts::ConfigTexts;
pub use file_edit::{CheckReport, FileAction, FileAnswer, FileEdit, RefusedEdit};
pub use outcome::{Changes, ReloadAnswer, ReloadOutcome};
pub use status::{
    ConfigReport, ExploreSources, PoliciesReport, ProblemReport, RoutePoliciesReport, RouteReport, Status,
};
pub use step::PlanStep;

/// Error of a plan that the reload thread refused.
pub type PlanError = Box<dyn std::error::Error + Send + Sync>;
