//! Whole components through the public interface of the crate.

#[cfg(test)]
mod code_cache;
#[cfg(test)]
mod components;
#[cfg(test)]
mod decide;
#[cfg(test)]
mod languages;
#[cfg(test)]
mod listen;
#[cfg(test)]
mod load;
#[cfg(test)]
mod pairs;
#[cfg(test)]
mod prebuilt;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scorers;
#[cfg(test)]
mod sessions;
