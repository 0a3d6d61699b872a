//! Layout: positions of one plan's numbers among those of a larger plan, found once so that a call only copies.

use crate::feature::{CandidateFeature, FeaturePlan};

/// Returns the plan with all numbers of these plans, each once.
pub(super) fn union<'p>(plans: impl IntoIterator<Item = &'p FeaturePlan>) -> FeaturePlan {
    let (mut request, mut columns) = (Vec::new(), Vec::new());
    for plan in plans {
        add_new(&mut request, plan.request());
        add_new(&mut columns, plan.candidate());
    }
    FeaturePlan::of(request, columns)
}

fn add_new<F: Clone + PartialEq>(known: &mut Vec<F>, features: &[F]) {
    for feature in features {
        if !known.contains(feature) {
            known.push(feature.clone());
        }
    }
}

/// Returns the place of a column.
pub(super) fn column(feature: &CandidateFeature, plan: &FeaturePlan) -> Option<usize> {
    plan.candidate().iter().position(|known| known == feature)
}

/// One plan's view of another's numbers.
#[derive(Debug)]
pub(super) struct View {
    request: Box<[usize]>,
    columns: Box<[usize]>,
    /// Numbers of the request, and of a row, in the larger plan.
    shape: (usize, usize),
    /// Set if both plans are the same.
    is_whole: bool,
}

impl View {
    /// Returns `None` where `part` has a number that `whole` lacks.
    pub(super) fn new(part: &FeaturePlan, whole: &FeaturePlan) -> Option<Self> {
        let of_request = |feature| whole.request().iter().position(|known| known == feature);
        Some(Self {
            request: part.request().iter().map(of_request).collect::<Option<_>>()?,
            columns: (part.candidate().iter())
                .map(|feature| column(feature, whole))
                .collect::<Option<_>>()?,
            shape: (whole.request().len(), whole.candidate().len()),
            is_whole: part == whole,
        })
    }

    /// Returns the part's numbers; in `room`, where they are not laid out so already.
    pub(super) fn of<'n>(&self, numbers: &'n [f64], rows: usize, room: &'n mut Vec<f64>) -> &'n [f64] {
        if self.is_whole {
            return numbers;
        }
        let (front, matrix) = numbers.split_at(self.shape.0);
        room.clear();
        room.extend(self.request.iter().map(|at| front[*at]));
        for row in 0..rows {
            let begin = row * self.shape.1;
            room.extend(self.columns.iter().map(|at| matrix[begin + at]));
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(request: &[&str], columns: &[&str]) -> FeaturePlan {
        FeaturePlan::resolve(request, columns).unwrap()
    }

    #[test]
    fn a_view_has_the_columns_of_its_plan_in_order() {
        let first = plan(&["request.stream"], &["load.requests", "label.zone"]);
        let second = plan(
            &["request.body-bytes", "request.stream"],
            &["worker.weight", "mood?", "load.requests"],
        );
        let whole = union([&first, &second]);
        assert_eq!(whole.request().len(), 2);
        assert_eq!(whole.candidate().len(), 4);
        // stream, body bytes; then requests, zone, weight, mood of two rows.
        let numbers = [1.0, 900.0, 3.0, 7.0, 2.0, -1.0, 4.0, 8.0, 1.0, -2.0];
        let mut room = Vec::new();
        let mut seen = |part: &FeaturePlan| {
            View::new(part, &whole)
                .unwrap()
                .of(&numbers, 2, &mut room)
                .to_vec()
        };
        assert_eq!(seen(&first), [1.0, 3.0, 7.0, 4.0, 8.0]);
        assert_eq!(seen(&second), [900.0, 1.0, 2.0, -1.0, 3.0, 1.0, -2.0, 4.0]);
        assert_eq!(seen(&whole), numbers);
        assert!(View::new(&plan(&[], &["ttft.ewma-ms"]), &whole).is_none());
    }

    #[test]
    fn labels_that_differ_in_a_question_mark_are_two_columns() {
        let odd = plan(&[], &["label.zone??"]);
        let whole = union([&odd, &plan(&[], &["label.zone?"])]);
        assert_eq!(whole.candidate().len(), 2);
        assert!(View::new(&odd, &whole).is_some());
    }
}
