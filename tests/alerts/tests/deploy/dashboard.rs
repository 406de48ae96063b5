//! The dashboard: its panels, and the queries as Grafana would send them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::deploy;

/// What Grafana puts in the place of its variables: a window that holds a few scrapes.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "1m"), ("$__range", "1h")];

/// A dashboard as Grafana loads it.
#[derive(Debug)]
pub(crate) struct Dashboard(Value);

impl Dashboard {
    pub(crate) fn read(path: &Path) -> Result<Dashboard> {
        let text = fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
        Ok(Dashboard(serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?))
    }

    /// Every query about these queues, with variables put in, and where it stands.
    pub(crate) fn queries(&self, queues: &str) -> Vec<(String, String)> {
        let of_panels = self.panels().flat_map(|panel| {
            let title = text(&panel["title"]);
            list(&panel["targets"]).map(move |target| (format!("panel {title}"), text(&target["expr"])))
        });
        let of_annotations = list(&self.0["annotations"]["list"]).map(|annotation| {
            (format!("annotation {}", text(&annotation["name"])), text(&annotation["expr"]))
        });
        let of_variables = list(&self.0["templating"]["list"])
            .filter(|variable| variable["type"] == "query")
            .map(|variable| {
                (
                    format!("variable {}", text(&variable["name"])),
                    values_of(&text(&variable["query"]["query"])),
                )
            });
        let all = of_panels.chain(of_annotations).chain(of_variables);
        all.map(|(place, query)| {
            let query = query.replace("$queue_name", queues);
            (place, VARIABLES.iter().fold(query, |query, (name, value)| query.replace(name, value)))
        })
        .collect()
    }

    /// All but rows.
    fn panels(&self) -> impl Iterator<Item = &Value> {
        list(&self.0["panels"]).filter(|panel| panel["type"] != "row")
    }
}

/// `label_values(SELECTOR, LABEL)`, which only Grafana knows, as a query.
fn values_of(query: &str) -> String {
    let parts = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(')'))
        .and_then(|rest| rest.rsplit_once(", "));
    parts.map_or_else(|| query.to_owned(), |(selector, label)| format!("count by ({label}) ({selector})"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn every_panel_says_what_it_shows_in_which_unit_of_the_chosen_queues() -> Result<()> {
    let dashboard = Dashboard::read(&deploy("grafana/redrive.json"))?;
    for panel in dashboard.panels() {
        let title = text(&panel["title"]);
        assert!(!title.is_empty(), "a panel without a title: {panel}");
        assert!(text(&panel["description"]).ends_with('.'), "{title}: no description");
        assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title}: no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(list(&panel["targets"]).next().is_some(), "{title}: no query");
        for target in list(&panel["targets"]) {
            let (query, series) = (text(&target["expr"]), text(&target["expr"]).matches('{').count());
            assert_eq!(
                query.matches(r#"queue_name=~"$queue_name""#).count(),
                series,
                "{title} shows other queues: {query}"
            );
            assert!(series > 0, "{title}: {query}");
        }
    }
    Ok(())
}

#[test]
fn panels_have_ids_of_their_own_and_lie_side_by_side() -> Result<()> {
    let dashboard = Dashboard::read(&deploy("grafana/redrive.json"))?;
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard.0["panels"]) {
        let title = text(&panel["title"]);
        assert!(ids.insert(panel["id"].as_u64()), "{title}: another panel has its id");
        let side =
            |name: &str| panel["gridPos"][name].as_u64().with_context(|| format!("{title}: no {name}"));
        let (x, y, w, h) = (side("x")?, side("y")?, side("w")?, side("h")?);
        assert!(x + w <= 24, "{title} is cut off at the right");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} lies on another panel at {cell:?}");
        }
    }
    Ok(())
}
