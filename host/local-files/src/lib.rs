//! Local files that people name: the configuration, the policy folder, and files that a configuration refers to.
//! [`FolderWatch`] reports changes in their folders.

mod admin_key;
mod config_file;
mod config_source;
mod folder_watch;
pub mod policy_folder;
pub mod regular_file;
mod replace_file;

pub use admin_key::{ADMIN_API_KEY, has_admin_key};
pub use config_file::WriteConfigError;
pub use config_source::{ConfigSource, ReadConfigError};
pub use folder_watch::{FolderWatch, WatchError};
pub use replace_file::{NewFileAccess, ReplaceError, replace_file};
