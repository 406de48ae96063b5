//! The parts of a [`RetryPlan`](crate::RetryPlan).

pub use crate::retry_plan::{Amount, Case, Course, Limit, Resting, RouteCourses, Setting, Span, Step};
