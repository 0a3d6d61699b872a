//! Observer of a pipeline's parts: its decisions do not show that one is missing.

use std::fmt;

use crate::circuit::CircuitChange;
use crate::fault::PolicyFault;
use crate::policy::RequestFacts;
use crate::versions::PolicyVersion;

/// Called on requests' threads; scorers and filters are counted from 0, each in the order of the specification.
pub trait PipelineObserver: Send + Sync + fmt::Debug {
    /// Records the failure of a scorer's version, and its effect on the circuit.
    fn failed(
        &self,
        scorer: usize,
        version: &PolicyVersion,
        fault: &PolicyFault,
        change: CircuitChange,
        request: &RequestFacts,
    );

    /// Records that the circuit of a scorer's version has closed.
    fn recovered(&self, scorer: usize, version: &PolicyVersion);

    /// Records a decision without a scorer: it failed, or the circuits of all its versions are open.
    fn left_out(&self, scorer: usize);

    /// Records a filter that would have left no candidate, and was not applied.
    fn ignored(&self, filter: usize);
}

/// An observer that reports nothing.
#[derive(Debug, Clone, Copy)]
pub struct Unobserved;

impl PipelineObserver for Unobserved {
    fn failed(&self, _: usize, _: &PolicyVersion, _: &PolicyFault, _: CircuitChange, _: &RequestFacts) {}

    fn recovered(&self, _: usize, _: &PolicyVersion) {}

    fn left_out(&self, _: usize) {}

    fn ignored(&self, _: usize) {}
}
