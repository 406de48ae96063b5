//! The plan as a diagram.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Course, RetryPlan, Step};
use crate::text::plural;

/// The lines of a diagram, and the nodes of shared places.
#[derive(Default)]
struct Diagram {
    lines: String,
    places: BTreeMap<String, String>,
    nodes: usize,
}

impl RetryPlan {
    /// Returns the plan as a flow chart in the language of [Mermaid](https://mermaid.js.org), which GitHub, GitLab and others render
    /// from a code block `mermaid`.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        let mut diagram = Diagram { lines: "flowchart TD\n".to_owned(), ..Diagram::default() };
        for route in &self.routes {
            let begin = diagram.node("([", &[&self.queue, &route.route], "])");
            for course in &route.courses {
                diagram.course(&begin, course);
            }
        }
        diagram.lines
    }
}

impl Diagram {
    fn course(&mut self, begin: &str, course: &Course) {
        let hidden = course.hidden();
        let (mut from, mut label) = (begin.to_owned(), course.case_names());
        for (index, step) in course.steps.iter().enumerate() {
            if hidden.contains(&index) {
                if index == hidden.start {
                    let more =
                        self.node("[", &[&format!("… {} …", plural(hidden.len(), "more attempt"))], "]");
                    self.edge(&from, &label, &more);
                    (from, label) = (more, String::new());
                }
                continue;
            }
            // An end after the first attempt needs no box.
            if course.steps.len() > 1 {
                let attempt = format!("attempt {}", step.attempt);
                let after = format!("after {}", step.begins_after);
                let node = self.node("[", &[&attempt, &after], "]");
                self.edge(&from, &label, &node);
                (from, label) = (node, step.decided());
            } else {
                label = format!("{label}: {}", step.decided());
            }
            if step.rests.is_empty() {
                let gone = self.place("removed", step);
                self.edge(&from, &label, &gone);
                from = gone;
            } else {
                let place = self.place(&step.places(), step);
                self.edge(&from, &label, &place);
                from = place;
            }
            label = String::new();
        }
        if !course.ends {
            let end = self.node("[", &["and so on, without end"], "]");
            self.edge(&from, "", &end);
        }
    }

    /// Returns the node of a place. Each attempt has its own node of a shared queue; otherwise the arrows would cross.
    fn place(&mut self, name: &str, step: &Step) -> String {
        if step.wait.is_some() {
            return self.node("[(", &[name], ")]");
        }
        if let Some(node) = self.places.get(name) {
            return node.clone();
        }
        let node = self.node("[[", &[step.decision, name], "]]");
        self.places.insert(name.to_owned(), node.clone());
        node
    }

    fn node(&mut self, open: &str, lines: &[&str], close: &str) -> String {
        self.nodes += 1;
        let id = format!("n{}", self.nodes);
        let lines: Vec<_> = lines.iter().filter(|line| !line.is_empty()).map(|line| escaped(line)).collect();
        let _ = writeln!(self.lines, "    {id}{open}\"{}\"{close}", lines.join("<br/>"));
        id
    }

    fn edge(&mut self, from: &str, label: &str, to: &str) {
        let _ = match label {
            "" => writeln!(self.lines, "    {from} --> {to}"),
            label => writeln!(self.lines, "    {from} -- \"{}\" --> {to}", escaped(label)),
        };
    }
}

impl Step {
    fn decided(&self) -> String {
        match (&self.wait, &self.reason) {
            (Some(wait), _) => format!("{} after {wait}", self.decision),
            (None, Some(reason)) => reason.clone(),
            (None, None) => self.decision.to_owned(),
        }
    }
}

/// Escapes text for quotes. A backtick at the beginning would make it Markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '`' => {}
            '"' | '#' | '<' | '>' | '&' | ';' => {
                let _ = write!(escaped, "#{};", u32::from(char));
            }
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
