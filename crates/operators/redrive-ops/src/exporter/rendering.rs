//! Writes values as text. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::values::{EntryValues, Values};
use crate::journal::StoppedRun;

/// The metrics of one shelf.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) queue_name: String,
    pub(super) shelf: String,
    pub(super) readable: bool,
    /// The last values, and their age.
    pub(super) values: Option<(Duration, Arc<Values>)>,
}

/// Returns the text of the metrics at this time.
pub(super) fn render(
    prefix: Option<&str>,
    now: SystemTime,
    shown: Vec<Shown>,
    stopped: Vec<(String, StoppedRun)>,
) -> String {
    let mut registry = prefix.map_or_else(Registry::default, Registry::with_prefix);
    registry.register_collector(Box::new(Page { now, shown, stopped }));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("writing to a string does not fail");
    page
}

#[derive(Debug)]
struct Page {
    now: SystemTime,
    shown: Vec<Shown>,
    /// Runs that ended early, with the labels of their shelves.
    stopped: Vec<(String, StoppedRun)>,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        gauge(
            encoder,
            "shelf_messages",
            None,
            "Messages on the shelf, by the broker's count",
            self.of_values(|it| it.messages),
        )?;
        let help = "1 if others may hold messages of the shelf, which the other values do not count";
        gauge(encoder, "shelf_partial", None, help, self.of_values(|it| u64::from(it.partial)))?;
        let help = "Time since the oldest entry was put on the shelf";
        let oldest = self.of_entries(|it| it.oldest.map(|oldest| (vec![], self.since(oldest))));
        gauge(encoder, "shelf_oldest_age", Some(&Unit::Seconds), help, oldest)?;
        let by_reason = self.of_entries(|it| {
            it.by_reason.iter().map(|(reason, count)| (vec![("reason", &**reason)], *count))
        });
        gauge(encoder, "shelf_messages_by_reason", None, "Entries of the shelf, by reason", by_reason)?;
        let by_group = self.of_entries(|it| {
            it.by_group.iter().map(|(labels, count)| {
                let of_group = [
                    ("group", &labels.group),
                    ("reason", &labels.reason),
                    ("error_type", &labels.error_type),
                ];
                (of_group.map(|(name, value)| (name, &**value)).to_vec(), *count)
            })
        });
        gauge(
            encoder,
            "shelf_messages_by_group",
            None,
            "Entries of the shelf, by group of failures",
            by_group,
        )?;
        let truncated = self.of_entries(|it| [(vec![], u64::from(it.truncated))]);
        gauge(encoder, "shelf_truncated", None, "1 if the shelf has more entries than were read", truncated)?;
        let readable = self.shown.iter().map(|shown| (labels(shown), u64::from(shown.readable)));
        gauge(encoder, "shelf_readable", None, "1 if the last read of the shelf succeeded", readable)?;
        let age = self
            .shown
            .iter()
            .filter_map(|shown| Some((labels(shown), shown.values.as_ref()?.0.as_secs_f64())));
        gauge(encoder, "shelf_read_age", Some(&Unit::Seconds), "Age of the other values of the shelf", age)?;
        let stopped = self.stopped.iter().map(|(shelf, stopped)| {
            let labels = vec![("queue_name", &*stopped.queue), ("shelf", &**shelf), ("why", stopped.why)];
            (labels, self.since(stopped.at))
        });
        let help = "Time since the newest run of the shelf ended early, within the last day";
        gauge(encoder, "run_stopped_age", Some(&Unit::Seconds), help, stopped)
    }
}

impl Page {
    fn of_values<'a, V>(&'a self, value: impl Fn(&'a Values) -> V) -> impl Iterator<Item = (Labels<'a>, V)> {
        self.shown.iter().filter_map(move |shown| Some((labels(shown), value(&shown.values.as_ref()?.1))))
    }

    /// Adds one series for each value, for every shelf whose entries were read. Labels of the shelf come first.
    fn of_entries<'a, V, I>(
        &'a self,
        series: impl Fn(&'a EntryValues) -> I,
    ) -> impl Iterator<Item = (Labels<'a>, V)>
    where
        I: IntoIterator<Item = (Labels<'a>, V)>,
    {
        let read =
            self.shown.iter().filter_map(|shown| Some((shown, shown.values.as_ref()?.1.entries.as_ref()?)));
        read.flat_map(move |(shown, entries)| {
            series(entries).into_iter().map(move |(own, value)| ([labels(shown), own].concat(), value))
        })
    }

    /// Returns the seconds since a time; 0 for a time in the future, which comes from another clock.
    fn since(&self, time: SystemTime) -> f64 {
        self.now.duration_since(time).unwrap_or_default().as_secs_f64()
    }
}

fn labels(shown: &Shown) -> Labels<'_> {
    vec![("queue_name", &shown.queue_name), ("shelf", &shown.shelf)]
}

fn gauge<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    unit: Option<&Unit>,
    help: &str,
    series: impl Iterator<Item = (Labels<'a>, impl EncodeGaugeValue)>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in series {
        encoder.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::values::GroupLabels;
    use super::*;

    fn shown(values: Option<Values>) -> Vec<Shown> {
        let values = values.map(|values| (Duration::from_millis(1500), Arc::new(values)));
        vec![Shown {
            queue_name: "a\"b\\c\n".to_owned(),
            shelf: "parking".to_owned(),
            readable: values.is_some(),
            values,
        }]
    }

    fn series(page: &str) -> Vec<&str> {
        page.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn a_page_is_this_text() {
        let group = GroupLabels {
            group: "17".to_owned(),
            reason: "Late".to_owned(),
            error_type: "unknown".to_owned(),
        };
        let entries = EntryValues {
            oldest: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(40)),
            by_reason: vec![("Late".to_owned(), 2)],
            by_group: vec![(group, 2)],
            truncated: false,
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let page = render(
            Some("shop"),
            now,
            shown(Some(Values { messages: 2, partial: true, entries: Some(entries) })),
            vec![],
        );
        assert_eq!(
            series(&page),
            [
                r#"shop_shelf_messages{queue_name="a\"b\\c\n",shelf="parking"} 2"#,
                r#"shop_shelf_partial{queue_name="a\"b\\c\n",shelf="parking"} 1"#,
                r#"shop_shelf_oldest_age_seconds{queue_name="a\"b\\c\n",shelf="parking"} 60.0"#,
                r#"shop_shelf_messages_by_reason{queue_name="a\"b\\c\n",shelf="parking",reason="Late"} 2"#,
                r#"shop_shelf_messages_by_group{queue_name="a\"b\\c\n",shelf="parking",group="17",reason="Late",error_type="unknown"} 2"#,
                r#"shop_shelf_truncated{queue_name="a\"b\\c\n",shelf="parking"} 0"#,
                r#"shop_shelf_readable{queue_name="a\"b\\c\n",shelf="parking"} 1"#,
                r#"shop_shelf_read_age_seconds{queue_name="a\"b\\c\n",shelf="parking"} 1.5"#,
            ]
        );
        assert!(page.contains("# TYPE shop_shelf_messages gauge\n"), "{page}");
        assert!(page.ends_with("# EOF\n"), "{page}");
    }

    #[test]
    fn what_was_never_read_has_no_values() {
        let page = render(None, SystemTime::UNIX_EPOCH, shown(None), vec![]);
        assert_eq!(series(&page), [r#"shelf_readable{queue_name="a\"b\\c\n",shelf="parking"} 0"#]);
    }

    #[test]
    fn an_entry_from_the_future_has_no_negative_age() {
        let entries = EntryValues {
            oldest: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(40)),
            by_reason: vec![],
            by_group: vec![],
            truncated: true,
        };
        let page = render(
            None,
            SystemTime::UNIX_EPOCH,
            shown(Some(Values { messages: 1, partial: false, entries: Some(entries) })),
            vec![],
        );
        assert!(
            page.contains("shelf_oldest_age_seconds{queue_name=\"a\\\"b\\\\c\\n\",shelf=\"parking\"} 0.0\n"),
            "{page}"
        );
    }
}
